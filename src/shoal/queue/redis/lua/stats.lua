-- uses: base lanes items promote
-- stats: now, runs. Answers of each: its counters by name, then refused links by reason; nothing for a run that never was.
-- Claimable is exact where few lanes are due; of more a part is looked at, and the others are taken to be like it.
local LANES, HORIZON, PROMOTED = 200, 2000000, 1000

local function account(run)
  local claimable = 0
  if run.state == 'running' then
    local numbers = {}
    local wake = P .. 'wake:' .. run.id
    for i, id in ipairs(call('ZRANGEBYSCORE', wake, '-inf', int(now), 'LIMIT', 0, LANES)) do
      numbers[i] = tonumber(id)
    end
    if #numbers > 0 then
      load_lanes(numbers)
      load_heads(run, numbers)
    end
    for _, id in ipairs(numbers) do
      local lane, head = get_lane(id), get_head(run, id)
      local count = ready_in(head) + head[ALONE]
      if lane[SPACING] > 0 then
        count = min(count, floor(HORIZON / lane[SPACING]) + 1)
      end
      if lane[PARKED] > 0 then
        count = min(count, 1 - lane[FLIGHT])
      elseif lane[ROOM] > 0 then
        count = min(count, lane[ROOM] - lane[FLIGHT])
      end
      claimable = claimable + max(0, count)
    end
    if #numbers == LANES then
      claimable = min(run.ready - run.delayed, floor(claimable * call('ZCOUNT', wake, '-inf', int(now)) / LANES))
    end
    if run.max_pages > 0 then
      claimable = max(0, min(claimable, run.max_pages - run.done - run.dead - run.leased))
    end
  end
  local told = {'claimable', claimable}
  for _, field in ipairs({'seen', 'ready', 'leased', 'done', 'dead', 'cancelled', 'records', 'trimmed', 'retries', 'lost',
    'stale', 'bytes'}) do
    told[#told + 1] = field
    told[#told + 1] = run[field]
  end
  told[#told + 1] = 'delayed'
  told[#told + 1] = call('ZCOUNT', P .. 'delayed:' .. run.id, '(' .. int(now), '+inf')
  return {told, call('HGETALL', P .. 'skips:' .. run.id)}
end

for i = 2, #ARGV do
  local run = get_run(tonumber(ARGV[i]))
  if run then
    promote(run, floor(PROMOTED / (#ARGV - 1)))
  end
end
flush()
local accounts = {}
for i = 2, #ARGV do
  local run = get_run(tonumber(ARGV[i]))
  accounts[i - 1] = run and account(run) or false
end
return accounts
