-- uses: base reply_cache lanes wake seen_sets
-- clear_seen: now, request, name. Nobody finds the set any more. Answers: its number and how many are in it.
local id = call('HGET', P .. 'seen_sets', ARGV[3])
if not id then
  return cache_reply({0, 0})
end
call('HDEL', P .. 'seen_sets', ARGV[3])
call('HSET', P .. 'seen_set:' .. id, 'cursor', 0)
call('SADD', P .. 'cleared_sets', id)
return cache_reply({tonumber(id), read_seen_set(id).marks})
