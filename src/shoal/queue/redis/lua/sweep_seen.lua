-- uses: base lanes wake seen_sets admit
-- sweep_seen: now. Removes a slice of what is remembered no more, and of sets that were cleared.
local BUCKETS, PASS = 200, 3600000000  -- buckets looked at per call, µs between two passes

local function sweep_bucket(seen_set, number)
  local bucket, gone = seen_set.buckets .. number, {}
  local entries = call('HGETALL', bucket)
  for i = 1, #entries, 2 do
    if tonumber(entries[i + 1]) < seen_set.oldest then
      gone[#gone + 1] = entries[i]
    end
  end
  call_many('HDEL', bucket, gone)
  bump(seen_set, 'marks', -#gone)
end

local function sweep_slice(seen_set)
  local buckets = seen_set.size + seen_set.split
  local last = min(seen_set.cursor + BUCKETS, buckets)
  for number = seen_set.cursor, last - 1 do
    sweep_bucket(seen_set, number)
  end
  set(seen_set, 'cursor', last < buckets and last or 0)
  if last == buckets then
    set(seen_set, 'swept_at', int(now))
  end
  save_seen_set(seen_set)
end

for _, id in ipairs(call('HVALS', P .. 'seen_sets')) do
  local seen_set = read_seen_set(id)
  if seen_set.seen_for > 0 and seen_set.swept_at + PASS <= now then
    sweep_slice(seen_set)
    break
  end
end
return call('SRANDMEMBER', P .. 'cleared_sets') or ''
