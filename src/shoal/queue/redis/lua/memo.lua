-- Memo: where a verb's answer would not be the same a second time, it is kept for a minute under the caller's request
-- (ARGV[2]; '' keeps nothing), so that a lost answer can be asked for again.
local MEMO = ARGV[2] ~= '' and P .. 'memo:' .. ARGV[2]
local KEPT = 60  -- seconds
if MEMO then
  local told = call('GET', MEMO)
  if told then
    return cmsgpack.unpack(told)
  end
end

local function memorise(answer)
  if MEMO then
    call('SET', MEMO, cmsgpack.pack(answer), 'EX', KEPT)
  end
  return answer
end
