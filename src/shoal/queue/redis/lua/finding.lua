-- Finding: where a task is, from its number alone.
local held  -- id -> lease, found only if needed

local function find_held(run, number)
  if not held then
    held = {}
    for _, lease in ipairs(call('HKEYS', P .. 'leases')) do
      for _, id in ipairs(call('HKEYS', P .. 'lease:' .. lease)) do
        held[id] = lease
      end
    end
  end
  local id = int(run.id * SHIFT + number)
  return held[id], held[id] and call('HGET', P .. 'lease:' .. held[id], id)
end

local function number_at(list, at, length)
  while at < length do
    local item = call('LINDEX', list, at)
    if byte(item) == 1 then
      return (unpack_struct('>I4', item, 2)), at, item
    end
    at = at + 1  -- a task that is kept elsewhere
  end
end

-- Inline items of a list are in the order of their numbers.
local function search(list, number)
  local low, high = 0, call('LLEN', list)
  while low < high do
    local middle = floor((low + high) / 2)
    local found, at, item = number_at(list, middle, high)
    if found == number then
      return item
    elseif not found or found > number then
      high = middle
    else
      low = at + 1
    end
  end
end

-- Where it is (held, odd, waits, row; late and left of a cancelled run; gone; nothing if it never was), its text, its lane
-- and, of one that is held, the lease. Without texts the rows of ended tasks are not read.
local function find_task(run, number, texts)
  local tag, value = place_of(run.id, number)
  if tag == NOWHERE then
    return
  end
  if tag == ENDED then
    if not texts then
      return value < run.ended and 'row' or 'gone'
    end
    local row = call('LINDEX', P .. 'ended:' .. run.id, value)
    return row and 'row' or 'gone', row or ''
  end
  if tag == DEAD then
    local row = call('HGET', P .. 'dead:' .. run.id, number)
    return row and 'row' or 'gone', row or ''
  end
  if tag == ODD then
    local odd = call('HGET', P .. 'odd:' .. run.id, number)
    if odd then
      return 'odd', odd, value
    end
  end
  local lease, text = find_held(run, number)
  if lease then
    return tonumber(lease) <= run.cut and 'late' or 'held', text, value, lease
  end
  if tag == WAITS then
    for band = 0, BANDS - 1 do
      local item = search(ready_list(run.id, value, band), number)
      if item then
        return takes_work(run) and 'waits' or 'left', item, value
      end
    end
  end
  return 'gone', '', value
end
