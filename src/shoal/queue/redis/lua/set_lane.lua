-- uses: base lanes wake lane_changes
-- set_lane: now, name, packed change, reason.
local lane = change_lane(ARGV[2], ARGV[3], ARGV[4])
flush()
call('ZADD', P .. 'idle_lanes', 'NX', int(now), find_lane(ARGV[2]))  -- what is set now may be taken back later
for _, number in ipairs(lane[RUNS]) do
  hint(get_run(number))
end
return 1
