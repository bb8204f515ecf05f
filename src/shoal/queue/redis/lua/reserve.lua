-- uses: base lanes wake
-- reserve: now, name, spacing and most in flight for a new lane, whether that spacing counts for a known one too, the
-- longest wait (or ''). Answers: wait, spacing, taken, parked reason.
local id = find_lane(ARGV[2])
local given, lane = tonumber(ARGV[3])
if id then
  lane = get_lane(id)
else
  -- No run asks anything of this lane yet; this is in force until one does.
  id = new_lane(ARGV[2])
  lane = get_lane(id)
  lane[REQUESTED], lane[SPACING], lane[ROOM] = given, given, tonumber(ARGV[4])
  call('ZADD', P .. 'idle_lanes', int(now), id)
end
local spacing = lane[SPACING]
if ARGV[5] == '1' and lane[SPACING_OVERRIDE] < 0 then
  spacing = max(spacing, given)
end
if lane[PARKED] > 0 and lane[HELD] > now then
  flush()
  return {lane[HELD] - now, spacing, 0, lane[REASON] ~= '' and lane[REASON] or 'parked'}
end
local at = max(now, lane[NEXT], lane[HELD])
if ARGV[6] ~= '' and at - now > tonumber(ARGV[6]) then
  flush()
  return {at - now, spacing, 0, ''}
end
advance_slot(lane, at, spacing)
touch(id, true)
flush()
return {at - now, spacing, 1, ''}
