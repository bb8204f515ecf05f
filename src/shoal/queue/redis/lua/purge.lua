-- uses: base reply_cache lanes wake failing items leases end_run
-- purge: now, request, run. Removes an ended run, a slice per call. Answers: a word (more, done, or why not) and what it needs.
local SLICE_OF_KEYS = 1000
local id = tonumber(ARGV[3])
local run = get_run(id)
if not run then
  return {'unknown'}
end
if accepts_tasks(run) then
  return {'open', run.name, run.state}
end
if get_kept(run, 'kept') == 1 then
  begin_clearing(run)
  flush()
  return {'more'}
end
if run.left == 1 then
  sweep(run)
  flush()
  return {'more'}
end
if run.state ~= 'purged' then
  local key = call('HGET', P .. 'run:' .. id, 'key')
  if call('HGET', P .. 'keys', key) == tostring(id) then
    call('HDEL', P .. 'keys', key)
  end
  call('HDEL', P .. 'names', run.name)
  call('ZREM', P .. 'runs', id)
  call('SADD', P .. 'purging', id)
  -- One claim may hold tasks of several runs: only leases that hold nothing else go with this one.
  for _, number in ipairs(call('HKEYS', P .. 'leases')) do
    local lease, mine = P .. 'lease:' .. number, {}
    for _, task in ipairs(call('HKEYS', lease)) do
      if split_id(task) == id then
        mine[#mine + 1] = task
      end
    end
    call_many('HDEL', lease, mine)
    if call('EXISTS', lease) == 0 then
      drop_lease(number)
    end
  end
  set(run, 'state', 'purged')
  set(run, 'cursor', 0)
end
local buckets, locations = 2 ^ run.level + run.split, floor(run.next_task / LOCATIONS_PER_KEY) + 1
local slice = {}
while run.cursor < buckets + locations and #slice < SLICE_OF_KEYS do
  if run.cursor < buckets then
    slice[#slice + 1] = P .. 'seen:' .. id .. ':' .. run.cursor
  else
    slice[#slice + 1] = P .. 'location:' .. id .. ':' .. (run.cursor - buckets)
  end
  bump(run, 'cursor', 1)
end
if #slice > 0 then
  call('UNLINK', unpack(slice))
end
if run.cursor < buckets + locations then
  flush()
  return {'more'}
end
local groups = call('HRANDFIELD', P .. 'groups:' .. id, SLICE_OF_KEYS)
if #groups > 0 then
  call_many('HDEL', P .. 'groups:' .. id, groups)
  for i, group in ipairs(groups) do
    groups[i] = P .. 'group:' .. id .. ':' .. group
  end
  call('UNLINK', unpack(groups))
  flush()
  return {'more'}
end
local entries = call('HRANDFIELD', P .. 'outbox_of:' .. id, SLICE_OF_KEYS)
if #entries > 0 then
  local kinds = gather('HMGET', P .. 'outbox_of:' .. id, entries)
  for i, number in ipairs(entries) do
    call('ZREM', P .. 'outbox:' .. kinds[i], number)
  end
  call_many('HDEL', P .. 'outbox', entries)
  call_many('HDEL', P .. 'outbox_of:' .. id, entries)
  flush()
  return {'more'}
end
local lanes_left = call('LPOP', P .. 'lane_order:' .. id, SLICE_OF_KEYS)
if lanes_left then
  local values = {}
  for _, lane in ipairs(lanes_left) do
    values[#values + 1] = int(now)
    values[#values + 1] = lane
  end
  call_many('ZADD', P .. 'idle_lanes', values)
  flush()
  return {'more'}
end
for _, name in ipairs({'run_lanes:', 'lane_order:', 'wake:', 'delayed:', 'ttl:', 'isolated:', 'stored:', 'returned:', 'ended:', 'dead:', 'dead_ids:', 'dead_ages:',
  'records:', 'page_heads:', 'page_bodies:', 'skips:', 'samples:', 'sampled:', 'aliases:', 'index:', 'counted:', 'needs:', 'needed:', 'run:'}) do
  call('UNLINK', P .. name .. id)
end
call('SREM', P .. 'purging', id)
return cache_reply({'done'})
