-- uses: base lanes wake failing items end_run
-- sweep: now, run. Answers: whether a sweep is left.
local run = get_run(tonumber(ARGV[2]))
if not run then
  return 0
end
sweep(run)
flush()
return run.left
