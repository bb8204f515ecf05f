-- uses: base lanes items leases admit finding
-- look: now, run, which (numbers, range or digest), then numbers, the first and how many, or a digest.
-- Answers: where a range goes on (0: nowhere), then of each task that is there: number, where (see finding), its text, the
-- name of its lane, and of held ones lease, worker, until.
local run = get_run(tonumber(ARGV[2]))
local going_on, told = 0, {}
if not run then
  return {0, told}
end

local function look_at(number)
  local where, text, lane, held = find_task(run, number, true)
  if not where then
    return
  end
  if where == 'row' then
    local _, _, _, _, id = unpack_struct('>BdddI4', text)
    lane = id
  end
  local one = {number, where, text, lane and get_lane(lane)[NAME] or ''}
  if held then
    local lease = get_lease(held)
    one[5], one[6], one[7] = held, lease[WORKER], lease[UNTIL]
  end
  told[#told + 1] = one
end

if ARGV[3] == 'digest' then
  local found = call('HGET', bucket_of(run, ARGV[4]), ARGV[4])
  if found then
    look_at(math.abs(tonumber(found)))
  end
elseif ARGV[3] == 'range' then
  window = 50
  going_on = each_number(run, tonumber(ARGV[4]), tonumber(ARGV[5]), look_at)
else
  for i = 4, #ARGV do
    look_at(tonumber(ARGV[i]))
  end
end
return {going_on, told}
