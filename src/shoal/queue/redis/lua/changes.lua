-- Changes: what an answer taught about a host (flags, hold, park, spacing; then its reason).
local HOLD, PARK, LEARN = 1, 2, 4

local function change_lane(name, packed, reason)
  local id = find_lane(name) or new_lane(name)
  local lane = get_lane(id)
  local flags, hold, park, spacing = unpack_struct('>Bddd', packed)
  if flags % 2 == HOLD then
    lane[HELD], lane[REASON] = max(lane[HELD], now + hold), reason
  end
  if floor(flags / PARK) % 2 == 1 then
    if park > 0 then
      if lane[PARKED] == 0 or lane[HELD] <= now then  -- two workers that park it for the same failures have parked it once
        lane[PARKED] = lane[PARKED] + 1
      end
      lane[HELD], lane[REASON] = max(lane[HELD], now + park), reason
    else
      lane[HELD], lane[PARKED], lane[REASON] = 0, 0, ''
    end
  end
  if floor(flags / LEARN) % 2 == 1 then
    local before = lane[SPACING]
    lane[LEARNED], lane[SPACING] = spacing, max(lane[ASKED], spacing)
    lane[NEXT] = lane[NEXT] + max(0, lane[SPACING] - before)
    if reason ~= '' then
      lane[REASON] = reason
    end
  end
  touch(id)
end
