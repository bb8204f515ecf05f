-- Lanes, heads and runs as they are changed by one call: each is read once and written once, by flush().
-- A head is what a run has in a lane: its pace there, and how many of its tasks are ready by band.
local NAME, NEXT, ASKED, LEARNED, SPACING, ROOM, FLIGHT, HELD, PARKED, REASON, RUNS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local RULE, LIMIT = 12, 13  -- set by a person; below 0: nobody did
local LAST = 14  -- the last slot given while there was no spacing: lanes without limits take turns by it
local PACE, MOST, PICKS, ALONE, FIRST = 1, 2, 3, 4, 5  -- FIRST + band: ready tasks of that band
local BANDS = 8
local WORDS = 3  -- of these fields the first are text
local FIELDS = {
  'state', 'name', 'scraper', 'weight', 'max_pages', 'share', 'asked_at', 'left', 'cursor', 'cut', 'next_task', 'ended', 'alone',
  'level', 'split', 'marks', 'created_at', 'changed_at', 'finished_at',
  'seen', 'ready', 'delayed', 'leased', 'done', 'dead', 'cancelled', 'records', 'trimmed', 'retries', 'lost', 'stale', 'bytes',
}
local lanes, heads, runs = {}, {}, {}
local touched, heads_changed = {}, {}

local function get_run(id)
  local known = runs[id]
  if known ~= nil then
    return known or nil
  end
  local got = call('HMGET', P .. 'run:' .. id, unpack(FIELDS))
  if not got[1] then
    runs[id] = false
    return nil
  end
  local run = {id = id, changed = {}}
  for i, field in ipairs(FIELDS) do
    run[field] = i <= WORDS and got[i] or tonumber(got[i] or 0)
  end
  runs[id] = run
  return run
end

local function set(run, field, value)
  run[field] = value
  run.changed[field] = true
end

local function bump(run, field, by)
  if by ~= 0 then
    run[field] = run[field] + by
    run.changed[field] = true
  end
end

local function takes_work(run)
  return run ~= nil and (run.state == 'running' or run.state == 'paused')
end

local function load_lanes(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if not lanes[id] then
      missing[#missing + 1] = id
    end
  end
  if #missing > 0 then
    for i, packed in ipairs(gather('HMGET', P .. 'lanes', missing)) do
      lanes[missing[i]] = cmsgpack.unpack(packed)
    end
  end
end

local function get_lane(id)
  local lane = lanes[id]
  if not lane then
    lane = cmsgpack.unpack(call('HGET', P .. 'lanes', id))
    lanes[id] = lane
  end
  return lane
end

local function load_heads(run, ids)
  local known = heads[run.id] or {}
  heads[run.id] = known
  local missing = {}
  for _, id in ipairs(ids) do
    if known[id] == nil then
      missing[#missing + 1] = id
    end
  end
  if #missing > 0 then
    local got = gather('HMGET', P .. 'heads:' .. run.id, missing)
    for i, id in ipairs(missing) do
      known[id] = got[i] and cmsgpack.unpack(got[i]) or false
    end
  end
end

local function get_head(run, id)
  local known = heads[run.id] or {}
  heads[run.id] = known
  if known[id] == nil then
    local packed = call('HGET', P .. 'heads:' .. run.id, id)
    known[id] = packed and cmsgpack.unpack(packed) or false
  end
  return known[id] or nil
end

-- The lane is written, and says anew when each of its heads may be asked.
local function touch(id)
  touched[id] = true
end

local function touch_head(run, id)
  local changed = heads_changed[run.id]
  if not changed then
    changed = {}
    heads_changed[run.id] = changed
  end
  changed[id] = true
end

local function ready_in(head)
  return head[5] + head[6] + head[7] + head[8] + head[9] + head[10] + head[11] + head[12]
end

local function more(run, id, field, by)
  local head = get_head(run, id)
  local before = ready_in(head) + head[ALONE]
  head[field] = head[field] + by
  touch_head(run, id)
  if before <= 0 or before + by <= 0 then
    touch(id)
  end
end

local function more_ready(run, id, band, by)
  more(run, id, FIRST + band, by)
end

local function find_lane(name)
  local id = call('HGET', P .. 'hosts', name)
  return id and tonumber(id)
end

local function new_lane(name)
  local id = call('HINCRBY', P .. 'meta', 'lane', 1)
  call('HSET', P .. 'hosts', name, id)
  call('ZADD', P .. 'lanenames', 0, name)
  lanes[id] = {name, 0, 0, 0, 0, 0, 0, 0, 0, '', {}, -1, -1, 0}
  touch(id)
  return id
end

-- A slot was given: the next one is so much later.
local function pass(lane, slot, spacing)
  if spacing > 0 then
    lane[NEXT] = slot + spacing
  else
    lane[LAST] = slot
  end
end

-- A person's word stands in place of all others.
local function set_spacing(lane)
  lane[SPACING] = lane[RULE] >= 0 and lane[RULE] or max(lane[LEARNED], lane[ASKED])
end

-- Apply the slowest pace that any unfinished run asks of the lane.
local function settle_pace(id)
  local lane, asked, room = get_lane(id), 0, 0
  for _, number in ipairs(lane[RUNS]) do
    local run = get_run(number)
    local head = run and get_head(run, id)
    if head then
      asked = max(asked, head[PACE])
      if head[MOST] > 0 and (room == 0 or head[MOST] < room) then
        room = head[MOST]
      end
    end
  end
  lane[ASKED], lane[ROOM] = asked, lane[LIMIT] >= 0 and lane[LIMIT] or room
  set_spacing(lane)
  touch(id)
end

local function leave(lane, number)
  for i, other in ipairs(lane[RUNS]) do
    if other == number then
      table.remove(lane[RUNS], i)
      return
    end
  end
end

local function join(lane, number)
  leave(lane, number)
  table.insert(lane[RUNS], number)
end

-- What a run asks of a lane; a newcomer starts level with the run that was served least, and catches up with nobody.
local function ask(run, id, pace, most)
  local lane, head = get_lane(id), get_head(run, id)
  if head then
    head[PACE], head[MOST] = pace, most
  else
    local least
    for _, number in ipairs(lane[RUNS]) do
      local other = get_run(number)
      local theirs = other and other.state == 'running' and get_head(other, id)
      if theirs and (not least or theirs[PICKS] < least) then
        least = theirs[PICKS]
      end
    end
    heads[run.id][id] = {pace, most, least or 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
    call('RPUSH', P .. 'order:' .. run.id, id)
  end
  join(lane, run.id)
  touch_head(run, id)
  settle_pace(id)
end

local function is_full(lane)
  return (lane[ROOM] > 0 and lane[FLIGHT] >= lane[ROOM]) or (lane[PARKED] > 0 and lane[FLIGHT] > 0)
end

-- Hints wake workers that wait: one list for those that serve all, one per scraper and one per run. Each holds one at most.
local HINTED = 60  -- seconds; by then everybody has asked anyway

local function hint_at(key)
  if call('EXISTS', key) == 0 then
    call('RPUSH', key, 1)
    call('EXPIRE', key, HINTED)
  end
end

local function hint(run)
  if run.state == 'running' then
    hint_at(P .. 'hint')
    hint_at(P .. 'hint:' .. run.scraper)
    hint_at(P .. 'hint:' .. run.name)
  end
end

local function append(book, key, first, second)
  local list = book[key]
  if not list then
    list = {}
    book[key] = list
  end
  list[#list + 1] = first
  list[#list + 1] = second
end

local function flush()
  local packed, wake, sleep = {}, {}, {}
  for id in pairs(touched) do
    local lane = get_lane(id)
    local at, full = max(lane[NEXT], lane[HELD], lane[LAST]), is_full(lane)
    packed[#packed + 1] = id
    packed[#packed + 1] = cmsgpack.pack(lane)
    for _, number in ipairs(lane[RUNS]) do
      local run = get_run(number)
      local head = takes_work(run) and get_head(run, id)
      if head and not full and ready_in(head) + head[ALONE] > 0 then
        append(wake, number, at, id)
      else
        append(sleep, number, id)
      end
    end
  end
  many('HSET', P .. 'lanes', packed)
  for number, changed in pairs(heads_changed) do
    local values = {}
    for id in pairs(changed) do
      values[#values + 1] = id
      values[#values + 1] = cmsgpack.pack(heads[number][id])
    end
    many('HSET', P .. 'heads:' .. number, values)
  end
  for number, values in pairs(wake) do
    local key = P .. 'wake:' .. number
    if call('EXISTS', key) == 0 then
      hint(get_run(number))
    end
    many('ZADD', key, values)
  end
  for number, values in pairs(sleep) do
    many('ZREM', P .. 'wake:' .. number, values)
  end
  for number, run in pairs(runs) do
    if run and next(run.changed) then
      local values = {}
      for field in pairs(run.changed) do
        values[#values + 1] = field
        values[#values + 1] = run[field]
      end
      many('HSET', P .. 'run:' .. number, values)
      run.changed = {}
    end
  end
  touched, heads_changed = {}, {}
end
