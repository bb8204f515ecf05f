-- uses: base lanes items admit
-- add: now, run, lanes (count, then name and pace each), tasks.
local run = get_run(tonumber(ARGV[2]))
if not takes_work(run) then
  return 'r'
end
local answers = {}
admit(run, read_lanes(3), #ARGV, answers)
flush()
return table.concat(answers)
