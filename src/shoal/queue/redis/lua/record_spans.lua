-- uses: base lanes wake failing items
-- record_spans: now, run, numbers of tasks. Answers: the first and how many, of the records of each that has any.
local id, spans = tonumber(ARGV[2]), {}
for i = 3, #ARGV do
  local tag, position = location_of(id, tonumber(ARGV[i]))
  local row = tag == ENDED and call('LINDEX', P .. 'ended:' .. id, position)
  if row then
    local _, _, _, _, _, _, _, records, first = unpack_struct('>BdddI4HBI4I4', row)
    if records > 0 then
      spans[#spans + 1] = {first, records}
    end
  end
end
return spans
