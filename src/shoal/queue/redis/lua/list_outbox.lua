-- uses: base lanes wake outbox
-- list_outbox: now, kind, after, limit. Answers: of each entry its number, run, key and data.
local told = {}
local numbers = call('ZRANGEBYSCORE', P .. 'outbox:' .. ARGV[2], '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[4])
for i, entry in ipairs(gather('HMGET', P .. 'outbox', numbers)) do
  local run, _, key, data = unpack_entry(entry)
  told[i] = {tonumber(numbers[i]), run, key, data}
end
return told
