-- uses: base
-- forget: now, worker ('' for all that were silent), the longest silence.
local gone = {ARGV[2]}
if ARGV[2] == '' then
  local known, last = call('HGETALL', P .. 'workers'), now - tonumber(ARGV[3])
  gone = {}
  for i = 1, #known, 2 do
    local status = read_packed(known[i + 1])
    if not status or (tonumber(status[6]) or 0) < last then
      gone[#gone + 1] = known[i]
    end
  end
end
call_many('HDEL', P .. 'workers', gone)
call_many('HDEL', P .. 'commands', gone)
call_many('HDEL', P .. 'counters', gone)
return #gone
