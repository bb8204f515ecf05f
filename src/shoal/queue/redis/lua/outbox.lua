-- Outbox: what settled tasks want done elsewhere. An entry lies in one hash by its number; a sorted set has the numbers of
-- its kind, and a hash those of its run.

local function pack_entry(run, kind, key, data)
  return pack('>I4I4I4', run.id, #kind, #key) .. kind .. key .. data
end

local function unpack_entry(entry)
  local run, kind, key = unpack_struct('>I4I4I4', entry)
  return run, sub(entry, 13, 12 + kind), sub(entry, 13 + kind, 12 + kind + key), sub(entry, 13 + kind + key)
end

-- Entries are ARGV[first] to ARGV[last]: kind, key, data each.
local function add_entries(run, first, last)
  local count = (last - first + 1) / 3
  local seq = call('HINCRBY', P .. 'meta', 'outbox', count) - count
  local rows, kinds, mine = {}, {}, {}
  for at = first, last, 3 do
    seq = seq + 1
    local number = int(seq)
    rows[#rows + 1], rows[#rows + 2] = number, pack_entry(run, ARGV[at], ARGV[at + 1], ARGV[at + 2])
    mine[#mine + 1], mine[#mine + 2] = number, ARGV[at]
    append(kinds, ARGV[at], number, number)
  end
  call_many('HSET', P .. 'outbox', rows)
  call_many('HSET', P .. 'outbox_of:' .. run.id, mine)
  for kind, numbers in pairs(kinds) do
    call_many('ZADD', P .. 'outbox:' .. kind, numbers)
  end
  bump(run, 'outbox', count)
end
