-- Seen-sets: what runs of one name have had between them. A set is kept like the seen-set of a run (admit.lua), with the
-- hour of its life in which a task joined it in place of the task's number.
local HOUR = 3600000000
local SEEN_FIELDS = {'level', 'split', 'marks', 'seen_for', 'created_at', 'changed_at', 'swept_at', 'cursor'}

local function read_seen_set(id)
  local seen_set = {id = id, changed = {}, buckets = P .. 'seen_set:' .. id .. ':'}
  for i, value in ipairs(call('HMGET', P .. 'seen_set:' .. id, unpack(SEEN_FIELDS))) do
    seen_set[SEEN_FIELDS[i]] = tonumber(value or 0)
  end
  seen_set.size = 2 ^ seen_set.level
  seen_set.hour = floor(max(0, now - seen_set.created_at) / HOUR)
  seen_set.oldest = seen_set.seen_for > 0 and max(0, floor((now - seen_set.created_at - seen_set.seen_for) / HOUR)) or 0
  return seen_set
end

-- The set of a name; a new one remembers for so long.
local function get_seen_set(name, seen_for)
  local id = call('HGET', P .. 'seen_sets', name)
  if not id then
    id = tostring(call('HINCRBY', P .. 'meta', 'seen_set', 1))
    call('HSET', P .. 'seen_sets', name, id)
    call('HSET', P .. 'seen_set:' .. id, 'seen_for', seen_for, 'created_at', int(now), 'changed_at', int(now), 'swept_at', int(now))
  end
  return read_seen_set(id)
end

local function seen_set_of(run)
  return get_seen_set(run.seen_set, call('HGET', P .. 'run:' .. run.id, 'seen_for'))
end

local function save_seen_set(seen_set)
  if seen_set then
    for field in pairs(seen_set.changed) do
      call('HSET', P .. 'seen_set:' .. seen_set.id, field, seen_set[field])
    end
    seen_set.changed = {}
  end
end
