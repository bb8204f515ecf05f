-- uses: base memo lanes items leases ending
-- purge: now, request, run. Removes an ended run, a slice per call. Answers: a word (more, done, or why not) and what it needs.
local SLICE_OF_KEYS = 1000
local id = tonumber(ARGV[3])
local run = get_run(id)
if not run then
  return {'unknown'}
end
if takes_work(run) then
  return {'open', run.name, run.state}
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
    many('HDEL', lease, mine)
    if call('EXISTS', lease) == 0 then
      drop_lease(number)
    end
  end
  set(run, 'state', 'purged')
  set(run, 'cursor', 0)
end
local buckets, places = 2 ^ run.level + run.split, floor(run.next_task / PLACES) + 1
local slice = {}
while run.cursor < buckets + places and #slice < SLICE_OF_KEYS do
  if run.cursor < buckets then
    slice[#slice + 1] = P .. 'seen:' .. id .. ':' .. run.cursor
  else
    slice[#slice + 1] = P .. 'place:' .. id .. ':' .. (run.cursor - buckets)
  end
  bump(run, 'cursor', 1)
end
if #slice > 0 then
  call('UNLINK', unpack(slice))
end
if run.cursor < buckets + places then
  flush()
  return {'more'}
end
local groups = call('HRANDFIELD', P .. 'groups:' .. id, SLICE_OF_KEYS)
if #groups > 0 then
  many('HDEL', P .. 'groups:' .. id, groups)
  for i, group in ipairs(groups) do
    groups[i] = P .. 'group:' .. id .. ':' .. group
  end
  call('UNLINK', unpack(groups))
  flush()
  return {'more'}
end
for _, name in ipairs({'heads:', 'order:', 'wake:', 'delayed:', 'ttl:', 'alone:', 'odd:', 'back:', 'ended:', 'dead:', 'deadids:',
  'records:', 'skips:', 'samples:', 'sampled:', 'aliases:', 'index:', 'run:'}) do
  call('UNLINK', P .. name .. id)
end
call('SREM', P .. 'purging', id)
return memorise({'done'})
