-- Counters of a run: a hash of names; what is beyond its bound is summed under one of them.
local MAX_NAMES, OTHER, OF_RECORDS = 200, 'other', 'field.'

-- Counts are names and numbers in turn.
local function count_up(id, counts, with_records)
  local key = P .. 'counted:' .. id
  local names = call('HLEN', key)
  local narrow = names + #counts / 2 >= MAX_NAMES
  for i = 1, #counts, 2 do
    local name = counts[i]
    if with_records or sub(name, 1, #OF_RECORDS) ~= OF_RECORDS then
      if narrow and name ~= OTHER and call('HEXISTS', key, name) == 0 then
        if call('HLEN', key) - call('HEXISTS', key, OTHER) >= MAX_NAMES then
          name = OTHER
        end
      end
      call('HINCRBY', key, name, int(counts[i + 1]))
    end
  end
end
