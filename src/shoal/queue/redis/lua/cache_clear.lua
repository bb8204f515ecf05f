-- uses: base cache
-- cache_clear: now, host, limit, keys. Answers: how many are gone.
local host, limit, keys, gone = ARGV[2], tonumber(ARGV[3]), {}, 0
if #ARGV > 3 then
  for i = 4, min(#ARGV, 3 + limit) do
    keys[#keys + 1] = ARGV[i]
  end
else
  keys = call('ZRANGE', host == '' and P .. 'cache_order' or P .. 'cache_host:' .. host, 0, limit - 1)
end
for _, key in ipairs(keys) do
  local value = call('HGET', P .. 'cache', key)
  if value and (host == '' or call('ZSCORE', P .. 'cache_host:' .. host, key)) then
    cache_remove(key, value)
    gone = gone + 1
  end
end
return gone
