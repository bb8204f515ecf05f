-- uses: base memo lanes items finding
-- drop: now, request, run, state (ready or dead), numbers. What waits, or is dead, is cancelled.
-- Answers: a word (unknown, ok), how many there were, then lane and band of each list that holds what was cleared.
local DROPPED = 'given up by a person'
local run = get_run(tonumber(ARGV[3]))
if not run then
  return {'unknown'}
end
local rows, lists, told, count = {}, {}, {'ok', 0}, 0
held = {}

local function call_off(task, lease, item)
  rows[#rows + 1] = pack_row('cancelled', lease, task.back, task.lane, task.attempts, task.lost, 0, 0, 'dropped', '',
    made_attempt('', 'dropped', DROPPED), item)
  place(run.id, task.number, CALLED_OFF, run.ended)
  call('HDEL', P .. 'back:' .. run.id, task.number)
  bump(run, 'ended', 1)
  count = count + 1
end

local function call_off_odd(task, lease)
  local item = pack_odd(task)
  call_off(task, lease, shorn(item, #item - #task.body + 1))
end

local function clear(lane, band)
  lists[lane * BANDS + band] = true
end

local function drop_waiting(number, tag, lane)
  if tag == ODD then
    local odd = call('HGET', P .. 'odd:' .. run.id, number)
    if odd then
      local task = unpack_item(odd)
      leave_odd(run, task)
      call_off_odd(task, 0)
      clear(task.lane, task.band)
    end
  elseif tag == WAITS then
    local item, band, at = find_inline(run, number, lane)
    if item then
      local task = unpack_item(item)
      task.lane = lane
      call('LSET', ready_list(run.id, lane, band), at, CLEARED)
      more_ready(run, lane, band, -1)
      call_off(task, 0, shorn(item, INLINE_BODY))
      clear(lane, band)
    end
  end
end

local function drop_dead(number)
  local row = call('HGET', P .. 'dead:' .. run.id, number)
  if row then
    call_off_odd(unbury(run, row))
  end
end

if ARGV[4] == 'dead' then
  for i = 5, #ARGV do
    drop_dead(tonumber(ARGV[i]))
  end
  bump(run, 'dead', -count)
elseif takes_work(run) then
  local tags, where = {}, {}
  for i = 5, #ARGV do
    local tag, lane = place_of(run.id, tonumber(ARGV[i]))
    tags[i], where[i] = tag, lane
    if tag == WAITS then
      crowd[lane] = (crowd[lane] or 0) + 1
    end
  end
  for i = 5, #ARGV do
    drop_waiting(tonumber(ARGV[i]), tags[i], where[i])
  end
  bump(run, 'ready', -count)
end
bump(run, 'cancelled', count)
many('RPUSH', P .. 'ended:' .. run.id, rows)
flush()
told[2] = count
for line in pairs(lists) do
  told[#told + 1] = floor(line / BANDS)
  told[#told + 1] = line % BANDS
end
return memorise(told)
