-- uses: base cache
-- cache_get: now, with bodies or not, keys. Answers: now, then of each its seq and its value, or the beginning of it.
local found = {int(now)}
for i = 3, #ARGV do
  local value = call('HGET', P .. 'cache', ARGV[i])
  local seq = value and call('ZSCORE', P .. 'cache_order', ARGV[i]) or ''
  if value and ARGV[2] == '0' then
    local _, _, host_size, url_size, at = unpack_struct(HEAD, value)
    value = sub(value, 1, at + host_size + 8 + url_size - 1)
  end
  found[#found + 1] = seq
  found[#found + 1] = value or ''
end
return found
