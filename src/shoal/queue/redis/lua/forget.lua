-- uses: base
-- forget: now, worker ('' for all that were silent), the longest silence.
local gone = {ARGV[2]}
if ARGV[2] == '' then
  local known, last = call('HGETALL', P .. 'workers'), now - tonumber(ARGV[3])
  gone = {}
  for i = 1, #known, 2 do
    if cmsgpack.unpack(known[i + 1])[6] < last then
      gone[#gone + 1] = known[i]
    end
  end
end
call_many('HDEL', P .. 'workers', gone)
call_many('HDEL', P .. 'commands', gone)
call_many('HDEL', P .. 'counters', gone)
return #gone
