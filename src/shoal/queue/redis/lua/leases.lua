-- Leases: a hash of tasks by id per lease (slot, lane, band, item), and what is known of the lease itself.
local WORKER, REQUEST, UNTIL, EXTENDED, STARTED = 1, 2, 3, 4, 5

-- One that cannot be read is nobody's, and its time is over: its tasks go back.
local function read_lease(packed)
  local lease = read_packed(packed)
  local is_lease = lease and type(lease[WORKER]) == 'string' and type(lease[REQUEST]) == 'string' and type(lease[UNTIL]) == 'number'
  return is_lease and lease or {'', '', 0, false, {}}
end

local function get_lease(number)
  local packed = call('HGET', P .. 'leases', number)
  return packed and read_lease(packed)
end

local function set_lease(number, lease)
  call('HSET', P .. 'leases', number, cmsgpack.pack(lease))
  call('ZADD', P .. 'lease_expiry', int(lease[UNTIL]), number)
end

local function request_name(worker, request)
  return #worker .. ':' .. worker .. request
end

local function drop_lease(number)
  local lease = get_lease(number)
  if lease and lease[REQUEST] ~= '' then
    call('HDEL', P .. 'requests', request_name(lease[WORKER], lease[REQUEST]))
  end
  call('HDEL', P .. 'leases', number)
  call('ZREM', P .. 'lease_expiry', number)
  call('DEL', P .. 'lease:' .. number)
end

local function unpack_held(held)
  local slot, lane, band, at = unpack_struct('>dI4B', held)
  local task = unpack_item(sub(held, at))
  task.lane, task.band = lane, band
  return task, slot
end
