-- uses: base
-- register: now, worker, and its status: name, host, pid, version, started_at or 0, seen_at, then what changes; its counters.
-- Answers: what a person asked of it.
local known, status = call('HGET', P .. 'workers', ARGV[2]), cmsgpack.unpack(ARGV[3])
known = known and read_packed(known)
if known then
  for i = 1, 5 do
    status[i] = known[i]
  end
elseif status[5] == 0 then
  status[5] = now
end
status[6] = now
call('HSET', P .. 'workers', ARGV[2], cmsgpack.pack(status))
call('HSET', P .. 'counters', ARGV[2], ARGV[4])
return call('HGET', P .. 'commands', ARGV[2]) or ''
