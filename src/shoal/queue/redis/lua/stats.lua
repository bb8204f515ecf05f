-- uses: base lanes wake failing items promote
-- stats: now, how many lanes of each run are looked at, runs. Answers of each: claimable, delayed and its counters in this
-- order, then refused links by reason, and ready tasks by what they need; nothing for a run that never was.
-- Claimable is exact where few lanes are due; of more a part is looked at, and the others are taken to be like it.
local COUNTERS = {'seen', 'ready', 'leased', 'done', 'dead', 'cancelled', 'records', 'trimmed', 'retries', 'lost', 'stale', 'bytes', 'discarded', 'aside', 'outbox'}
local FIELDS_READ = {unpack(COUNTERS)}
FIELDS_READ[#FIELDS_READ + 1] = 'needs_sets'
local READY, LEASED, DONE, DEAD, DISCARDED, ASIDE = 2, 3, 4, 5, 13, 14
local HORIZON, PROMOTED = 2000000, 1000
local LANES = tonumber(ARGV[2])
local till = int(now)

-- Lanes that are due, and in how many indexes they were found: work with needs has its own.
local function due_lanes(run, sets)
  local numbers, known, found = {}, {}, 0
  for needs = 0, sets do
    for _, id in ipairs(call('ZRANGEBYSCORE', apart_key('wake:', run.id, needs), '-inf', till, 'LIMIT', 0, LANES)) do
      found = found + 1
      if not known[id] then
        known[id] = true
        numbers[#numbers + 1] = tonumber(id)
      end
    end
  end
  return numbers, found
end

local function claimable(run, counters, delayed, most, sets)
  local total, numbers, found = 0, due_lanes(run, sets)
  if #numbers == 0 then
    return 0
  end
  load_lanes(numbers)
  load_run_lanes(run, numbers)
  for _, id in ipairs(numbers) do
    local lane, run_lane = get_lane(id), get_run_lane(run, id)
    local count = ready_in(run_lane) + run_lane[ISOLATED]
    for _, shelf in pairs(run_lane[APART] or {}) do
      count = count + ready_in(shelf) + shelf[ISOLATED]
    end
    if lane[SPACING] > 0 then
      count = min(count, floor(HORIZON / lane[SPACING]) + 1)
    end
    if lane[PARKED] > 0 then
      count = min(count, 1 - lane[FLIGHT])
    elseif lane[ROOM] > 0 then
      count = min(count, lane[ROOM] - lane[FLIGHT])
    end
    local at = wake_time(lane)
    total = total + (at and at <= now and max(0, count) or 0)
  end
  if found >= LANES then
    local all = 0
    for needs = 0, sets do
      all = all + call('ZCOUNT', apart_key('wake:', run.id, needs), '-inf', till)
    end
    total = min(counters[READY] - delayed, floor(total * all / found))
  end
  if most > 0 then
    total = max(0, min(total, most - counters[DONE] - counters[DEAD] - counters[DISCARDED] - counters[LEASED] + counters[ASIDE]))
  end
  return total
end

local function needed(run)
  local names, told = call('HGETALL', P .. 'needs:' .. run.id), {}
  if not accepts_tasks(get_run(run.id)) then
    return told  -- what is only kept needs nothing
  end
  for i = 1, #names, 2 do
    told[i], told[i + 1] = names[i], tonumber(call('HGET', P .. 'needed:' .. run.id, names[i + 1]) or 0)
  end
  return told
end

local function account(run, got)
  local counters, delayed = {}, tonumber(got[3] or 0)
  for i = 1, #COUNTERS do
    counters[i] = tonumber(got[3 + i] or 0)
  end
  if delayed > 0 then
    delayed = call('ZCOUNT', P .. 'delayed:' .. run.id, '(' .. till, '+inf')
  end
  local full = counters[#COUNTERS] >= MAX_OUTBOX
  local sets = tonumber(got[4 + #COUNTERS] or 0)
  local could = got[1] == 'running' and not full and claimable(run, counters, delayed, tonumber(got[2] or 0), sets) or 0
  return {could, delayed, counters, call('HGETALL', P .. 'skips:' .. run.id), sets > 0 and needed(run) or {}}
end

-- Only what is told of is read: there may be thousands of runs.
local read = {}
for i = 3, #ARGV do
  read[i] = call('HMGET', P .. 'run:' .. ARGV[i], 'state', 'max_pages', 'delayed', unpack(FIELDS_READ))
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
