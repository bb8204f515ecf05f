-- uses: base lanes items promote
-- stats: now, how many lanes of each run are looked at, runs. Answers of each: claimable, delayed and its counters in this
-- order, then refused links by reason; nothing for a run that never was.
-- Claimable is exact where few lanes are due; of more a part is looked at, and the others are taken to be like it.
local COUNTERS = {'seen', 'ready', 'leased', 'done', 'dead', 'cancelled', 'records', 'trimmed', 'retries', 'lost', 'stale', 'bytes'}
local READY, LEASED, DONE, DEAD = 2, 3, 4, 5
local HORIZON, PROMOTED = 2000000, 1000
local LANES = tonumber(ARGV[2])
local till = int(now)

local function claimable(run, counters, delayed, most)
  local numbers, total, wake = {}, 0, P .. 'wake:' .. run.id
  for i, id in ipairs(call('ZRANGEBYSCORE', wake, '-inf', till, 'LIMIT', 0, LANES)) do
    numbers[i] = tonumber(id)
  end
  if #numbers == 0 then
    return 0
  end
  load_lanes(numbers)
  load_heads(run, numbers)
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
    total = total + max(0, count)
  end
  if #numbers == LANES then
    total = min(counters[READY] - delayed, floor(total * call('ZCOUNT', wake, '-inf', till) / LANES))
  end
  if most > 0 then
    total = max(0, min(total, most - counters[DONE] - counters[DEAD] - counters[LEASED]))
  end
  return total
end

local function account(run, got)
  local counters, delayed = {}, tonumber(got[3] or 0)
  for i = 1, #COUNTERS do
    counters[i] = tonumber(got[3 + i] or 0)
  end
  if delayed > 0 then
    delayed = call('ZCOUNT', P .. 'delayed:' .. run.id, '(' .. till, '+inf')
  end
  local could = got[1] == 'running' and claimable(run, counters, delayed, tonumber(got[2] or 0)) or 0
  return {could, delayed, counters, call('HGETALL', P .. 'skips:' .. run.id)}
end

-- Only what is told of is read: there may be thousands of runs.
local read = {}
for i = 3, #ARGV do
  read[i] = call('HMGET', P .. 'run:' .. ARGV[i], 'state', 'max_pages', 'delayed', unpack(COUNTERS))
  if read[i][1] and tonumber(read[i][3] or 0) > 0 then
    promote(get_run(tonumber(ARGV[i])), floor(PROMOTED / (#ARGV - 2)))
  end
end
flush()
local accounts = {}
for i = 3, #ARGV do
  accounts[i - 2] = read[i][1] and account({id = tonumber(ARGV[i])}, read[i]) or false
end
return accounts
