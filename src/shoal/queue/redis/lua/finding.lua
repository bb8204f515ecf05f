-- Finding: where a task is, from its number alone.
local window = 1  -- items read together: more where many are looked for in the order of their numbers
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

-- The first inline item from a place on; the others are of tasks that are kept elsewhere.
local function number_at(list, at, length)
  local step = 1
  while at < length do
    for _, item in ipairs(call('LRANGE', list, at, min(at + step, length) - 1)) do
      if byte(item) == 1 then
        return (unpack_struct('>I4', item, 2)), at
      end
      at = at + 1
    end
    step = 50
  end
end

-- Inline items of a list are in the order of their numbers: the place of the first one from `number` on.
local function lower_bound(list, number, length)
  local low, high = 0, length
  while low < high do
    local middle = floor((low + high) / 2)
    local found, at = number_at(list, middle, high)
    if not found or found >= number then
      high = middle
    else
      low = at + 1
    end
  end
  local _, at = number_at(list, low, length)
  return at or length
end

local views = {}  -- of lists: the numbers that were looked at (first, last), and items

local function search(list, number)
  local view = views[list]
  if not view or number < view.first or number > view.last then
    local length = call('LLEN', list)
    local from = length > 0 and lower_bound(list, number, length) or 0
    view = {first = number, last = number, items = {}}
    for _, item in ipairs(length > 0 and call('LRANGE', list, from, from + window - 1) or {}) do
      if byte(item) == 1 then
        local found = unpack_struct('>I4', item, 2)
        view.items[found] = item
        view.last = max(view.last, found)
      end
    end
    if from + window >= length then
      view.last = SHIFT
    end
    views[list] = view
  end
  return view.items[number]
end

local rows = {first = 0, last = -1}  -- of ended tasks, by position

local function ended_row(id, position)
  if position < rows.first or position > rows.last then
    rows = {first = position, last = position + window - 1}
    for i, row in ipairs(call('LRANGE', P .. 'ended:' .. id, rows.first, rows.last)) do
      rows[position + i - 1] = row
    end
  end
  return rows[position]
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
    local row = ended_row(run.id, value)
    return row and 'row' or 'gone', row or ''
  end
  if tag == DEAD then
    local row = call('HGET', P .. 'dead:' .. run.id, number)
    return row and 'row' or 'gone', row or ''
  end
  if tag == PASSED then
    return 'gone', ''
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
    local head = get_head(run, value)
    for band = 0, BANDS - 1 do
      local item = head and head[FIRST + band] > 0 and search(ready_list(run.id, value, band), number)
      if item then
        return takes_work(run) and 'waits' or 'left', item, value
      end
    end
  end
  return 'gone', '', value
end

-- The numbers a run has given, in order from `first` on, as many as one call may look at; `each` may answer true to stop.
-- Answers: the number to go on with, 0 at the end.
local function each_number(run, first, most, each)
  local number, chunks = first, 0
  while number < run.next_task do
    local chunk = floor(number / PLACES)
    local finish = min(run.next_task, (chunk + 1) * PLACES) - 1
    chunks = chunks + 1
    if call('EXISTS', P .. 'place:' .. run.id .. ':' .. chunk) == 1 then
      for one = number, finish do
        most = most - 1
        if each(one) or most <= 0 then
          return one + 1 < run.next_task and one + 1 or 0
        end
      end
    end
    number = finish + 1
    if chunks >= 5000 then
      return number < run.next_task and number or 0
    end
  end
  return 0
end
