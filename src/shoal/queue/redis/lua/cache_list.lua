-- uses: base
-- cache_list: now, host, before, limit. Answers: keys, newest first.
local order = ARGV[2] == '' and P .. 'cache_order' or P .. 'cache_host:' .. ARGV[2]
return call('ZREVRANGEBYSCORE', order, ARGV[3] == '0' and '+inf' or '(' .. ARGV[3], '-inf', 'LIMIT', 0, ARGV[4])
