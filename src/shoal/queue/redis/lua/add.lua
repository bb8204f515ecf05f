-- uses: base reply_cache lanes wake failing items seen_sets admit
-- add: now, request, run, lanes (count, then name and pace each), tasks.
local run = get_run(tonumber(ARGV[3]))
if not accepts_tasks(run) then
  return 'r'
end
local answers = {}
admit(run, read_lanes(4), #ARGV, answers)
flush()
return cache_reply(table.concat(answers))
