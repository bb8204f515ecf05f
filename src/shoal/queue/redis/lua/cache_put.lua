-- uses: base cache
-- cache_put: now, key, host, size, length of the URL, rest of the value ('' takes nothing), bound, kept, most.
local key, host = ARGV[2], ARGV[3]
local old = call('HGET', P .. 'cache', key)
if old then
  cache_remove(key, old)
end
if ARGV[6] ~= '' then
  local seq = call('HINCRBY', P .. 'cache_totals', 'seq', 1)
  local size = tonumber(ARGV[4])
  call('HSET', P .. 'cache', key, pack(HEAD, now, size, #host, tonumber(ARGV[5])) .. host .. ARGV[6])
  call('ZADD', P .. 'cache_order', seq, key)
  call('ZADD', P .. 'cache_host:' .. host, seq, key)
  call('HINCRBY', P .. 'cache_totals', 'bytes', size)
  cache_push_out(tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]))
end
return 1
