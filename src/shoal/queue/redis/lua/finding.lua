-- Finding: where a task is, from its number alone.
local window = 1  -- items read together: more where many are looked for in the order of their numbers
local crowd = {}  -- by lane: how many are looked for there, where that is known
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

-- Most lists are filled evenly: the place where a number should be, if it is there, and its item; -1 if it is nowhere.
local function guess(list, number, length)
  local low, high = call('LINDEX', list, 0), call('LINDEX', list, -1)
  if byte(low) ~= 1 or byte(high) ~= 1 then
    return
  end
  low, high = unpack_struct('>I4', low, 2), unpack_struct('>I4', high, 2)
  if number < low or number > high then
    return -1
  end
  local at = high > low and floor((number - low) / (high - low) * (length - 1) + 0.5) or 0
  local item = call('LINDEX', list, at)
  if byte(item) == 1 and unpack_struct('>I4', item, 2) == number then
    return at, item
  end
end

local views = {}  -- of lists: the numbers that were looked at (first, last), and items

local function search(list, number, window)
  local view = views[list]
  if not view or number < view.first or number > view.last then
    local length = call('LLEN', list)
    local from, item = 0, nil
    if length > 0 then
      from, item = guess(list, number, length)
    end
    if from == -1 then
      return
    end
    if item and window == 1 then
      return item, from
    end
    view = {first = number, last = number, items = {}, at = {}}
    from = from or lower_bound(list, number, length)
    for i, item in ipairs(length > 0 and call('LRANGE', list, from, from + window - 1) or {}) do
      if byte(item) == 1 then
        local found = unpack_struct('>I4', item, 2)
        view.items[found], view.at[found] = item, from + i - 1
        view.last = max(view.last, found)
      end
    end
    if from + window >= length then
      view.last = SHIFT
    end
    views[list] = view
  end
  return view.items[number], view.at[number]
end

-- The inline item of a task that waits, its band and its place in the list.
local function find_inline(run, number, lane)
  local head = get_head(run, lane)
  for band = 0, BANDS - 1 do
    if head and head[FIRST + band] > 0 then
      local item, at = search(ready_list(run.id, lane, band), number, crowd[lane] or window)
      if item then
        return item, band, at
      end
    end
  end
end

local SHORT = 24  -- items of a list that is read whole
local HOPE = 4
local hoped = {score = 0}  -- where some were found: those of other lanes may lie alike. Given up after so many that do not

-- The items of the first so many numbers, in their order, if they lie together from here on; nothing if not.
local function together(list, numbers, count, from, upto)
  local items = call('LRANGE', list, from, upto)
  for i = 1, count do
    local item = items[i]
    if not item or byte(item) ~= 1 or unpack_struct('>I4', item, 2) ~= numbers[i] then
      return nil
    end
  end
  return items
end

-- The inline items of a short list, by number, and their places.
local function whole(list)
  local found = {at = {}}
  for at, item in ipairs(call('LRANGE', list, 0, 2 * SHORT)) do
    if byte(item) == 1 then
      local number = unpack_struct('>I4', item, 2)
      found[number], found.at[number] = item, at - 1
    end
  end
  return found
end

local function hope(run, band, at)
  hoped.score = hoped.at and hoped.score or HOPE
  hoped.at, hoped.from, hoped.upto = at, tostring(at), {}
  hoped.before, hoped.behind = P .. 'ready:' .. run.id .. ':', ':' .. band
end

-- The inline items of tasks that wait in a lane, of the first so many numbers, which are in order; false for what is not there.
local function find_waiting(run, lane, numbers, count)
  if hoped.score > 0 then
    -- Numbers as strings, made once: to make them takes longer than to read an item.
    local upto = hoped.upto[count] or tostring(hoped.at + count - 1)
    hoped.upto[count] = upto
    local items = together(hoped.before .. lane .. hoped.behind, numbers, count, hoped.from, upto)
    if items then
      hoped.score = HOPE
      return items
    end
    hoped.score = hoped.score - 1
  end
  local head, found = get_head(run, lane), {}
  for i = 1, count do
    found[i] = false
  end
  for band = 0, BANDS - 1 do
    local length = head and head[FIRST + band] or 0
    if length > 0 then
      local list = ready_list(run.id, lane, band)
      local near = length <= SHORT and whole(list) or {}
      for i = 1, count do
        local item, at = near[numbers[i]], i == 1 and near.at and near.at[numbers[i]]
        if not item then
          item, at = search(list, numbers[i], count)
        end
        found[i] = found[i] or item or false
        if i == 1 and item then
          hope(run, band, at)
        end
      end
    end
  end
  return found
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

-- A task that is not where it would wait: it is held, or gone.
local function find_lost(run, number, lane)
  local lease, text = find_held(run, number)
  if lease then
    return tonumber(lease) <= run.cut and 'late' or 'held', text, lane, lease
  end
  return 'gone', '', lane
end

-- Where it is (held, odd, waits, row; late and left of a cancelled run; gone; nothing if it never was), its text, its lane
-- and, of one that is held, the lease. Without texts the rows of ended tasks are not read.
local function find_at(run, number, tag, value, texts)
  if tag == NOWHERE then
    return
  end
  if tag == ENDED or tag == CALLED_OFF then
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
  if tag == WAITS then
    local item = find_inline(run, number, value)
    if item then
      return takes_work(run) and 'waits' or 'left', item, value
    end
  elseif tag == ODD then
    local odd = call('HGET', P .. 'odd:' .. run.id, number)
    if odd then
      return 'odd', odd, value
    end
  end
  return find_lost(run, number, value)
end

local function find_task(run, number, texts)
  local tag, value = place_of(run.id, number)
  return find_at(run, number, tag, value, texts)
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
