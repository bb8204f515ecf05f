-- uses: base reply_cache lanes wake failing items leases seen_sets admit end_run lane_changes outbox run_counters
-- settle: now, request (needed for parts only), lanes (count, name and pace each), what all outcomes count together (run, then
-- names and numbers, each), then outcomes, each: id, header, attempt,
-- cause, evidence, redirect_digest, keys of the records (side by side, or none), and as many records, found tasks, skipped links (reason, url), lane changes (name, packed,
-- reason) and entries of the outbox (kind, key, data) as its header says, and what it counts, if it says so.
-- Answers: a letter each (o ok, a already, s stale).

-- The whole script is a function: Lua allows no more than 200 names at the top, and most are taken by the pieces above.
local function settle()

local SAMPLES = 50  -- refused links remembered per run and reason
local RESULTS = {'done', 'retry', 'dead', 'released', 'cancelled', 'part'}
local TOTALS = read_lanes(3)
local NO_KEY = string.rep('\0', DIGESTS)

local function read_outcomes()
  local outcomes, wanted, at = {}, {}, TOTALS + 1
  while at <= #ARGV do
    local lease, result, after, size, records, found, skipped, changes, entries, counts = unpack_struct('>dBddI4I4I4I4I4B', ARGV[at + 1])
    local first_found = at + 7 + records
    local first_skipped = first_found + found
    local first_change = first_skipped + 2 * skipped
    local first_entry = first_change + 3 * changes
    local id, last = ARGV[at], first_entry + 3 * entries - 1
    outcomes[#outcomes + 1] = {id = id, lease = lease, result = RESULTS[result], after = after, size = size,
      attempt = ARGV[at + 2], cause = ARGV[at + 3], evidence = ARGV[at + 4], redirect_digest = ARGV[at + 5],
      keys = ARGV[at + 6], records = at + 7, found = first_found, skipped = first_skipped, changes = first_change, entries = first_entry, last = last,
      counters = counts == 1 and ARGV[last + 1]}
    append(wanted, lease, id)
    at = last + 1 + counts
  end
  return outcomes, wanted
end

local function read_held(wanted)
  local held = {}
  for lease, tasks in pairs(wanted) do
    held[lease] = {}
    for i, value in ipairs(gather('HMGET', P .. 'lease:' .. int(lease), tasks)) do
      held[lease][tasks[i]] = value
    end
  end
  return held
end

local settled, gone = {}, {}  -- in this call: id -> lease; lease -> ids
local all_taken = true  -- with their records
local ended_rows, ended_locations, record_rows, found_tasks, leavers, stopped = {}, {}, {}, {}, {}, {}

-- Tell a repeated answer (already) from one that was overtaken (stale).
local function late_verdict(one, run, number)
  if settled[one.id] == one.lease then
    return 'a'
  end
  if not run then
    return 's'
  end
  local back = call('HGET', P .. 'returned:' .. run.id, number)
  if back and tonumber(back) == one.lease then
    return 'a'
  end
  local tag, position = location_of(run.id, number)
  local row
  if tag == ENDED or tag == CANCELLED_ROW then
    row = call('LINDEX', P .. 'ended:' .. run.id, position)
  elseif tag == DEAD then
    row = call('HGET', P .. 'dead:' .. run.id, number)
  end
  if row then
    local lease, given_back = leases_of_row(row)
    if lease == one.lease or given_back == one.lease then
      return 'a'
    end
  end
  bump(run, 'stale', 1)
  return 's'
end

local function skip(run, one)
  for at = one.skipped, one.changes - 1, 2 do
    local reason, url = ARGV[at], ARGV[at + 1]
    call('HINCRBY', P .. 'skips:' .. run.id, reason, 1)
    local kept = tonumber(call('HGET', P .. 'sampled:' .. run.id, reason) or 0)
    if kept < SAMPLES and call('SADD', P .. 'samples:' .. run.id, cmsgpack.pack({reason, url})) == 1 then
      call('HINCRBY', P .. 'sampled:' .. run.id, reason, 1)
    end
  end
end

-- Links that another run of the same seen-set has had.
local function count_seen(run, answers)
  local count = 0
  for _, answer in ipairs(run.seen_set ~= '' and answers or {}) do
    count = count + (answer == 's' and 1 or 0)
  end
  if count > 0 then
    call('HINCRBY', P .. 'skips:' .. run.id, 'seen', count)
  end
end

-- Whether a record's key, or the URL a redirect led to, is this task's; if it is new, it becomes so.
local function is_own(run, number, digest)
  local bucket = bucket_of(run, digest)
  if call('HSETNX', bucket, digest, -number) == 1 then
    mark_seen(run)
    return true
  end
  return math.abs(tonumber(call('HGET', bucket, digest))) == number
end

-- Whether no other task has the key of a record, counted from 0.
local function is_unclaimed(run, number, one, index)
  local key = sub(one.keys, index * DIGESTS + 1, (index + 1) * DIGESTS)
  return key == NO_KEY or is_own(run, number, key)
end

local function finish(run, one, number, lane, item, state, records, first)
  local flags
  if byte(item) == 1 then
    flags = byte(item, INLINE_BODY)
    append(ended_rows, run.id,
      pack_row(state, one.lease, 0, lane, 1, 0, records, first, one.cause, '', one.attempt, strip_work(item, INLINE_BODY)))
  else
    local task = unpack_item(item)
    flags = byte(task.body)
    append(ended_rows, run.id, pack_row(state, one.lease, task.back, lane, task.attempts + 1, task.lost, records, first, one.cause, '',
      one.attempt, strip_work(item, #item - #task.body + 1)))
    if task.back > 0 then
      call('HDEL', P .. 'returned:' .. run.id, number)
    end
  end
  append(ended_locations, run.id, number, pack('>BI4', state == 'done' and ENDED or CANCELLED_ROW, run.ended))
  bump(run, 'ended', 1)
  if state == 'done' and is_aside(flags) then
    bump(run, 'aside', 1)
  end
end

-- Places that lie side by side are written together.
local function write_locations(id, locations)
  local order, text = {}, {}
  for i = 1, #locations, 2 do
    order[#order + 1] = locations[i]
    text[locations[i]] = locations[i + 1]
  end
  table.sort(order)
  local at = 1
  while at <= #order do
    local first, texts = order[at], {}
    repeat
      texts[#texts + 1] = text[order[at]]
      at = at + 1
    until at > #order or order[at] ~= order[at - 1] + 1 or order[at] % LOCATIONS_PER_KEY == 0
    call('SETRANGE', P .. 'location:' .. id .. ':' .. floor(first / LOCATIONS_PER_KEY), first % LOCATIONS_PER_KEY * 5, table.concat(texts))
  end
end

local function done(run, one, number, lane, item, late)
  local records, first = 0, 0
  if one.redirect_digest == '' or is_own(run, number, one.redirect_digest) then
    local mark = pack('>I4', number)
    for at = one.records, one.found - 1 do
      if one.keys == '' or is_unclaimed(run, number, one, at - one.records) then
        append(record_rows, run.id, mark .. ARGV[at])
        records = records + 1
      end
    end
    first = records > 0 and run.records + 1 or 0
    bump(run, 'records', records)
    if not late and one.skipped > one.found then
      append(found_tasks, run.id, one)
    end
    if not late and one.last >= one.entries then
      append(leavers, run.id, one)
    end
  else
    one.dropped, all_taken = true, false
  end
  forget_failures_of(unpack_item(item).body)
  finish(run, one, number, lane, item, 'done', records, first)
  bump(run, 'done', 1)
  bump(run, 'cancelled', late and -1 or 0)
end

-- Retry or release: back to ready, alone if it has lost a worker before.
local function put_back(run, one, task)
  local in_place = one.result == 'released' and one.after <= 0
  task.back = one.lease
  if not in_place then
    task.due = now + one.after
  end
  if one.result == 'retry' then
    task.attempts = task.attempts + 1
    append_attempt(task, one.attempt)
    bump(run, 'retries', 1)
  end
  bump(run, 'ready', 1)
  enqueue_stored(run, task, in_place)
  call('HSET', P .. 'returned:' .. run.id, task.number, int(one.lease))
  set_location(run.id, task.number, STORED, task.lane)
end

-- Whether a task that was cancelled with its run waits again if that is undone.
local function is_kept(run, one, item)
  return (one.result == 'released' or (one.result == 'retry' and not is_auto(unpack_item(item)))) and keeps_tasks(run)
end

local function apply(run, one, number, held)
  local late = one.lease <= run.cut
  if one.changes > one.skipped then
    skip(run, one)
  end
  if one.result == 'part' then
    if not late and one.skipped > one.found then
      append(found_tasks, run.id, one)
    end
    return
  end
  local _, lane, band, at = unpack_struct('>dI4B', held)
  local item = sub(held, at)
  bump(run, 'bytes', one.size)
  append(gone, one.lease, one.id)
  settled[one.id] = one.lease
  stopped[run] = true
  if not late then
    local host = get_lane(lane)
    host[FLIGHT] = host[FLIGHT] - 1
    touch(lane, true)
    bump(run, 'leased', -1)
  end
  if one.result == 'done' then
    done(run, one, number, lane, item, late)
  elseif late and is_kept(run, one, item) then
    local task = unpack_item(item)
    task.lane, task.band = lane, band
    keep_returned(run, function() put_back(run, one, task) end)
  elseif late or one.result == 'cancelled' then
    finish(run, one, number, lane, item, 'cancelled', 0, 0)
    bump(run, 'cancelled', late and 0 or 1)
  else
    local task = unpack_item(item)
    task.lane, task.band = lane, band
    if one.result == 'dead' or (one.result == 'retry' and is_auto(task)) then
      task.attempts = task.attempts + 1
      dead_letter(run, task, one.lease, one.cause, one.evidence, one.attempt)
      bump(run, 'dead', 1)
    else
      put_back(run, one, task)
    end
  end
  for at = one.changes, one.entries - 1, 3 do
    change_lane(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  end
end

local outcomes, wanted = read_outcomes()
local held, verdicts = read_held(wanted), {}
for i, one in ipairs(outcomes) do
  local number, task = split_id(one.id)
  local run, mine = get_run(number), held[one.lease][one.id]
  if not run or not mine then
    verdicts[i] = late_verdict(one, run, task)
    all_taken = false
  else
    verdicts[i] = 'o'
    apply(run, one, task, mine)
    if one.result ~= 'part' then
      held[one.lease][one.id] = false
    end
  end
end
for number, rows in pairs(ended_rows) do
  call_many('RPUSH', P .. 'ended:' .. number, rows)
  write_locations(number, ended_locations[number])
end
for number, rows in pairs(record_rows) do
  call_many('RPUSH', P .. 'records:' .. number, rows)
end
for number, finders in pairs(found_tasks) do
  local run = get_run(number)
  if accepts_tasks(run) then
    local answers = {}
    for _, one in ipairs(finders) do
      admit(run, one.found, one.skipped - 1, answers)
    end
    count_seen(run, answers)
  end
end
for number, each in pairs(leavers) do
  local run = get_run(number)
  if accepts_tasks(run) then
    for _, one in ipairs(each) do
      add_entries(run, one.entries, one.last)
    end
  end
end
if ARGV[TOTALS] ~= '' and all_taken then
  for _, total in ipairs(cmsgpack.unpack(ARGV[TOTALS])) do
    count_up(total[1], total[2], true)
  end
elseif ARGV[TOTALS] ~= '' then
  for i, one in ipairs(outcomes) do
    if verdicts[i] == 'o' and one.counters and one.result ~= 'part' then
      count_up(split_id(one.id), cmsgpack.unpack(one.counters), one.result == 'done' and not one.dropped)
    end
  end
end
for lease, tasks in pairs(gone) do
  local key = P .. 'lease:' .. int(lease)
  call_many('HDEL', key, tasks)
  if call('EXISTS', key) == 0 then
    drop_lease(int(lease))
  end
end
for run in pairs(stopped) do
  stop_at_limit(run)
end
flush()
return cache_reply(table.concat(verdicts))

end

return settle()
