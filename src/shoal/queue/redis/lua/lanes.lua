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
  'level', 'split', 'marks', 'band', 'needs_sets', 'dead_retention', 'created_at', 'changed_at', 'finished_at',
  'seen', 'ready', 'delayed', 'leased', 'done', 'dead', 'cancelled', 'records', 'trimmed', 'retries', 'lost', 'stale', 'bytes', 'discarded', 'aside', 'outbox',
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

-- run.band: 1 + the band that all its tasks so far have had, so that no lane is more urgent than another; 0: there are several, or
-- nobody knows; below 0: there was none yet.
local function add_ready(run, id, line, by)
  local band = line % BANDS
  if run.band ~= 0 and run.band ~= band + 1 then
    set(run, 'band', run.band < 0 and band + 1 or 0)
  end
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
    call('ZREM', P .. 'idle_lanes', id)
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
