-- uses: base lanes wake failing items leases reach hand_out seen_sets admit
-- push: now, worker, lease, request, run, how many capabilities, these, lanes (count, then name and pace each), tasks.
-- Answers: a letter per task (as add does, and l: leased; r alone: the run takes no work), and the claim.
local HORIZON, UNLIMITED = 2000000, 2 ^ 40
local worker, span, request, run = ARGV[2], tonumber(ARGV[3]), ARGV[4], get_run(tonumber(ARGV[5]))
local has, able, tasks_at = {}, {}, 7 + tonumber(ARGV[6])
for i = 7, tasks_at - 1 do
  has[ARGV[i]] = true
end
local again = same_request(worker, request)
local NOTHING = {'0', -1, {}, {}, now}
if not accepts_tasks(run) then
  return {'r', again or NOTHING}
end
for _, needs in ipairs(reach_of(run, has)) do
  able[needs] = true
end
local left = run.max_pages > 0 and run.max_pages - run.done - run.dead - run.discarded - run.leased + run.aside or UNLIMITED
if again or run.state ~= 'running' or run.outbox >= MAX_OUTBOX then
  left = 0
end

local picked, open_lanes = {}, {}

-- Whether a new task is leased at once: not where its lane has no slot within the horizon or no place, or is parked.
local function take(number, id, line, item)
  local lane, open = get_lane(id), open_lanes[id]
  if not open then
    open = {at = max(lane[NEXT], lane[HELD], now), free = lane[ROOM] > 0 and lane[ROOM] - lane[FLIGHT] or UNLIMITED}
    open_lanes[id] = open
  end
  if #picked >= left or not able[floor(line / BANDS)] or lane[PARKED] > 0 or open.free < 1 or open.at > now + HORIZON then
    return false
  end
  picked[#picked + 1] = {run, number, id, line, item, open.at}
  open.at, open.free = open.at + lane[SPACING], open.free - 1
  local run_lane = get_run_lane(run, id)
  run_lane[PICKS] = run_lane[PICKS] + 1
  touch_run_lane(run, id)
  return true
end

local first, answers = read_lanes(tasks_at), {}
admit(run, first, #ARGV, answers, take)
local claim = again or NOTHING
if again then
  local held = {}
  for i = 1, #again[4], 2 do
    held[again[4][i]] = true
  end
  for i, answer in ipairs(answers) do
    local _, _, _, _, digest = unpack_struct('>HBddc10', ARGV[first + i - 1])
    local number = answer == 'k' and tonumber(call('HGET', bucket_of(run, digest), digest))
    local id = number and int(run.id * SHIFT + number)
    if id and held[id] then
      answers[i], held[id] = 'l', nil
    end
  end
elseif #picked > 0 then
  set(run, 'share', run.share + #picked / max(1, run.weight))
  claim = tell_claim(open_lease(picked, worker, request, span, tonumber(call('HGET', P .. 'meta', 'lease') or 0)))
end
flush()
return {table.concat(answers), claim}
