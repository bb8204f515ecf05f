-- uses: base lanes wake seen_sets
-- clear_seen_slice: now, number of a set that was cleared. Removes some of it. Answers: 1 if there is more.
local SLICE_OF_KEYS = 1000
local seen_set = read_seen_set(ARGV[2])
local buckets, slice = seen_set.size + seen_set.split, {}
while seen_set.cursor < buckets and #slice < SLICE_OF_KEYS do
  slice[#slice + 1] = seen_set.buckets .. seen_set.cursor
  bump(seen_set, 'cursor', 1)
end
if #slice > 0 then
  call('UNLINK', unpack(slice))
end
if seen_set.cursor < buckets then
  save_seen_set(seen_set)
  return 1
end
call('UNLINK', P .. 'seen_set:' .. ARGV[2])
call('SREM', P .. 'cleared_sets', ARGV[2])
return 0
