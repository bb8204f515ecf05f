-- uses: base lanes wake failing items leases find_task
-- export_run: now, run, the first number, how many at most.
-- Answers: a word (unknown, running, outbox, index: it is to be made first, ok), where to go on (0: nowhere), now, then of each
-- task: number, where (see find_task), its text, the name of its lane, its digest and those of its aliases.
local LOOKED_AT = 5000
local run, first, limit = get_run(tonumber(ARGV[2])), tonumber(ARGV[3]), tonumber(ARGV[4])
if not run then
  return {'unknown'}
end
if run.state == 'running' then
  return {'running', run.name}
end
if run.outbox > 0 then
  return {'outbox', run.name, run.outbox}
end
local index = call('GET', P .. 'index:' .. run.id)
if not index or tonumber(index) ~= run.marks then
  return {'index'}
end
window = 100
local told = {'ok', 0, now}
told[2] = each_number(run, first, LOOKED_AT, function(number)
  local where, text, lane = find_task(run, number, true)
  if where then
    if where == 'row' then
      local _, _, _, _, id = unpack_struct('>BdddI4', text)
      lane = id
    end
    local at = number % LOCATIONS_PER_KEY * DIGESTS
    local digest = call('GETRANGE', P .. 'digests:' .. run.id .. ':' .. floor(number / LOCATIONS_PER_KEY), at, at + DIGESTS - 1)
    local also = call('HGET', P .. 'aliases:' .. run.id, number) or ''
    told[#told + 1] = {number, where, text, lane and get_lane(lane)[NAME] or '', digest, also}
  end
  return #told - 3 >= limit
end)
return told
