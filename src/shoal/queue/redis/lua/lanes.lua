-- Lanes, run_lanes and runs as they are changed by one call: each is read once and written once, by flush().
-- A run_lane is what a run has in a lane: its pace there, and how many of its tasks are ready by band.
local NAME, NEXT, REQUESTED, LEARNED, SPACING, ROOM, FLIGHT, HELD, PARKED, REASON, RUNS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local SPACING_OVERRIDE, LIMIT_OVERRIDE = 12, 13  -- set by a person; below 0: nobody did
local LAST = 14  -- the last slot given while there was no spacing: lanes without limits take turns by it
local GIVEN = 15  -- tasks ever handed out, of whatever run
-- While the lane is full: GIVEN as it was when it became so, then the runs whose claims came for nothing. Where GIVEN differs
-- the list is of another time, and every run may wait.
local WAITING_RUNS = 16
local PACE, MOST, PICKS, ISOLATED, FIRST = 1, 2, 3, 4, 5  -- FIRST + band: ready tasks of that band
local APART = 13  -- by number of needs: the same counts of tasks that need capabilities; nil where none ever did
local BANDS = 8
local MAX_OUTBOX = 10000  -- entries of a run that may wait; with more nothing of it is handed out
local LINES = 256  -- a line is 8 * needs + band: tasks of different needs never wait in one list
local WORDS = 4  -- of these fields the first are text
local FIELDS = {
  'state', 'name', 'scraper', 'seen_set', 'weight', 'priority', 'max_pages', 'share', 'last_claim_at', 'left', 'cursor', 'cut', 'next_task', 'ended', 'isolated',
  'level', 'split', 'marks', 'needs_sets', 'dead_retention', 'created_at', 'changed_at', 'finished_at',
  'seen', 'ready', 'delayed', 'leased', 'done', 'dead', 'cancelled', 'records', 'trimmed', 'retries', 'lost', 'stale', 'bytes', 'discarded', 'outbox',
}
local lanes, run_lanes, runs = {}, {}, {}
local touched, run_lanes_changed = {}, {}
lanes.read_wake = {}  -- by lane: when it could be asked as it was read; false: it was full

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

local function accepts_tasks(run)
  return run ~= nil and (run.state == 'running' or run.state == 'paused')
end

-- When a lane may next be asked; false: it is full. Of what one run takes from a lane the others that want it are not told:
-- scores in wake:<run> are never later than this, and a claim that comes too early corrects them.
local function wake_time(lane)
  local is_full = (lane[ROOM] > 0 and lane[FLIGHT] >= lane[ROOM]) or (lane[PARKED] > 0 and lane[FLIGHT] > 0)
  return not is_full and max(lane[NEXT], lane[HELD], lane[LAST])
end

local function get_lane(id, packed)
  local lane = lanes[id]
  if not lane then
    lane = cmsgpack.unpack(packed or call('HGET', P .. 'lanes', id))
    lanes[id], lanes.read_wake[id] = lane, wake_time(lane)
  end
  return lane
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
      get_lane(missing[i], packed)
    end
  end
end

local function load_run_lanes(run, ids)
  local known = run_lanes[run.id] or {}
  run_lanes[run.id] = known
  local missing = {}
  for _, id in ipairs(ids) do
    if known[id] == nil then
      missing[#missing + 1] = id
    end
  end
  if #missing > 0 then
    local got = gather('HMGET', P .. 'run_lanes:' .. run.id, missing)
    for i, id in ipairs(missing) do
      known[id] = got[i] and cmsgpack.unpack(got[i]) or false
    end
  end
end

local function get_run_lane(run, id)
  local known = run_lanes[run.id] or {}
  run_lanes[run.id] = known
  if known[id] == nil then
    local packed = call('HGET', P .. 'run_lanes:' .. run.id, id)
    known[id] = packed and cmsgpack.unpack(packed) or false
  end
  return known[id] or nil
end

-- The lane is written, and says anew when each of its run_lanes may be asked.
-- its_own: only numbers of the lane itself changed, so that for a run whose run_lane is as it was only the time moves.
local function touch(id, its_own)
  touched[id] = its_own and touched[id] ~= 'all' and 'its_own' or 'all'
end

local function touch_run_lane(run, id)
  local changed = run_lanes_changed[run.id]
  if not changed then
    changed = {}
    run_lanes_changed[run.id] = changed
  end
  changed[id] = true
end

local function ready_in(run_lane)
  return run_lane[5] + run_lane[6] + run_lane[7] + run_lane[8] + run_lane[9] + run_lane[10] + run_lane[11] + run_lane[12]
end

-- The counts of a run in a lane of tasks with these needs; 0: of those without.
local function shelf_of(run_lane, needs)
  if needs == 0 then
    return run_lane
  end
  return run_lane[APART] and run_lane[APART][needs]
end

local function add_to_run_lane(run, id, needs, field, by)
  local run_lane = get_run_lane(run, id)
  local shelf = shelf_of(run_lane, needs)
  if not shelf then
    shelf = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
    run_lane[APART] = run_lane[APART] or {}
    run_lane[APART][needs] = shelf
  end
  local before = ready_in(shelf) + shelf[ISOLATED]
  shelf[field] = shelf[field] + by
  touch_run_lane(run, id)
  if before <= 0 or before + by <= 0 then
    touch(id, true)
  end
  if needs > 0 then
    call('HINCRBY', P .. 'needed:' .. run.id, needs, by)
  end
end

local function add_ready(run, id, line, by)
  local band = line % BANDS
  add_to_run_lane(run, id, (line - band) / BANDS, FIRST + band, by)
end

local function ready_in_line(run_lane, line)
  local band = line % BANDS
  local shelf = shelf_of(run_lane, (line - band) / BANDS)
  return shelf and shelf[FIRST + band] or 0
end

-- Where claims look for the lanes of a run that are due, and for tasks that are to be claimed alone.
local function apart_key(name, run, needs)
  return needs == 0 and P .. name .. run or P .. name .. run .. ':' .. needs
end

local function find_lane(name)
  local id = call('HGET', P .. 'lane_ids', name)
  return id and tonumber(id)
end

local function new_lane(name)
  local id = call('HINCRBY', P .. 'meta', 'lane', 1)
  call('HSET', P .. 'lane_ids', name, id)
  call('ZADD', P .. 'lane_names', 0, name)
  lanes[id] = {name, 0, 0, 0, 0, 0, 0, 0, 0, '', {}, -1, -1, 0, 0}
  touch(id)
  return id
end

-- A slot was given: the next one is so much later.
local function advance_slot(lane, slot, spacing)
  if spacing > 0 then
    lane[NEXT] = slot + spacing
  else
    lane[LAST] = slot
  end
end

-- A person's word stands in place of all others.
local function set_spacing(lane)
  lane[SPACING] = lane[SPACING_OVERRIDE] >= 0 and lane[SPACING_OVERRIDE] or max(lane[LEARNED], lane[REQUESTED])
end

-- Apply the slowest pace that any unfinished run asks of the lane.
local function apply_pace(id)
  local lane, asked, room = get_lane(id), 0, 0
  for _, number in ipairs(lane[RUNS]) do
    local run = get_run(number)
    local run_lane = run and get_run_lane(run, id)
    if run_lane then
      asked = max(asked, run_lane[PACE])
      if run_lane[MOST] > 0 and (room == 0 or run_lane[MOST] < room) then
        room = run_lane[MOST]
      end
    end
  end
  lane[REQUESTED], lane[ROOM] = asked, lane[LIMIT_OVERRIDE] >= 0 and lane[LIMIT_OVERRIDE] or room
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

-- What a run asks of a lane; a newcomer starts level with the run that was served least for its weight: it catches up with nobody.
local function set_run_pace(run, id, pace, most)
  local lane, run_lane = get_lane(id), get_run_lane(run, id)
  if run_lane then
    run_lane[PACE], run_lane[MOST] = pace, most
  else
    local least
    for _, number in ipairs(lane[RUNS]) do
      local other = get_run(number)
      local theirs = other and other.state == 'running' and get_run_lane(other, id)
      local served = theirs and floor(theirs[PICKS] / max(1, other.weight))
      if served and (not least or served < least) then
        least = served
      end
    end
    run_lanes[run.id][id] = {pace, most, (least or 0) * max(1, run.weight), 0, 0, 0, 0, 0, 0, 0, 0, 0}
    call('RPUSH', P .. 'lane_order:' .. run.id, id)
  end
  join(lane, run.id)
  touch_run_lane(run, id)
  apply_pace(id)
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

-- What waits with needs is found by them: claims that lack these do not come by it.
local function note_apart(wake, sleep, run, run_lane, id, at)
  for needs, shelf in pairs(run_lane[APART]) do
    local key = apart_key('wake:', run.id, needs)
    if at and ready_in(shelf) + shelf[ISOLATED] > 0 then
      append(wake, key, at, id)
      wake[key].run = run
    else
      append(sleep, key, id)
    end
  end
end

local wait_for_place, has_joined, flush
do  -- Lua counts the local names that are in sight, and allows 200
  -- The runs that are told when a lane opens: those whose claims found it full.
  local function waiting_runs(lane)
    local waiting = lane[WAITING_RUNS]
    return waiting and waiting[1] == lane[GIVEN] and waiting
  end

  function wait_for_place(lane, number)
    local waiting = waiting_runs(lane)
    if not waiting then
      return  -- all are told
    end
    for i = 2, #waiting do
      if waiting[i] == number then
        return
      end
    end
    waiting[#waiting + 1] = number
  end

  -- Whether a lane knows a run; those that ended or began again come and go in slices.
  function has_joined(lane, run)
    if run.left == 0 then
      return true
    end
    for _, number in ipairs(lane[RUNS]) do
      if number == run.id then
        return true
      end
    end
    return false
  end

  -- The runs that are told anew when a lane may be asked, beside those that changed what they have there; nil: all that it knows.
  local function runs_to_tell(lane, how, at, before)
    if how ~= 'its_own' or before == nil or (at and before and at < before) then
      lane[WAITING_RUNS] = nil
      return nil
    elseif at and before == false then
      local waiting = waiting_runs(lane)
      lane[WAITING_RUNS] = nil
      return waiting and {unpack(waiting, 2)}
    elseif before and not at then
      lane[WAITING_RUNS] = {lane[GIVEN]}
    end
    return {}
  end

  function flush()
    local packed, wake, sleep, wake_apart, sleep_apart, states_changed = {}, {}, {}, {}, {}, false
    for _, run in pairs(runs) do
      states_changed = states_changed or (run and run.changed.state)
    end

    local function tell(number, id, at)
      local run = get_run(number)
      local run_lane = accepts_tasks(run) and get_run_lane(run, id)
      if run_lane and at and ready_in(run_lane) + run_lane[ISOLATED] > 0 then
        append(wake, number, at, id)
      else
        append(sleep, number, id)
      end
      if run_lane and run_lane[APART] then
        note_apart(wake_apart, sleep_apart, run, run_lane, id, at or nil)
      end
    end

    for id, how in pairs(touched) do
      local lane = get_lane(id)
      local at, before = wake_time(lane), lanes.read_wake[id]
      local told = runs_to_tell(lane, states_changed and 'all' or how, at, before)
      lanes.read_wake[id] = at
      for _, number in ipairs(told or lane[RUNS]) do
        tell(number, id, at)
      end
      for number, changed in pairs(told and run_lanes_changed or {}) do
        if changed[id] and has_joined(lane, get_run(number)) then
          tell(number, id, at)
          if not at then
            wait_for_place(lane, number)
          end
        end
      end
      packed[#packed + 1] = id
      packed[#packed + 1] = cmsgpack.pack(lane)
    end
    call_many('HSET', P .. 'lanes', packed)
    for number, changed in pairs(run_lanes_changed) do
      local values = {}
      for id in pairs(changed) do
        values[#values + 1] = id
        values[#values + 1] = cmsgpack.pack(run_lanes[number][id])
      end
      call_many('HSET', P .. 'run_lanes:' .. number, values)
    end
    for number, values in pairs(wake) do
      local key = P .. 'wake:' .. number
      if call('EXISTS', key) == 0 then
        hint(get_run(number))
      end
      call_many('ZADD', key, values)
    end
    for number, values in pairs(sleep) do
      call_many('ZREM', P .. 'wake:' .. number, values)
    end
    for key, values in pairs(wake_apart) do
      if call('EXISTS', key) == 0 then
        hint(values.run)
      end
      call_many('ZADD', key, values)
    end
    for key, values in pairs(sleep_apart) do
      call_many('ZREM', key, values)
    end
    for number, run in pairs(runs) do
      if run and next(run.changed) then
        local values = {}
        for field in pairs(run.changed) do
          values[#values + 1] = field
          values[#values + 1] = run[field]
        end
        call_many('HSET', P .. 'run:' .. number, values)
        run.changed = {}
      end
    end
    touched, run_lanes_changed = {}, {}
  end
end
