-- uses: base lanes
-- start_run: now, name, scraper, key, weight, max_pages, spec, whether once for all. Answers: its number, or the word 'taken'.
local name, key = ARGV[2], ARGV[4]
local known = call('HGET', P .. 'keys', key)
if known and (ARGV[8] == '1' or takes_work(get_run(tonumber(known)))) then
  return tonumber(known)
end
if name ~= '' and call('HEXISTS', P .. 'names', name) == 1 then
  return 'taken'
end
local least
for _, id in ipairs(call('ZRANGE', P .. 'live', 0, -1)) do
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
  'max_pages', ARGV[6], 'spec', ARGV[7], 'share', least or 0, 'created_at', int(now), 'changed_at', int(now), 'next_task', 1, 'tagged', 1)
call('HSET', P .. 'keys', key, number)
call('HSET', P .. 'names', name, number)
call('ZADD', P .. 'runs', number, number)
call('ZADD', P .. 'live', number, number)
return number
