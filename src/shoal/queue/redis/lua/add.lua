-- uses: base memo lanes items admit
-- add: now, request, run, lanes (count, then name and pace each), tasks.
local run = get_run(tonumber(ARGV[3]))
if not takes_work(run) then
  return 'r'
end
local answers = {}
admit(run, read_lanes(4), #ARGV, answers)
flush()
return memorise(table.concat(answers))
