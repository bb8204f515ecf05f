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
  many('HDEL', from, gone)
  many('HSET', to, moved)
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
  local found = gather('HMGET', P .. 'hosts', names)
  for i = 1, count do
    ids[i] = found[i] and tonumber(found[i])
  end
  return at + 1 + 2 * count
end

local asked = {}  -- by run: lanes that were seen to in this call

local function see_to(run, index)
  local done = asked[run.id]
  if not done then
    done = {}
    asked[run.id] = done
    local known = {}
    for i = 1, #names do
      known[#known + 1] = ids[i] or nil
    end
    load_heads(run, known)
  end
  if done[index] then
    return
  end
  done[index] = true
  ids[index] = ids[index] or find_lane(names[index]) or new_lane(names[index])  -- a change may have made it by now
  local head, pace = get_head(run, ids[index]), paces[index]
  if not head or (pace and (head[PACE] ~= pace[1] or head[MOST] ~= pace[2])) then
    ask(run, ids[index], pace and pace[1] or 1000000, pace and pace[2] or 2)
  end
end

local function push(run, lists, line)
  local list, band = lists[line], line % BANDS
  if list then
    local lane = (line - band) / BANDS
    many('RPUSH', ready_list(run.id, lane, band), list)
    more_ready(run, lane, band, #list)
    lists[line] = nil
  end
end

-- Tasks ARGV[first..last], each a head (lane, band, delay, ttl, digest) and a body. Answers: a letter each.
local function admit(run, first, last, answers)
  local lists, places = {}, {}
  local from, number = run.next_task, run.next_task
  for at = first, last do
    local index, band, delay, ttl, digest, body = unpack_struct('>HBddc10', ARGV[at])
    index = index + 1
    if paces[index] then
      see_to(run, index)
    end
    if call('HSETNX', bucket_of(run, digest), digest, number) == 0 then
      answers[#answers + 1] = 'k'
    else
      see_to(run, index)
      mark_seen(run)
      local lane = ids[index]
      local line = lane * BANDS + band
      if delay > 0 or ttl >= 0 then
        push(run, lists, line)  -- what came before it stays before it
        wait_odd(run, {number = number, added = now, band = band, lane = lane, attempts = 0, lost = 0, due = now + max(0, delay),
          expires = ttl >= 0 and now + ttl or 0, back = 0, count = 0, history = '', body = sub(ARGV[at], body)})
        places[#places + 1] = pack('>BI4', ODD, lane)
      else
        local list = lists[line]
        if not list then
          list = {}
          lists[line] = list
        end
        list[#list + 1] = pack('>BI4d', 1, number, now) .. sub(ARGV[at], body)
        places[#places + 1] = pack('>BI4', WAITS, lane)
      end
      answers[#answers + 1] = 'a'
      number = number + 1
    end
  end
  for line in pairs(lists) do
    push(run, lists, line)
  end
  local at = 1
  while at <= #places do  -- the places of new tasks lie side by side
    local first_number = from + at - 1
    local room = min(PLACES - first_number % PLACES, #places - at + 1)
    call('SETRANGE', P .. 'place:' .. run.id .. ':' .. floor(first_number / PLACES), first_number % PLACES * 5,
      table.concat(places, '', at, at + room - 1))
    at = at + room
  end
  set(run, 'next_task', number)
  bump(run, 'seen', number - from)
  bump(run, 'ready', number - from)
end
