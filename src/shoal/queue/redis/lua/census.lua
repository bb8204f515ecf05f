-- uses: base lanes items leases finding
-- census: now, run, first and last number. Answers: how many of them are ready, delayed and leased; then those that are gone.
local run = get_run(tonumber(ARGV[2]))
local ready, delayed, leased, gone = 0, 0, 0, {}
for number = tonumber(ARGV[3]), min(tonumber(ARGV[4]), run and run.next_task - 1 or 0) do
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
  elseif where == 'gone' then
    gone[#gone + 1] = number
  end
end
return {ready, delayed, leased, gone}
