-- uses: base reply_cache lanes wake failing items find_task
-- drop: now, request, run, state (ready or dead), numbers. What waits, or is dead, is cancelled.
-- Answers: a word (unknown, ok), how many there were, then lane and band of each list that holds what was cleared.
local DROPPED = 'dropped by a person'
local run = get_run(tonumber(ARGV[3]))
if not run then
  return {'unknown'}
end
local rows, lists, told, count = {}, {}, {'ok', 0}, 0
held = {}

local function cancel_task(task, lease, item)
  rows[#rows + 1] = pack_row('cancelled', lease, task.back, task.lane, task.attempts, task.lost, 0, 0, 'dropped', '',
    new_attempt('', 'dropped', DROPPED), item)
  set_location(run.id, task.number, CANCELLED_ROW, run.ended)
  call('HDEL', P .. 'returned:' .. run.id, task.number)
  bump(run, 'ended', 1)
  count = count + 1
end

local function cancel_stored(task, lease)
  local item = pack_stored(task)
  cancel_task(task, lease, strip_work(item, #item - #task.body + 1))
end

local function clear(lane, band)
  lists[lane * LINES + band] = true
end

local function drop_waiting(number, tag, lane)
  if tag == STORED then
    local stored = call('HGET', P .. 'stored:' .. run.id, number)
    if stored then
      local task = unpack_item(stored)
      dequeue_stored(run, task)
      cancel_stored(task, 0)
      clear(task.lane, task.band)
    end
  elseif tag == WAITING then
    local item, band, at = find_inline(run, number, lane)
    if item then
      local task = unpack_item(item)
      task.lane = lane
      call('LSET', ready_list(run.id, lane, band), at, CLEARED)
      add_ready(run, lane, band, -1)
      cancel_task(task, 0, strip_work(item, INLINE_BODY))
      clear(lane, band)
    end
  end
end

local function drop_dead(number)
  local row = call('HGET', P .. 'dead:' .. run.id, number)
  if row then
    cancel_stored(remove_dead_letter(run, row))
  end
end

if ARGV[4] == 'dead' then
  for i = 5, #ARGV do
    drop_dead(tonumber(ARGV[i]))
  end
  bump(run, 'dead', -count)
elseif accepts_tasks(run) then
  local tags, where = {}, {}
  for i = 5, #ARGV do
    local tag, lane = location_of(run.id, tonumber(ARGV[i]))
    tags[i], where[i] = tag, lane
    if tag == WAITING then
      sought_by_lane[lane] = (sought_by_lane[lane] or 0) + 1
    end
  end
  for i = 5, #ARGV do
    drop_waiting(tonumber(ARGV[i]), tags[i], where[i])
  end
  bump(run, 'ready', -count)
end
bump(run, 'cancelled', count)
call_many('RPUSH', P .. 'ended:' .. run.id, rows)
flush()
told[2] = count
for line in pairs(lists) do
  told[#told + 1] = floor(line / LINES)
  told[#told + 1] = line % LINES
end
return cache_reply(told)
