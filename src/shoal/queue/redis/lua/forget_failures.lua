-- uses: base reply_cache
-- forget_failures: now, request, whether all, keys. Answers: how many were known.
local gone = 0
if ARGV[3] == '1' then
  gone = call('HLEN', P .. 'failing')
  call('UNLINK', P .. 'failing', P .. 'failing_order')
end
for i = 4, #ARGV do
  gone = gone + call('HDEL', P .. 'failing', ARGV[i])
  call('ZREM', P .. 'failing_order', ARGV[i])
end
return cache_reply(gone)
