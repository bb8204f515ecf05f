-- uses: base lanes wake idle_lanes
-- find_idle_lanes: now, how long they are kept, how many are looked at. Answers: those that may go unless a run refers to them.
local kept, found = tonumber(ARGV[2]), {}
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'idle_lanes', '-inf', int(now - kept), 'LIMIT', 0, ARGV[3])) do
  local packed = call('HGET', P .. 'lanes', id)
  local lane = packed and cmsgpack.unpack(packed)
  if not lane or not is_forgettable(lane) then
    call('ZREM', P .. 'idle_lanes', id)
  elseif last_used(lane) + kept > now then
    call('ZADD', P .. 'idle_lanes', int(last_used(lane)), id)
  else
    found[#found + 1] = id
  end
end
return found
