-- uses: base lanes wake failing items seen_sets admit
-- import_run: now, run, lanes (count, name and pace each), how many records, the records (seq, then a row each), how many
-- counters, the counters (name and value each), how many reasons, refused links by reason (reason, count each), how many of
-- what outcomes counted, and that (name, number each), then tasks, each: header, history, cause, evidence, digests of aliases, body.
-- Answers: a word (unknown, busy, missing, ok), then what it needs.
local READY, DONE, DEAD_LETTER, CANCELLED = 1, 2, 3, 4  -- 5: only its identity is left; 6: likewise, of a dead letter
local HEAD = '>I4BHBHBdddBdI4I4Bc10'
local run = get_run(tonumber(ARGV[2]))
if not run then
  return {'unknown'}
end
if run.state ~= 'paused' then
  return {'busy', run.name, run.state}
end
local at = read_lanes(3)

local function import_records()
  local first, last, rows = at + 1, at + tonumber(ARGV[at]), {}
  for i = first, last do
    local seq = unpack_struct('>d', ARGV[i])
    if #rows == 0 and seq > run.records + 1 and run.records == run.trimmed then
      set(run, 'trimmed', seq - 1)  -- those before are elsewhere
      set(run, 'records', seq - 1)
    end
    if seq > run.records + 1 then
      return run.records + 1
    elseif seq == run.records + 1 then
      rows[#rows + 1] = sub(ARGV[i], 9)
      bump(run, 'records', 1)
    end
  end
  call_many('RPUSH', P .. 'records:' .. run.id, rows)
  at = last + 1
end

local missing = import_records()
if missing then
  return {'missing', missing}
end

local function import_counters()
  for i = 1, tonumber(ARGV[at]) do
    local field, value = ARGV[at + i * 2 - 1], tonumber(ARGV[at + i * 2])
    if field == 'trimmed' and value > run.records then
      set(run, 'records', value)
    elseif field == 'trimmed' and value > run.trimmed then
      call('LTRIM', P .. 'records:' .. run.id, value - run.trimmed, -1)
    end
    set(run, field, max(run[field], value))
  end
  at = at + 1 + 2 * tonumber(ARGV[at])
end

import_counters()
for i = 1, tonumber(ARGV[at]) do
  local reason, count = ARGV[at + i * 2 - 1], tonumber(ARGV[at + i * 2])
  local kept = tonumber(call('HGET', P .. 'skips:' .. run.id, reason) or 0)
  call('HSET', P .. 'skips:' .. run.id, reason, max(kept, count))
end
at = at + 1 + 2 * tonumber(ARGV[at])

if ARGV[at] ~= '-' then
  call('DEL', P .. 'counted:' .. run.id)
  for i = 1, tonumber(ARGV[at]) do
    call('HSET', P .. 'counted:' .. run.id, ARGV[at + i * 2 - 1], ARGV[at + i * 2])
  end
  at = at + 2 * tonumber(ARGV[at])
end
at = at + 1

local lists = {}

local function wait_again(task, fresh)
  local line = task.lane * LINES + task.band
  bump(run, 'ready', 1)
  if fresh then
    append(lists, line, pack('>BI4d', 1, task.number, task.added) .. task.body)
    set_location(run.id, task.number, WAITING, task.lane)
  else
    push(run, lists, line)
    enqueue_stored(run, task, false)
    set_location(run.id, task.number, STORED, task.lane)
  end
end

local function end_again(task, state, ended, records, first, cause)
  local item, attempt = '', ''
  if task.count <= 1 then
    item = pack('>BI4d', 1, task.number, task.added) .. task.body
    attempt = sub(task.history, 5)
  else
    item = pack_stored(task)
  end
  call('RPUSH', P .. 'ended:' .. run.id,
    pack_row(state, 0, 0, task.lane, task.attempts, task.lost, records, first, cause, '', attempt, item, ended))
  set_location(run.id, task.number, state == 'done' and ENDED or CANCELLED_ROW, run.ended)
  bump(run, 'ended', 1)
  bump(run, state, 1)
  bump(run, 'aside', state == 'done' and is_aside(byte(task.body)) and 1 or 0)
end

local function take(number, state, index, band, attempts, lost, added, delay, ttl, mortal, ended, records, first, count)
  local fresh = number >= run.next_task and attempts == 0 and lost == 0 and delay <= 0 and mortal == 0 and count == 0
  set(run, 'next_task', max(run.next_task, number + 1))
  bump(run, 'seen', 1)
  if not names[index + 1] then
    bump(run, state == 6 and 'discarded' or 'cancelled', 1)
    set_location(run.id, number, state == 6 and DISCARDED or REMOVED, 0)
    return
  end
  ensure_run_lane(run, index + 1)
  local task = {number = number, added = added, wait_mode = IN_LIST, band = band, lane = ids[index + 1], attempts = attempts, lost = lost,
    due = delay > 0 and now + delay or min(added, now), expires = mortal == 1 and max(1, now + ttl) or 0, back = 0,
    count = count, history = ARGV[at + 1], body = ARGV[at + 5]}
  if state == READY then
    wait_again(task, fresh)
  elseif state == DONE then
    end_again(task, 'done', ended, records, first, ARGV[at + 2])
  elseif state == CANCELLED then
    end_again(task, 'cancelled', ended, 0, 0, ARGV[at + 2])
  elseif state == DEAD_LETTER then
    dead_letter(run, task, 0, ARGV[at + 2], ARGV[at + 3], '', ended)
    bump(run, 'dead', 1)
  end
end

local seen_set
while at <= #ARGV do
  local told = {unpack_struct(HEAD, ARGV[at])}
  local number, digest = told[1], told[15]
  if call('HSETNX', bucket_of(run, digest), digest, number) == 1 then
    mark_seen(run)
    take(unpack(told, 1, 14))
    if run.seen_set ~= '' then
      seen_set = seen_set or seen_set_of(run)
      join_seen_set(seen_set, digest, true)
    end
  end
  for i = 1, #ARGV[at + 4], DIGESTS do
    local alias = sub(ARGV[at + 4], i, i + DIGESTS - 1)
    if call('HSETNX', bucket_of(run, alias), alias, -number) == 1 then
      mark_seen(run)
    end
  end
  at = at + 6
end
for line in pairs(lists) do
  push(run, lists, line)
end
save_seen_set(seen_set)
flush()
return {'ok'}
