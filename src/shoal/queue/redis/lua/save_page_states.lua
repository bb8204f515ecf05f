-- uses: base lanes wake
-- save_page_states: now, run, then number, head and body of each. Answers: whether there is such a run.
local run = get_run(tonumber(ARGV[2]))
if not run or run.state == 'purged' then
  return 0
end
for i = 3, #ARGV, 3 do
  call('HSET', P .. 'page_heads:' .. run.id, ARGV[i], ARGV[i + 1])
  call('HSET', P .. 'page_bodies:' .. run.id, ARGV[i], ARGV[i + 2])
end
return 1
