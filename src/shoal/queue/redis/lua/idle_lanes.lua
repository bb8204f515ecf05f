-- Idle lanes: idle_lanes has those that may be so, by when they were last used or left by a run that was removed.

-- Whether nothing is known of a lane that must not be lost. Others are looked at again when a run leaves them.
local function is_forgettable(lane)
  return #lane[RUNS] == 0 and lane[FLIGHT] == 0 and lane[LEARNED] == 0 and lane[PARKED] == 0
    and lane[SPACING_OVERRIDE] < 0 and lane[LIMIT_OVERRIDE] < 0
end

local function last_used(lane)
  return max(lane[NEXT], lane[LAST], lane[HELD])
end
