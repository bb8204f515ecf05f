-- Base: names, numbers and the clock. Times are microseconds; a task id is run * 2^32 + number, and all
-- of them stay below 2^53, which Lua's numbers hold exactly. Never join a large number to a string: use int().
local call, fmt, byte, sub = redis.call, string.format, string.byte, string.sub
local floor, max, min = math.floor, math.max, math.min
local pack, unpack_struct = struct.pack, struct.unpack
local P = sub(KEYS[1], 1, -5)  -- "{namespace}:", from "{namespace}:meta"
local SHIFT = 4294967296

local now
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
end

local function int(number)
  return fmt('%.0f', number)
end

local function split_id(id)
  id = tonumber(id)
  local run = floor(id / SHIFT)
  return run, id - run * SHIFT
end

-- What others may have written, too: nil if it cannot be read.
local function read_packed(packed)
  local is_read, value = pcall(cmsgpack.unpack, packed)
  return is_read and type(value) == 'table' and value or nil
end

-- Lua cannot pass more than some 8,000 values at once.
local function call_many(command, key, values)
  for first = 1, #values, 4000 do
    call(command, key, unpack(values, first, min(first + 3999, #values)))
  end
end

local function gather(command, key, fields)
  local found = {}
  for first = 1, #fields, 4000 do
    for i, value in ipairs(call(command, key, unpack(fields, first, min(first + 3999, #fields)))) do
      found[first + i - 1] = value
    end
  end
  return found
end
