-- uses: base reply_cache lanes wake seen_sets admit
-- forget_seen: now, request, name, digests. Answers: how many were in the set.
local id, gone = call('HGET', P .. 'seen_sets', ARGV[3]), 0
if id then
  local seen_set = read_seen_set(id)
  for i = 4, #ARGV do
    gone = gone + call('HDEL', bucket_of(seen_set, ARGV[i]), ARGV[i])
  end
  bump(seen_set, 'marks', -gone)
  save_seen_set(seen_set)
end
return cache_reply(gone)
