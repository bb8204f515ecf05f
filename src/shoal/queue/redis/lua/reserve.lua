-- uses: base lanes
-- reserve: now, name, spacing, most in flight, the longest wait (or ''). Answers: at, spacing, taken, parked reason.
local id = find_lane(ARGV[2])
local lane
if id then
  lane = get_lane(id)
else
  -- No run asks anything of this lane yet; this is in force until one does.
  id = new_lane(ARGV[2])
  lane = get_lane(id)
  lane[ASKED], lane[SPACING], lane[ROOM] = tonumber(ARGV[3]), tonumber(ARGV[3]), tonumber(ARGV[4])
end
if lane[PARKED] > 0 and lane[HELD] > now then
  flush()
  return {lane[HELD] - now, lane[SPACING], 0, lane[REASON] ~= '' and lane[REASON] or 'parked'}
end
local at = max(now, lane[NEXT], lane[HELD])
if ARGV[5] ~= '' and at - now > tonumber(ARGV[5]) then
  flush()
  return {at - now, lane[SPACING], 0, ''}
end
lane[NEXT] = at + lane[SPACING]
touch(id)
flush()
return {at - now, lane[SPACING], 1, ''}
