-- Admit: new tasks into a run, each at most once. The seen-set is a hash that grows bucket by bucket (linear
-- hashing), so that every bucket stays a small packed one: ten bytes of digest and the task's number.
local BUCKET = 32  -- entries per bucket, on the average

local function bucket_number(run, digest)
  local a, b, c, d = byte(digest, 1, 4)
  local hash, size = ((a * 256 + b) * 256 + c) * 256 + d, run.size
  if not size then
    size = 2 ^ run.level
    run.size, run.buckets = size, P .. 'seen:' .. run.id .. ':'
  end
  local bucket = hash % size
  if bucket < run.split then
    bucket = hash % (2 * size)
  end
  return bucket
end

local function bucket_of(run, digest)
  local number = bucket_number(run, digest)
  return run.buckets .. number
end

local function split_bucket(run)
  local old, size = run.split, run.size
  local from, to = run.buckets .. old, run.buckets .. (old + size)
  local entries, gone, moved = call('HGETALL', from), {}, {}
  set(run, 'split', old + 1)
  for i = 1, #entries, 2 do
    if bucket_number(run, entries[i]) ~= old then
      gone[#gone + 1] = entries[i]
      moved[#moved + 1] = entries[i]
      moved[#moved + 1] = entries[i + 1]
    end
  end
  call_many('HDEL', from, gone)
  call_many('HSET', to, moved)
  if run.split == size then
    set(run, 'level', run.level + 1)
    set(run, 'split', 0)
    run.size = 2 * size
  end
end

local function mark_seen(run)
  bump(run, 'marks', 1)
  if run.marks > BUCKET * (run.size + run.split) then
    split_bucket(run)
  end
end

-- The lanes this call speaks of: names, ids once known, and what is asked of them (false: nothing).
local names, ids, paces = {}, {}, {}

local function read_lanes(at)
  local count = tonumber(ARGV[at])
  for i = 1, count do
    names[i] = ARGV[at + i * 2 - 1]
    paces[i] = ARGV[at + i * 2] ~= '' and {unpack_struct('>dI4', ARGV[at + i * 2])} or false
  end
  local found = gather('HMGET', P .. 'lane_ids', names)
  for i = 1, count do
    ids[i] = found[i] and tonumber(found[i])
  end
  return at + 1 + 2 * count
end

local asked = {}  -- by run: lanes that were seen to in this call

local function ensure_run_lane(run, index)
  local done = asked[run.id]
  if not done then
    done = {}
    asked[run.id] = done
    local known = {}
    for i = 1, #names do
      known[#known + 1] = ids[i] or nil
    end
    load_run_lanes(run, known)
  end
  if done[index] then
    return
  end
  done[index] = true
  ids[index] = ids[index] or find_lane(names[index]) or new_lane(names[index])  -- a change may have made it by now
  local run_lane, pace = get_run_lane(run, ids[index]), paces[index]
  if not run_lane or (pace and (run_lane[PACE] ~= pace[1] or run_lane[MOST] ~= pace[2])) then
    set_run_pace(run, ids[index], pace and pace[1] or 1000000, pace and pace[2] or 2)
  end
end

local function push(run, lists, place)
  local list, line = lists[place], place % LINES
  if list then
    local lane = (place - line) / LINES
    call_many('RPUSH', ready_list(run.id, lane, line), list)
    add_ready(run, lane, line, #list)
    lists[place] = nil
  end
end

-- Whether a task that is new to its run may join it: not if another run of its seen-set has had it.
local function join_seen_set(seen_set, digest, revisit)
  local bucket = bucket_of(seen_set, digest)
  if call('HSETNX', bucket, digest, seen_set.hour) == 1 then
    mark_seen(seen_set)
  elseif seen_set.oldest > 0 and tonumber(call('HGET', bucket, digest)) < seen_set.oldest then
    call('HSET', bucket, digest, seen_set.hour)
  else
    return revisit
  end
  set(seen_set, 'changed_at', int(now))
  return true
end

-- Tasks ARGV[first..last], each a header (lane, line, delay, ttl, digest) and a body; 32768 is added to the lane of
-- what is to be revisited. Answers: a letter each (a added, k known, s seen). `take`, where it is given, says of a new
-- task that is due whether it is leased at once (l) and does not wait at all.
local function admit(run, first, last, answers, take)
  local lists, locations = {}, {}
  local seen_set  -- of the run, once it is needed
  local from, number = run.next_task, run.next_task
  for at = first, last do
    local index, band, delay, ttl, digest, body = unpack_struct('>HBddc10', ARGV[at])
    local revisit = index >= 32768
    index = index % 32768 + 1
    if paces[index] then
      ensure_run_lane(run, index)
    end
    local is_new = run.seen_set ~= '' and call('HEXISTS', bucket_of(run, digest), digest) == 0
    if is_new then
      seen_set = seen_set or seen_set_of(run)
    end
    if is_new and not join_seen_set(seen_set, digest, revisit) then
      answers[#answers + 1] = 's'
    elseif call('HSETNX', bucket_of(run, digest), digest, number) == 0 then
      answers[#answers + 1] = 'k'
    else
      ensure_run_lane(run, index)
      mark_seen(run)
      local lane = ids[index]
      local line, letter = lane * LINES + band, 'a'
      if delay > 0 or ttl >= 0 then
        local task = {number = number, added = now, wait_mode = IN_LIST, band = band, lane = lane, attempts = 0, lost = 0, due = now + max(0, delay),
          expires = ttl >= 0 and now + ttl or 0, back = 0, count = 0, history = '', body = sub(ARGV[at], body)}
        if take and delay <= 0 and ttl > 0 and take(number, lane, band, pack_stored(task)) then
          letter = 'l'
        else
          push(run, lists, line)  -- what came before it stays before it
          enqueue_stored(run, task)
        end
        locations[#locations + 1] = pack('>BI4', STORED, lane)
      else
        local item = pack('>BI4d', 1, number, now) .. sub(ARGV[at], body)
        if take and take(number, lane, band, item) then
          letter = 'l'
        else
          local list = lists[line]
          if not list then
            list = {}
            lists[line] = list
          end
          list[#list + 1] = item
        end
        locations[#locations + 1] = pack('>BI4', WAITING, lane)
      end
      answers[#answers + 1] = letter
      number = number + 1
    end
  end
  for line in pairs(lists) do
    push(run, lists, line)
  end
  local at = 1
  while at <= #locations do  -- the locations of new tasks lie side by side
    local first_number = from + at - 1
    local room = min(LOCATIONS_PER_KEY - first_number % LOCATIONS_PER_KEY, #locations - at + 1)
    call('SETRANGE', P .. 'location:' .. run.id .. ':' .. floor(first_number / LOCATIONS_PER_KEY), first_number % LOCATIONS_PER_KEY * 5,
      table.concat(locations, '', at, at + room - 1))
    at = at + room
  end
  save_seen_set(seen_set)
  set(run, 'next_task', number)
  bump(run, 'seen', number - from)
  bump(run, 'ready', number - from)
end
