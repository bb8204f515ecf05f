-- uses: base lanes changes
-- set_lane: now, name, packed change, reason.
change_lane(ARGV[2], ARGV[3], ARGV[4])
flush()
return 1
