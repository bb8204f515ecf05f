-- uses: base lanes wake lane_changes
-- reindex_lanes: now, the first lane and the last. Lanes of an older layout are listed as new ones are.
local ids = {}
for id = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  ids[#ids + 1] = id
end
for i, packed in ipairs(gather('HMGET', P .. 'lanes', ids)) do
  if packed then
    local lane = cmsgpack.unpack(packed)
    call('ZADD', P .. 'lane_names', 0, lane[NAME])
    list_lane(ids[i], lane)
  end
end
return 1
