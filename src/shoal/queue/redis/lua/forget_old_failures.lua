-- uses: base
-- forget_old_failures: now, µs for which they are kept, how many of the last are. Removes a slice of the oldest.
local last = tonumber(call('HGET', P .. 'meta', 'failures') or 0)
for _, key in ipairs(call('ZRANGE', P .. 'failing_order', 0, 499)) do
  local row = call('HGET', P .. 'failing', key)
  local _, at, number = unpack(row and cmsgpack.unpack(row) or {0, 0, 0})
  if at > now - tonumber(ARGV[2]) and number > last - tonumber(ARGV[3]) then
    break
  end
  call('HDEL', P .. 'failing', key)
  call('ZREM', P .. 'failing_order', key)
end
