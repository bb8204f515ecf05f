-- uses: base lanes wake idle_lanes
-- remove_idle_lanes: now, how long they are kept, how many have runs that refer to them, these, and those that have none.
-- One that a run has come to since is listed no more, and stays.
local kept, named = tonumber(ARGV[2]), tonumber(ARGV[3])
for i = 4, #ARGV do
  local id = ARGV[i]
  local packed = i > 3 + named and call('ZSCORE', P .. 'idle_lanes', id) and call('HGET', P .. 'lanes', id)
  local lane = packed and cmsgpack.unpack(packed)
  if lane and is_forgettable(lane) and last_used(lane) + kept <= now then
    call('HDEL', P .. 'lanes', id)
    call('HDEL', P .. 'lane_ids', lane[NAME])
    call('ZREM', P .. 'lane_names', lane[NAME])
    call('ZREM', P .. 'holds', id)
  end
  call('ZREM', P .. 'idle_lanes', id)
end
return 1
