-- uses: base reply_cache lanes wake
-- trim: now, request, run, the last record that may go. Answers: how many went, or nothing for a run that never was.
local run = get_run(tonumber(ARGV[3]))
if not run then
  return false
end
local count = min(tonumber(ARGV[4]), run.records) - run.trimmed
if count <= 0 then
  return 0
end
call('LTRIM', P .. 'records:' .. run.id, count, -1)
bump(run, 'trimmed', count)
flush()
return cache_reply(count)
