-- uses: base lanes wake failing items leases admit find_task
-- list_tasks: now, run, which, then what it needs:
--   placed   a text they hold, then number, tag and value of each in one string (see set_location in items),
--            those of a lane together; told in any order
--   numbers  numbers
--   digest   a digest
--   held     number and lease of each
--   sure     a few numbers, to be found wherever they are
-- To find what is leased takes long, so that only the last does; for the others such a task is gone.
-- Answers of each task that is there: number, where (see find_task), its text, the name of its lane, and of held ones lease,
-- worker, until.
local run, which = get_run(tonumber(ARGV[2])), ARGV[3]
local told = {}
if not run then
  return told
end
local needle = ''

local function add_result(number, where, text, lane, lease_number)
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
  local locations, waits, dead = ARGV[5], accepts_tasks(run) and 'waits' or 'left', {}
  local lane, numbers, count = 0, {}, 0
  needle, window = ARGV[4], 100

  local function add_lane_results()
    local items = find_waiting(run, lane, numbers, count)
    for i = 1, count do
      local item = items[i]
      if not item then
        add_result(numbers[i], find_lost(run, numbers[i], lane))
      elseif needle == '' or string.find(item, needle, 1, true) then
        add_result(numbers[i], waits, item, lane)
      end
    end
    count = 0
  end

  for at = 1, #locations, 9 do
    local number, tag, value = unpack_struct('>I4BI4', locations, at)
    if tag == WAITING then
      if value ~= lane and count > 0 then
        add_lane_results()
      end
      count = count + 1
      lane, numbers[count] = value, number
    elseif tag == DEAD then
      dead[#dead + 1] = number
    else
      add_result(number, find_at(run, number, tag, value, true))
    end
  end
  if count > 0 then
    add_lane_results()
  end
  for first = 1, #dead, 100 do
    for i, row in ipairs(call('HMGET', P .. 'dead:' .. run.id, unpack(dead, first, min(first + 99, #dead)))) do
      add_result(dead[first + i - 1], row and 'row' or 'gone', row or '')
    end
  end
elseif which == 'held' then
  for i = 4, #ARGV, 2 do
    held[int(run.id * SHIFT + tonumber(ARGV[i]))] = ARGV[i + 1]
  end
  for i = 4, #ARGV, 2 do
    add_result(tonumber(ARGV[i]), find_task(run, tonumber(ARGV[i]), true))
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
    add_result(tonumber(ARGV[i]), find_task(run, tonumber(ARGV[i]), true))
  end
elseif which == 'digest' then
  local found = call('HGET', bucket_of(run, ARGV[4]), ARGV[4])
  if found then
    local number = math.abs(tonumber(found))
    add_result(number, find_task(run, number, true))
  end
else
  for i = 4, #ARGV do
    add_result(tonumber(ARGV[i]), find_task(run, tonumber(ARGV[i]), true))
  end
end
return told
