-- uses: base
-- keep_paper: now, kind, name, text. Answers: version, made at.
local key = P .. 'paper:' .. #ARGV[2] .. ':' .. ARGV[2] .. ARGV[3]
local newest = call('LINDEX', key, -1)
if newest then
  local made, at = unpack_struct('>d', newest)
  if sub(newest, at) == ARGV[4] then
    return {call('LLEN', key), made}
  end
end
call('SADD', P .. 'papers:' .. ARGV[2], ARGV[3])
return {call('RPUSH', key, pack('>d', now) .. ARGV[4]), now}
