-- uses: base memo lanes items leases admit ending changes
-- settle: now, request (needed for parts only), lanes (count, name and pace each), then outcomes, each: id, head, attempt,
-- cause, evidence, same_as, and as many records, found tasks, skipped links (reason, url) and lane changes (name, packed,
-- reason) as its head says.
-- Answers: a letter each (o ok, a already, s stale).
local SAMPLES = 50  -- refused links remembered per run and reason
local RESULTS = {'done', 'retry', 'dead', 'released', 'cancelled', 'part'}
local FIRST_OUTCOME = read_lanes(3)

local function read_outcomes()
  local outcomes, wanted, at = {}, {}, FIRST_OUTCOME
  while at <= #ARGV do
    local lease, result, after, size, records, found, skipped, changes = unpack_struct('>dBddI4I4I4I4', ARGV[at + 1])
    local first_found = at + 6 + records
    local first_skipped = first_found + found
    local first_change = first_skipped + 2 * skipped
    local id, last = ARGV[at], first_change + 3 * changes - 1
    outcomes[#outcomes + 1] = {id = id, lease = lease, result = RESULTS[result], after = after, size = size,
      attempt = ARGV[at + 2], cause = ARGV[at + 3], evidence = ARGV[at + 4], same_as = ARGV[at + 5],
      records = at + 6, found = first_found, skipped = first_skipped, changes = first_change, last = last}
    append(wanted, lease, id)
    at = last + 1
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
local ended_rows, ended_places, record_rows, found_tasks, stopped = {}, {}, {}, {}, {}

-- Tell a repeated answer (already) from one that was overtaken (stale).
local function late_verdict(one, run, number)
  if settled[one.id] == one.lease then
    return 'a'
  end
  if not run then
    return 's'
  end
  local back = call('HGET', P .. 'back:' .. run.id, number)
  if back and tonumber(back) == one.lease then
    return 'a'
  end
  local tag, position = place_of(run.id, number)
  local row
  if tag == ENDED or tag == CALLED_OFF then
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

-- Whether the address a redirect led to is this task's to record; if it is new, it becomes so.
local function is_own(run, number, digest)
  local bucket = bucket_of(run, digest)
  if call('HSETNX', bucket, digest, -number) == 1 then
    mark_seen(run)
    return true
  end
  return math.abs(tonumber(call('HGET', bucket, digest))) == number
end

local function finish(run, one, number, lane, item, state, records, first)
  if byte(item) == 1 then
    append(ended_rows, run.id,
      pack_row(state, one.lease, 0, lane, 1, 0, records, first, one.cause, '', one.attempt, shorn(item, INLINE_BODY)))
  else
    local task = unpack_item(item)
    append(ended_rows, run.id, pack_row(state, one.lease, task.back, lane, task.attempts + 1, task.lost, records, first, one.cause, '',
      one.attempt, shorn(item, #item - #task.body + 1)))
    if task.back > 0 then
      call('HDEL', P .. 'back:' .. run.id, number)
    end
  end
  append(ended_places, run.id, number, pack('>BI4', state == 'done' and ENDED or CALLED_OFF, run.ended))
  bump(run, 'ended', 1)
end

-- Places that lie side by side are written together.
local function write_places(id, places)
  local order, text = {}, {}
  for i = 1, #places, 2 do
    order[#order + 1] = places[i]
    text[places[i]] = places[i + 1]
  end
  table.sort(order)
  local at = 1
  while at <= #order do
    local first, texts = order[at], {}
    repeat
      texts[#texts + 1] = text[order[at]]
      at = at + 1
    until at > #order or order[at] ~= order[at - 1] + 1 or order[at] % PLACES == 0
    call('SETRANGE', P .. 'place:' .. id .. ':' .. floor(first / PLACES), first % PLACES * 5, table.concat(texts))
  end
end

local function done(run, one, number, lane, item, late)
  local records, first = 0, 0
  if one.same_as == '' or is_own(run, number, one.same_as) then
    records = one.found - one.records
    first = records > 0 and run.records + 1 or 0
    local mark = records > 0 and pack('>I4', number)
    for at = one.records, one.found - 1 do
      append(record_rows, run.id, mark .. ARGV[at])
    end
    bump(run, 'records', records)
    if not late and one.skipped > one.found then
      append(found_tasks, run.id, one)
    end
  end
  finish(run, one, number, lane, item, 'done', records, first)
  bump(run, 'done', 1)
  bump(run, 'cancelled', late and -1 or 0)
end

-- Retry or release: back to ready, alone if it has lost a worker before.
local function put_back(run, one, task)
  task.back = one.lease
  if one.result == 'retry' then
    task.attempts = task.attempts + 1
    task.due = now + one.after
    remember(task, one.attempt)
    bump(run, 'retries', 1)
  else
    task.due = min(task.due, now)
  end
  bump(run, 'ready', 1)
  wait_odd(run, task, one.result == 'released')
  call('HSET', P .. 'back:' .. run.id, task.number, int(one.lease))
  place(run.id, task.number, ODD, task.lane)
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
    touch(lane)
    bump(run, 'leased', -1)
  end
  if one.result == 'done' then
    done(run, one, number, lane, item, late)
  elseif late or one.result == 'cancelled' then
    finish(run, one, number, lane, item, 'cancelled', 0, 0)
    bump(run, 'cancelled', late and 0 or 1)
  else
    local task = unpack_item(item)
    task.lane, task.band = lane, band
    if one.result == 'dead' then
      task.attempts = task.attempts + 1
      bury(run, task, one.lease, one.cause, one.evidence, one.attempt)
      bump(run, 'dead', 1)
    else
      put_back(run, one, task)
    end
  end
  for at = one.changes, one.last, 3 do
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
  else
    verdicts[i] = 'o'
    apply(run, one, task, mine)
    if one.result ~= 'part' then
      held[one.lease][one.id] = false
    end
  end
end
for number, rows in pairs(ended_rows) do
  many('RPUSH', P .. 'ended:' .. number, rows)
  write_places(number, ended_places[number])
end
for number, rows in pairs(record_rows) do
  many('RPUSH', P .. 'records:' .. number, rows)
end
for number, finders in pairs(found_tasks) do
  local run = get_run(number)
  if takes_work(run) then
    for _, one in ipairs(finders) do
      admit(run, one.found, one.skipped - 1, {})
    end
  end
end
for lease, tasks in pairs(gone) do
  local key = P .. 'lease:' .. int(lease)
  many('HDEL', key, tasks)
  if call('EXISTS', key) == 0 then
    drop_lease(int(lease))
  end
end
for run in pairs(stopped) do
  stop_at_limit(run)
end
flush()
return memorise(table.concat(verdicts))
