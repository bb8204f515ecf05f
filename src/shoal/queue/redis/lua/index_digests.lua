-- uses: base lanes wake failing items
-- index_digests: now, run, the next bucket, how many marks there were at the first. Digests by number, for export_run.
-- Answers: the bucket to go on with (-1: done, -2: the run has changed meanwhile), how many marks there are.
local BUCKETS, KEPT = 100, 3600
local run, bucket = get_run(tonumber(ARGV[2])), tonumber(ARGV[3])
if not run then
  return {-1, 0}
end
local index, aliases, written = P .. 'index:' .. run.id, P .. 'aliases:' .. run.id, {}
if bucket == 0 then
  call('UNLINK', index, aliases)  -- the digest of a number never changes
elseif run.marks ~= tonumber(ARGV[4]) then
  return {-2, 0}
end
local last = 2 ^ run.level + run.split - 1
for at = bucket, min(last, bucket + BUCKETS - 1) do
  local entries = call('HGETALL', P .. 'seen:' .. run.id .. ':' .. at)
  for i = 1, #entries, 2 do
    local digest, number = entries[i], tonumber(entries[i + 1])
    if number > 0 then
      local key = P .. 'digests:' .. run.id .. ':' .. floor(number / LOCATIONS_PER_KEY)
      call('SETRANGE', key, number % LOCATIONS_PER_KEY * DIGESTS, digest)
      written[key] = true
    else
      call('HSET', aliases, -number, (call('HGET', aliases, -number) or '') .. digest)
    end
  end
end
written[aliases] = true
for key in pairs(written) do
  call('EXPIRE', key, KEPT)
end
if bucket + BUCKETS <= last then
  return {bucket + BUCKETS, run.marks}
end
call('SET', index, run.marks, 'EX', KEPT / 2)  -- it goes before what it speaks of
return {-1, run.marks}
