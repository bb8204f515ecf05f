-- Changes: what an answer or a person taught about a host (flags, hold, park, spacing, rule, limit; then its reason).
local HOLD, PARK, LEARN, SET_SPACING, SET_LIMIT = 1, 2, 4, 8, 16

-- What people look for is found without reading all lanes.
local function list_lane(id, lane)
  if lane[HELD] > 0 then
    call('ZADD', P .. 'holds', int(lane[HELD]), id)
  else
    call('ZREM', P .. 'holds', id)
  end
  call((lane[SPACING_OVERRIDE] >= 0 or lane[LIMIT_OVERRIDE] >= 0) and 'SADD' or 'SREM', P .. 'overridden', id)
end

local function change_lane(name, packed, reason)
  local id = find_lane(name) or new_lane(name)
  local lane = get_lane(id)
  local flags, hold, park, spacing, rule, limit = unpack_struct('>Bddddd', packed)

  local function has(flag)
    return floor(flags / flag) % 2 == 1
  end

  if has(HOLD) then
    lane[HELD], lane[REASON] = max(lane[HELD], now + hold), reason
  end
  if has(PARK) then
    if park > 0 then
      if lane[PARKED] == 0 or lane[HELD] <= now then  -- two workers that park it for the same failures have parked it once
        lane[PARKED] = lane[PARKED] + 1
      end
      lane[HELD], lane[REASON] = max(lane[HELD], now + park), reason
    else
      lane[HELD], lane[PARKED], lane[REASON] = 0, 0, ''
    end
  end
  if has(LEARN) or has(SET_SPACING) then
    local before = lane[SPACING]
    lane[LEARNED] = has(LEARN) and spacing or lane[LEARNED]
    lane[SPACING_OVERRIDE] = has(SET_SPACING) and max(-1, rule) or lane[SPACING_OVERRIDE]
    set_spacing(lane)
    if lane[SPACING] > before then  -- counted from the last request
      lane[NEXT] = max(lane[NEXT], lane[LAST]) + lane[SPACING] - before
    end
    if reason ~= '' then
      lane[REASON] = reason
    end
  end
  if has(SET_LIMIT) then
    lane[LIMIT_OVERRIDE] = max(-1, limit)
    lane[ROOM] = max(0, limit)
    if #lane[RUNS] > 0 then
      apply_pace(id)
    end
  end
  if has(HOLD) or has(PARK) or has(SET_SPACING) or has(SET_LIMIT) then
    list_lane(id, lane)
  end
  touch(id, true)
  return lane
end
