-- uses: base lanes lane_changes
-- set_lane: now, name, packed change, reason.
local lane = change_lane(ARGV[2], ARGV[3], ARGV[4])
flush()
for _, number in ipairs(lane[RUNS]) do
  hint(get_run(number))
end
return 1
