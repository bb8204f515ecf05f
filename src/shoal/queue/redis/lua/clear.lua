-- uses: base lanes wake failing items
-- clear: now, run, lists (lane and band each). What was dropped leaves its list: claims need not pass it over.
-- Answers: how many of the lists are done; the others are for another call.
local MOST, STALE, STEP = 50000, 1000, 100  -- items gone through, and taken away one by one
local run = get_run(tonumber(ARGV[2]))
local total = (#ARGV - 2) / 2
if not accepts_tasks(run) then
  return total
end

local function is_stale(item)
  return byte(item) ~= 1 and call('HEXISTS', P .. 'stored:' .. run.id, item) == 0
end

-- What came back is in the list by its number only. Answers: whether there is more of it.
local function take_stale(list)
  for _ = 1, STALE, STEP do
    local count = 0
    for _, item in ipairs(call('LRANGE', list, 0, STEP - 1)) do
      if not is_stale(item) then
        break
      end
      count = count + 1
    end
    if count > 0 then
      call('LPOP', list, count)
    end
    if count < STEP then
      return false
    end
  end
  return true
end

local seen = 0
for i = 0, total - 1 do
  local lane, band = tonumber(ARGV[3 + 2 * i]), tonumber(ARGV[4 + 2 * i])
  local run_lane, list = get_run_lane(run, lane), ready_list(run.id, lane, band)
  if run_lane and ready_in_line(run_lane, band) <= 0 then
    call('UNLINK', list)
  else
    seen = seen + call('LLEN', list)
    if i > 0 and seen > MOST then
      return i
    end
    call('LREM', list, 0, CLEARED)
    if take_stale(list) then
      return i
    end
  end
end
return total
