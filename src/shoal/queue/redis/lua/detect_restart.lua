-- uses: base lanes wake failing items
-- detect_restart: now, how the server calls itself since it was last started. A server that was restarted, or took over from
-- another, may have forgotten the last second: numbers given then are not given again.
local RUNS_LEFT_OUT, CHUNKS_LEFT_OUT = 16, 16
local known = call('HGET', P .. 'meta', 'server')
if known == ARGV[2] then
  return 0
end
call('HSET', P .. 'meta', 'server', ARGV[2])
if known then
  call('HINCRBY', P .. 'meta', 'run', RUNS_LEFT_OUT)
  for _, id in ipairs(call('ZRANGE', P .. 'live_runs', 0, -1)) do
    local run = get_run(tonumber(id))
    set(run, 'next_task', (floor(run.next_task / LOCATIONS_PER_KEY) + CHUNKS_LEFT_OUT + 1) * LOCATIONS_PER_KEY)
  end
  flush()
end
return 1
