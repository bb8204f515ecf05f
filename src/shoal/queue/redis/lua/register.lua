-- uses: base
-- register: now, worker, and its mark: name, host, pid, version, started_at or 0, seen_at, then what changes; its figures.
-- Answers: what a person asked of it.
local known, mark = call('HGET', P .. 'workers', ARGV[2]), cmsgpack.unpack(ARGV[3])
if known then
  known = cmsgpack.unpack(known)
  for i = 1, 5 do
    mark[i] = known[i]
  end
elseif mark[5] == 0 then
  mark[5] = now
end
mark[6] = now
call('HSET', P .. 'workers', ARGV[2], cmsgpack.pack(mark))
call('HSET', P .. 'figures', ARGV[2], ARGV[4])
return call('HGET', P .. 'asked', ARGV[2]) or ''
