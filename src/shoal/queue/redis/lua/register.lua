-- uses: base
-- register: now, worker, and its mark: name, host, pid, version, started_at or 0, seen_at, state, doing.
local known, mark = call('HGET', P .. 'workers', ARGV[2]), cmsgpack.unpack(ARGV[3])
if known then
  known = cmsgpack.unpack(known)
  known[6], known[7], known[8] = now, mark[7], mark[8]
  mark = known
else
  mark[5], mark[6] = mark[5] > 0 and mark[5] or now, now
end
call('HSET', P .. 'workers', ARGV[2], cmsgpack.pack(mark))
return 1
