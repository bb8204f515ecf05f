-- Cache: responses by key in the hash "cache", their order in "cache_order", by host in "cache_host:HOST", by seq.
-- A value begins with what is known of it (stored_at, size, the lengths of host and URL), so that whoever removes it need not
-- know it. What all take is in "cache_totals": the server itself evicts nothing, or tasks would go, too.
local HEAD = '>dI4I2I2'

local function cache_remove(key, value)
  local _, size, host_size, _, at = unpack_struct(HEAD, value)
  local host = sub(value, at, at + host_size - 1)
  call('HDEL', P .. 'cache', key)
  call('ZREM', P .. 'cache_order', key)
  call('ZREM', P .. 'cache_host:' .. host, key)
  call('HINCRBY', P .. 'cache_totals', 'bytes', -size)
end

-- The first of an order, as far as there is no room for them, or they are too old.
local function cache_push_out(max_bytes, kept, most)
  local excess = max_bytes and tonumber(call('HGET', P .. 'cache_totals', 'bytes') or 0) - max_bytes or 0
  for _, key in ipairs(call('ZRANGE', P .. 'cache_order', 0, most - 1)) do
    local value = call('HGET', P .. 'cache', key)
    local stored_at, size = unpack_struct(HEAD, value)
    if excess <= 0 and stored_at > now - kept then
      break
    end
    cache_remove(key, value)
    excess = excess - size
  end
end
