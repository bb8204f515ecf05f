-- uses: base lanes wake failing items leases find_task
-- count_tasks: now, run, the first number and how many. Answers: where to go on (0: nowhere), how many of them are ready, delayed
-- and leased; those that are gone; and how many of the ready ones have which needs (number and count each).
local run = get_run(tonumber(ARGV[2]))
local ready, delayed, leased, gone, going_on = 0, 0, 0, {}, 0
local by_needs, told = {}, {}

local function count_needs(line)
  local needs = floor(line / BANDS)
  by_needs[needs] = (by_needs[needs] or 0) + 1
end

local function count(number)
  local where, text, _, _, line = find_task(run, number, false)
  if where == 'held' then
    leased = leased + 1
  elseif where == 'waits' then
    ready = ready + 1
    count_needs(line)
  elseif where == 'stored' then
    local task = unpack_item(text)
    if task.wait_mode == DELAYED and task.due > now then
      delayed = delayed + 1
    else
      ready = ready + 1
      count_needs(task.band)
    end
  elseif where == 'gone' and location_of(run.id, number) ~= REMOVED then
    gone[#gone + 1] = number
  end
end

window = 100
if run then
  going_on = each_number(run, tonumber(ARGV[3]), tonumber(ARGV[4]), count)
end
for needs, count in pairs(by_needs) do
  told[#told + 1] = needs
  told[#told + 1] = count
end
return {going_on, ready, delayed, leased, gone, told}
