-- Items: a task as it is kept. A fresh one is an inline item in its ready list; one that came back, waits
-- for a time or has a time to live is kept by number in odd:<run>, and its list holds the number only.
--   inline: 1, number, added, body                 body: length of view, view, work (both made by clients)
--   odd:    2, number, added, spot, band, lane, attempts, lost, due, expires, gave_back, history count and text, body
-- spot: where it waits (0 in its list, 1 delayed, 2 to be claimed alone). expires: 0 is never.
local IN_LIST, DELAYED, BY_ITSELF = 0, 1, 2
local HISTORY = 20  -- attempts kept: the first and the newest
local PLACES = 16384  -- tasks per string of places
local DIGESTS = 10  -- bytes that are kept of a digest
-- Of tasks: ended ones are done, or cancelled where a run is older than the next; called off: cancelled, with a row among
-- those that ended; passed: cancelled, and nothing is left of it.
local NOWHERE, WAITS, ODD, ENDED, DEAD, PASSED, CALLED_OFF = 0, 1, 2, 3, 4, 5, 6
local CLEARED = 'x'  -- in the place of an inline item that was dropped
local INLINE_BODY = 14  -- where the body of an inline item begins

local function unpack_item(item)
  local kind, number, added, at = unpack_struct('>BI4d', item)
  if kind == 1 then
    return {number = number, added = added, spot = 0, attempts = 0, lost = 0, due = added, expires = 0, back = 0,
      count = 0, history = '', body = sub(item, at)}
  end
  local spot, band, lane, attempts, lost, due, expires, back, count, history, last
    = unpack_struct('>BBI4HBdddBI4c0', item, at)
  return {number = number, added = added, spot = spot, band = band, lane = lane, attempts = attempts, lost = lost, due = due,
    expires = expires, back = back, count = count, history = history, body = sub(item, last)}
end

local function pack_odd(task)
  return pack('>BI4dBBI4HBdddBI4c0', 2, task.number, task.added, task.spot, task.band, task.lane, min(task.attempts, 65535), task.lost,
    task.due, task.expires, task.back, task.count, #task.history, task.history) .. task.body
end

-- An item without what only a worker needs; `body` is where its body begins.
local function shorn(item, body)
  local last = body + 3 + unpack_struct('>I4', item, body)
  return last == #item and item or sub(item, 1, last)
end

local function remember(task, attempt)
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

local function ready_list(run, lane, band)
  return P .. 'ready:' .. run .. ':' .. lane .. ':' .. band
end

local function place(run, number, tag, value)
  call('SETRANGE', P .. 'place:' .. run .. ':' .. floor(number / PLACES), number % PLACES * 5, pack('>BI4', tag, value))
end

local function place_of(run, number)
  local first = number % PLACES * 5
  local found = call('GETRANGE', P .. 'place:' .. run .. ':' .. floor(number / PLACES), first, first + 4)
  if #found < 5 then
    return NOWHERE, 0
  end
  return unpack_struct('>BI4', found)
end

-- A task waits again, or for the first time in a way of its own. The caller keeps the account.
-- `first`: it goes before what is there, as one that was there before.
local function wait_odd(run, task, first)
  local id = run.id
  if task.due > now then
    task.spot = DELAYED
    call('ZADD', P .. 'delayed:' .. id, task.due, task.number)
    if run.delayed == 0 then
      hint(run)
    end
    bump(run, 'delayed', 1)
  elseif task.lost > 0 then
    task.spot = BY_ITSELF
    call('ZADD', P .. 'alone:' .. id, task.number, task.number)
    bump(run, 'alone', 1)
    more(run, task.lane, ALONE, 1)
  else
    task.spot = IN_LIST
    call(first and 'LPUSH' or 'RPUSH', ready_list(id, task.lane, task.band), task.number)
    more_ready(run, task.lane, task.band, 1)
  end
  if task.expires > 0 then
    call('ZADD', P .. 'ttl:' .. id, task.expires, task.number)
  end
  call('HSET', P .. 'odd:' .. id, task.number, pack_odd(task))
end

-- An odd task waits no longer; what its list holds of it is passed over later.
local function leave_odd(run, task)
  local id = run.id
  if task.spot == DELAYED then
    call('ZREM', P .. 'delayed:' .. id, task.number)
    bump(run, 'delayed', -1)
  elseif task.spot == BY_ITSELF then
    call('ZREM', P .. 'alone:' .. id, task.number)
    bump(run, 'alone', -1)
    more(run, task.lane, ALONE, -1)
  else
    more_ready(run, task.lane, task.band, -1)
  end
  if task.expires > 0 then
    call('ZREM', P .. 'ttl:' .. id, task.number)
  end
  call('HDEL', P .. 'odd:' .. id, task.number)
end

-- Rows of ended tasks and of dead letters: state, ended, lease, gave_back, lane, attempts, lost, records, the first of them,
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
local function unbury(run, row)
  local _, _, lease, _, lane, attempts, lost, _, _, cause, _, attempt, item = unpack_struct(ROW, row)
  local task = unpack_item(sub(row, item))
  remember(task, attempt)
  task.attempts, task.lost = attempts, lost
  call('HDEL', P .. 'dead:' .. run.id, task.number)
  call('ZREM', P .. 'deadids:' .. run.id, task.number)
  leave_group(run, task.number, lane, cause)
  return task, lease
end

-- A dead letter; the caller keeps the account.
local function bury(run, task, lease, cause, evidence, attempt, ended)
  task.spot = IN_LIST
  call('HSET', P .. 'dead:' .. run.id, task.number, pack_row('dead', lease, task.back, task.lane, task.attempts, task.lost, 0, 0,
    cause, evidence, attempt, pack_odd(task), ended))
  call('ZADD', P .. 'deadids:' .. run.id, task.number, task.number)
  join_group(run, task.number, task.lane, cause, ended or now)
  call('HDEL', P .. 'back:' .. run.id, task.number)
  place(run.id, task.number, DEAD, 0)
end

local EXPIRED = 'its time to live ran out while it waited'

-- An attempt as clients pack it: at, worker, cause, message, status, seconds, size.
local function made_attempt(worker, cause, message)
  return cmsgpack.pack({now, worker, cause, message, 0, 0, 0})
end

local function expire(run, task)
  leave_odd(run, task)
  bump(run, 'ready', -1)
  bump(run, 'dead', 1)
  bury(run, task, 0, 'expired', '', made_attempt('', 'expired', EXPIRED))
end
