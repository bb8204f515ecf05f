-- uses: base lanes items leases finding
-- census: now, run, the first number and how many. Answers: where to go on (0: nowhere), how many of them are ready, delayed
-- and leased; then those that are gone.
local run = get_run(tonumber(ARGV[2]))
local ready, delayed, leased, gone, going_on = 0, 0, 0, {}, 0

local function count(number)
  local where, text = find_task(run, number, false)
  if where == 'held' then
    leased = leased + 1
  elseif where == 'waits' then
    ready = ready + 1
  elseif where == 'odd' then
    local task = unpack_item(text)
    if task.spot == DELAYED and task.due > now then
      delayed = delayed + 1
    else
      ready = ready + 1
    end
  elseif where == 'gone' and place_of(run.id, number) ~= PASSED then
    gone[#gone + 1] = number
  end
end

window = 100
if run then
  going_on = each_number(run, tonumber(ARGV[3]), tonumber(ARGV[4]), count)
end
return {going_on, ready, delayed, leased, gone}
