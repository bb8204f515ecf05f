-- uses: base lanes items leases admit finding
-- look: now, run, which, then what it needs:
--   placed   a text they hold, then number, tag and value of each in one string (see place in items)
--   numbers  numbers
--   digest   a digest
--   held     number and lease of each
--   sure     a few numbers, to be found wherever they are
-- To find what is leased takes long, so that only the last does; for the others such a task is gone.
-- Answers of each task that is there: number, where (see finding), its text, the name of its lane, and of held ones lease,
-- worker, until.
local run, which = get_run(tonumber(ARGV[2])), ARGV[3]
local told = {}
if not run then
  return told
end
local needle = ''

local function tell(number, where, text, lane, lease_number)
  if not where or (needle ~= '' and where ~= 'gone' and not string.find(text, needle, 1, true)) then
    return
  end
  if where == 'row' then
    local _, _, _, _, id = unpack_struct('>BdddI4', text)
    lane = id
  end
  local one = {number, where, text, lane and get_lane(lane)[NAME] or ''}
  if lease_number then
    local lease = get_lease(lease_number)
    one[5], one[6], one[7] = lease_number, lease[WORKER], lease[UNTIL]
  end
  told[#told + 1] = one
end

held = {}
if which == 'placed' then
  local places = ARGV[5]
  needle, window = ARGV[4], 100
  for at = 1, #places, 9 do
    local _, tag, lane = unpack_struct('>I4BI4', places, at)
    if tag == WAITS then
      crowd[lane] = (crowd[lane] or 0) + 1
    end
  end
  local lanes_waited_for = {}
  for lane in pairs(crowd) do
    lanes_waited_for[#lanes_waited_for + 1] = lane
  end
  if #lanes_waited_for > 0 then
    load_heads(run, lanes_waited_for)
  end
  for at = 1, #places, 9 do
    local number, tag, value = unpack_struct('>I4BI4', places, at)
    tell(number, find_at(run, number, tag, value, true))
  end
elseif which == 'held' then
  for i = 4, #ARGV, 2 do
    held[int(run.id * SHIFT + tonumber(ARGV[i]))] = ARGV[i + 1]
  end
  for i = 4, #ARGV, 2 do
    tell(tonumber(ARGV[i]), find_task(run, tonumber(ARGV[i]), true))
  end
elseif which == 'sure' then
  local ids = {}
  for i = 4, #ARGV do
    ids[#ids + 1] = int(run.id * SHIFT + tonumber(ARGV[i]))
  end
  for _, lease in ipairs(call('HKEYS', P .. 'leases')) do
    for i, item in ipairs(call('HMGET', P .. 'lease:' .. lease, unpack(ids))) do
      if item then
        held[ids[i]] = lease
      end
    end
  end
  for i = 4, #ARGV do
    tell(tonumber(ARGV[i]), find_task(run, tonumber(ARGV[i]), true))
  end
elseif which == 'digest' then
  local found = call('HGET', bucket_of(run, ARGV[4]), ARGV[4])
  if found then
    local number = math.abs(tonumber(found))
    tell(number, find_task(run, number, true))
  end
else
  for i = 4, #ARGV do
    tell(tonumber(ARGV[i]), find_task(run, tonumber(ARGV[i]), true))
  end
end
return told
