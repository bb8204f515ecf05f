-- uses: base lanes wake failing items
-- expire: now, how many at most, runs. Waiting tasks of these whose time is over are dead. Answers: whether there may be more.
local most, more = tonumber(ARGV[2]), 0
for i = 3, #ARGV do
  local state = call('HGET', P .. 'run:' .. ARGV[i], 'state')
  if (state == 'running' or state == 'paused') and call('EXISTS', P .. 'ttl:' .. ARGV[i]) == 1 and expire_some(get_run(tonumber(ARGV[i])), most) == most then
    more = 1
  end
end
flush()
return more
