-- Reply cache: where a verb's answer would not be the same a second time, it is kept for a minute under the caller's request
-- (ARGV[2]; '' keeps nothing), so that a lost answer can be asked for again.
local REPLY_KEY = ARGV[2] ~= '' and P .. 'reply:' .. ARGV[2]
local KEPT = 60  -- seconds
if REPLY_KEY then
  local told = call('GET', REPLY_KEY)
  if told then
    return cmsgpack.unpack(told)
  end
end

local function cache_reply(answer)
  if REPLY_KEY then
    call('SET', REPLY_KEY, cmsgpack.pack(answer), 'EX', KEPT)
  end
  return answer
end
