-- uses: base cache
-- cache_stats: now. Answers: how many, what they take, microseconds since the oldest was put.
local oldest = call('ZRANGE', P .. 'cache_order', 0, 0)[1]
local age = oldest and now - unpack_struct(HEAD, call('HGET', P .. 'cache', oldest)) or 0
return {call('HLEN', P .. 'cache'), tonumber(call('HGET', P .. 'cache_totals', 'bytes') or 0), max(0, age)}
