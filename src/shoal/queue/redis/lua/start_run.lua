-- uses: base lanes wake seen_sets
-- start_run: now, name, scraper, key, weight, priority, max_pages, spec, whether once for all, seen-set and for how long, how long dead letters are kept. Answers: its number, or the word 'taken'.
local name, key = ARGV[2], ARGV[4]
local known = call('HGET', P .. 'keys', key)
if known and (ARGV[9] == '1' or accepts_tasks(get_run(tonumber(known)))) then
  return tonumber(known)
end
if name ~= '' and call('HEXISTS', P .. 'names', name) == 1 then
  return 'taken'
end
local least
for _, id in ipairs(call('ZRANGE', P .. 'live_runs', 0, -1)) do
  local other = get_run(tonumber(id))
  if other.state == 'running' and (not least or other.share < least) then
    least = other.share
  end
end
local number = call('HINCRBY', P .. 'meta', 'run', 1)
if name == '' then
  name = fmt('r%x%08x', floor(now / SHIFT), now % SHIFT)
end
call('HSET', P .. 'run:' .. number, 'state', 'running', 'name', name, 'scraper', ARGV[3], 'key', key, 'weight', ARGV[5],
  'priority', ARGV[6], 'max_pages', ARGV[7], 'spec', ARGV[8], 'share', least or 0, 'created_at', int(now), 'changed_at', int(now), 'next_task', 1, 'tagged', 1, 'band', -1,
  'seen_set', ARGV[10], 'seen_for', ARGV[11], 'dead_retention', ARGV[12] or 0)
if tonumber(ARGV[12] or 0) > 0 then
  call('SADD', P .. 'discarding', number)
end
if ARGV[10] ~= '' then
  local seen_set = get_seen_set(ARGV[10], ARGV[11])
  if ARGV[11] ~= '0' then
    call('HSET', P .. 'seen_set:' .. seen_set.id, 'seen_for', ARGV[11])
  end
end
call('HSET', P .. 'keys', key, number)
call('HSET', P .. 'names', name, number)
call('ZADD', P .. 'runs', number, number)
call('ZADD', P .. 'live_runs', number, number)
return number
