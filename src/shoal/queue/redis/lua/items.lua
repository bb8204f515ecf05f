-- Items: a task as it is kept. A fresh one is an inline item in its ready list; one that came back, waits
-- for a time or has a time to live is kept by number in stored:<run>, and its list holds the number only.
--   inline: 1, number, added, body                 body: flags (1 for ack="auto", 2 for needs, 4 for a built-in kind), length of view in three bytes, view, work (made by clients)
--   stored:    2, number, added, wait_mode, line (in `band`), lane, attempts, lost, due, expires, returned_lease, history count and text, body
-- wait_mode: where it waits (0 in its list, 1 delayed, 2 to be claimed alone). expires: 0 is never.
local IN_LIST, DELAYED, BY_ITSELF = 0, 1, 2
local HISTORY = 20  -- attempts kept: the first and the newest
local LOCATIONS_PER_KEY = 16384  -- tasks per string of locations
local DIGESTS = 10  -- bytes that are kept of a digest
-- Of tasks: ended ones are done, or cancelled where a run is older than the next; called off: cancelled, with a row among
-- those that ended; removed: cancelled, and nothing is left of it; discarded: a dead letter, and nothing is left of it.
local UNKNOWN, WAITING, STORED, ENDED, DEAD, REMOVED, CANCELLED_ROW, DISCARDED = 0, 1, 2, 3, 4, 5, 6, 7
local RETURN_DEPTH = 128  -- how far from the head of its list the place of a task that comes back is looked for
local CLEARED = 'x'  -- in the place of an inline item that was dropped
local INLINE_BODY = 14  -- where the body of an inline item begins

local function unpack_item(item)
  local kind, number, added, at = unpack_struct('>BI4d', item)
  if kind == 1 then
    return {number = number, added = added, wait_mode = 0, attempts = 0, lost = 0, due = added, expires = 0, back = 0,
      count = 0, history = '', body = sub(item, at)}
  end
  local wait_mode, band, lane, attempts, lost, due, expires, back, count, history, last
    = unpack_struct('>BBI4HBdddBI4c0', item, at)
  return {number = number, added = added, wait_mode = wait_mode, band = band, lane = lane, attempts = attempts, lost = lost, due = due,
    expires = expires, back = back, count = count, history = history, body = sub(item, last)}
end

local function pack_stored(task)
  return pack('>BI4dBBI4HBdddBI4c0', 2, task.number, task.added, task.wait_mode, task.band, task.lane, min(task.attempts, 65535), task.lost,
    task.due, task.expires, task.back, task.count, #task.history, task.history) .. task.body
end

-- An item without what only a worker needs; `body` is where its body begins.
local function strip_work(item, body)
  local last = body + 3 + unpack_struct('>I3', item, body + 1)
  return last == #item and item or sub(item, 1, last)
end

-- Whether a task is acknowledged by being handed out: it comes once at most.
local function is_auto(task)
  return byte(task.body) % 2 == 1
end

-- Whether a task is of a built-in kind, which is no page of its run; `flags` is the first byte of its body.
local function is_aside(flags)
  return floor(flags / 4) % 2 == 1
end

local function append_attempt(task, attempt)
  if attempt == '' then
    return
  end
  task.history = task.history .. pack('>I4c0', #attempt, attempt)
  task.count = task.count + 1
  if task.count > HISTORY then
    local first = 4 + unpack_struct('>I4', task.history)
    local second = first + 4 + unpack_struct('>I4', task.history, first + 1)
    task.history = sub(task.history, 1, first) .. sub(task.history, second + 1)
    task.count = task.count - 1
  end
end

local function ready_list(run, lane, line)
  return P .. 'ready:' .. run .. ':' .. lane .. ':' .. line
end

local function needs_of(task)
  return floor(task.band / BANDS)
end

local function set_location(run, number, tag, value)
  call('SETRANGE', P .. 'location:' .. run .. ':' .. floor(number / LOCATIONS_PER_KEY), number % LOCATIONS_PER_KEY * 5, pack('>BI4', tag, value))
end

local function location_of(run, number)
  local first = number % LOCATIONS_PER_KEY * 5
  local found = call('GETRANGE', P .. 'location:' .. run .. ':' .. floor(number / LOCATIONS_PER_KEY), first, first + 4)
  if #found < 5 then
    return UNKNOWN, 0
  end
  return unpack_struct('>BI4', found)
end

-- Among the tasks at the head of a list: before the first that came after it.
local function put_in_place(list, number)
  local ahead = call('LRANGE', list, 0, 0)
  for looked = 1, 2 do
    for i, item in ipairs(ahead) do
      local other = byte(item) == 1 and unpack_struct('>I4', item, 2) or tonumber(item)
      if other and other > number then
        return i == 1 and call('LPUSH', list, number) or call('LINSERT', list, 'BEFORE', item, number)
      end
    end
    ahead = looked == 1 and call('LRANGE', list, 0, RETURN_DEPTH - 1) or ahead
  end
  call(#ahead < RETURN_DEPTH and 'RPUSH' or 'LPUSH', list, number)
end

-- A task waits again, or for the first time in a way of its own. The caller keeps the account.
-- `in_place`: it was due before, whatever the clock says now, and goes where it was.
local function enqueue_stored(run, task, in_place)
  local id = run.id
  if task.due > now and not in_place then
    task.wait_mode = DELAYED
    call('ZADD', P .. 'delayed:' .. id, task.due, task.number)
    if run.delayed == 0 then
      hint(run)
    end
    bump(run, 'delayed', 1)
  elseif task.lost > 0 then
    task.wait_mode = BY_ITSELF
    call('ZADD', apart_key('isolated:', id, needs_of(task)), task.number, task.number)
    bump(run, 'isolated', 1)
    add_to_run_lane(run, task.lane, needs_of(task), ISOLATED, 1)
  else
    task.wait_mode = IN_LIST
    local list = ready_list(id, task.lane, task.band)
    if in_place then
      put_in_place(list, task.number)
    else
      call('RPUSH', list, task.number)
    end
    add_ready(run, task.lane, task.band, 1)
  end
  if task.expires > 0 then
    call('ZADD', P .. 'ttl:' .. id, task.expires, task.number)
  end
  call('HSET', P .. 'stored:' .. id, task.number, pack_stored(task))
end

-- An stored task waits no longer; what its list holds of it is passed over later.
local function dequeue_stored(run, task)
  local id = run.id
  if task.wait_mode == DELAYED then
    call('ZREM', P .. 'delayed:' .. id, task.number)
    bump(run, 'delayed', -1)
  elseif task.wait_mode == BY_ITSELF then
    call('ZREM', apart_key('isolated:', id, needs_of(task)), task.number)
    bump(run, 'isolated', -1)
    add_to_run_lane(run, task.lane, needs_of(task), ISOLATED, -1)
  else
    add_ready(run, task.lane, task.band, -1)
  end
  if task.expires > 0 then
    call('ZREM', P .. 'ttl:' .. id, task.number)
  end
  call('HDEL', P .. 'stored:' .. id, task.number)
end

-- Rows of ended tasks and of dead letters: state, ended, lease, returned_lease, lane, attempts, lost, records, the first of them,
-- cause, evidence, the last attempt (which the history of the item does not have), item.
local STATES = {done = 1, cancelled = 2, dead = 3}
local ROW = '>BdddI4HBI4I4I4c0I4c0I4c0'

local function pack_row(state, lease, back, lane, attempts, lost, records, first, cause, evidence, attempt, item, ended)
  return pack(ROW, STATES[state], ended or now, lease, back, lane, min(attempts, 65535), lost, records, first,
    #cause, cause, #evidence, evidence, #attempt, attempt) .. item
end

local function leases_of_row(row)
  local _, _, lease, back = unpack_struct('>Bddd', row)
  return lease, back
end

-- Dead letters by lane and cause, each group by when they ended; and how many there are of each.
local function join_group(run, number, lane, cause, ended)
  if call('ZADD', P .. 'group:' .. run.id .. ':' .. lane .. ':' .. cause, int(ended), number) == 1 then
    call('HINCRBY', P .. 'groups:' .. run.id, lane .. ':' .. cause, 1)
  end
end

local function leave_group(run, number, lane, cause)
  if call('ZREM', P .. 'group:' .. run.id .. ':' .. lane .. ':' .. cause, number) == 1
    and call('HINCRBY', P .. 'groups:' .. run.id, lane .. ':' .. cause, -1) == 0 then
    call('HDEL', P .. 'groups:' .. run.id, lane .. ':' .. cause)
  end
end

-- A dead letter is one no longer: its row as a task that waits, and its lease.
local function remove_dead_letter(run, row)
  local _, _, lease, _, lane, attempts, lost, _, _, cause, _, attempt, item = unpack_struct(ROW, row)
  local task = unpack_item(sub(row, item))
  append_attempt(task, attempt)
  task.attempts, task.lost = attempts, lost
  call('HDEL', P .. 'dead:' .. run.id, task.number)
  call('ZREM', P .. 'dead_ids:' .. run.id, task.number)
  call('ZREM', P .. 'dead_ages:' .. run.id, task.number)
  leave_group(run, task.number, lane, cause)
  bump(run, 'aside', is_aside(byte(task.body)) and -1 or 0)
  return task, lease
end

-- A dead letter; the caller keeps the account.
local function dead_letter(run, task, lease, cause, evidence, attempt, ended)
  task.wait_mode = IN_LIST
  call('HSET', P .. 'dead:' .. run.id, task.number, pack_row('dead', lease, task.back, task.lane, task.attempts, task.lost, 0, 0,
    cause, evidence, attempt, pack_stored(task), ended))
  call('ZADD', P .. 'dead_ids:' .. run.id, task.number, task.number)
  if run.dead_retention > 0 then
    call('ZADD', P .. 'dead_ages:' .. run.id, int(ended or now), task.number)
  end
  if not ended then  -- else it is only moved here from another queue
    count_failure(task.body, cause)
  end
  join_group(run, task.number, task.lane, cause, ended or now)
  bump(run, 'aside', is_aside(byte(task.body)) and 1 or 0)
  call('HDEL', P .. 'returned:' .. run.id, task.number)
  set_location(run.id, task.number, DEAD, 0)
end

local EXPIRED = 'its time to live ran out while it waited'

-- An attempt as clients pack it: at, worker, cause, message, status, seconds, size.
local function new_attempt(worker, cause, message)
  return cmsgpack.pack({now, worker, cause, message, 0, 0, 0})
end

local function expire(run, task)
  dequeue_stored(run, task)
  bump(run, 'ready', -1)
  bump(run, 'dead', 1)
  dead_letter(run, task, 0, 'expired', '', new_attempt('', 'expired', EXPIRED))
end

-- Some of the waiting tasks whose time is over; how many.
local function expire_some(run, most)
  local over = call('ZRANGEBYSCORE', P .. 'ttl:' .. run.id, '-inf', int(now), 'LIMIT', 0, most)
  for _, number in ipairs(over) do
    expire(run, unpack_item(call('HGET', P .. 'stored:' .. run.id, number)))
  end
  return #over
end

-- Some of the dead letters whose retention is over are removed; how many.
local function discard_some(run, most)
  local over = call('ZRANGEBYSCORE', P .. 'dead_ages:' .. run.id, '-inf', int(now - run.dead_retention), 'LIMIT', 0, most)
  for _, number in ipairs(over) do
    remove_dead_letter(run, call('HGET', P .. 'dead:' .. run.id, number))
    set_location(run.id, tonumber(number), DISCARDED, 0)
  end
  bump(run, 'dead', -#over)
  bump(run, 'discarded', #over)
  return #over
end
