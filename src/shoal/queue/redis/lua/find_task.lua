-- Finding: where a task is, from its number alone.
local window = 1  -- items read together: more where many are looked for in the order of their numbers
local sought_by_lane = {}  -- by lane: how many are looked for there, where that is known
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

-- The lines of a run in a lane that hold tasks.
local function lines_in(run_lane)
  local lines = {}
  for band = 0, BANDS - 1 do
    if run_lane and run_lane[FIRST + band] > 0 then
      lines[#lines + 1] = band
    end
  end
  for needs, shelf in pairs(run_lane and run_lane[APART] or {}) do
    for band = 0, BANDS - 1 do
      if shelf[FIRST + band] > 0 then
        lines[#lines + 1] = needs * BANDS + band
      end
    end
  end
  return lines
end

-- The inline item of a task that waits, its line and its place in the list.
local function find_inline(run, number, lane)
  for _, line in ipairs(lines_in(get_run_lane(run, lane))) do
    local item, at = search(ready_list(run.id, lane, line), number, sought_by_lane[lane] or window)
    if item then
      return item, line, at
    end
  end
end

local SHORT = 24  -- items of a list that is read whole
local PREDICTION_TRIES = 4
local predicted = {score = 0}  -- where some were found: those of other lanes may lie alike. Given up after so many that do not

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

-- The inline items of a short list, by number, and their locations.
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

local function predict(run, band, at)
  predicted.score = predicted.at and predicted.score or PREDICTION_TRIES
  predicted.at, predicted.from, predicted.upto = at, tostring(at), {}
  predicted.before, predicted.behind = P .. 'ready:' .. run.id .. ':', ':' .. band
end

-- The inline items of tasks that wait in a lane, of the first so many numbers, which are in order; false for what is not there.
local function find_waiting(run, lane, numbers, count)
  if predicted.score > 0 then
    -- Numbers as strings, made once: to make them takes longer than to read an item.
    local upto = predicted.upto[count] or tostring(predicted.at + count - 1)
    predicted.upto[count] = upto
    local items = together(predicted.before .. lane .. predicted.behind, numbers, count, predicted.from, upto)
    if items then
      predicted.score = PREDICTION_TRIES
      return items
    end
    predicted.score = predicted.score - 1
  end
  local run_lane, found = get_run_lane(run, lane), {}
  for i = 1, count do
    found[i] = false
  end
  for _, line in ipairs(lines_in(run_lane)) do
    local list = ready_list(run.id, lane, line)
    local near = ready_in_line(run_lane, line) <= SHORT and whole(list) or {}
    for i = 1, count do
      local item, at = near[numbers[i]], i == 1 and near.at and near.at[numbers[i]]
      if not item then
        item, at = search(list, numbers[i], count)
      end
      found[i] = found[i] or item or false
      if i == 1 and item then
        predict(run, line, at)
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

-- Where it is (held, stored, waits, row; late and left of a cancelled run; gone, discarded; nothing if it never was), its text, its lane
-- and, of one that is held, the lease; of one that waits in a list, its line. Without texts the rows of ended tasks are not read.
local function find_at(run, number, tag, value, texts)
  if tag == UNKNOWN then
    return
  end
  if tag == ENDED or tag == CANCELLED_ROW then
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
  if tag == REMOVED or tag == DISCARDED then
    return tag == REMOVED and 'gone' or 'discarded', ''
  end
  if tag == WAITING then
    local item, line = find_inline(run, number, value)
    if item then
      return accepts_tasks(run) and 'waits' or 'left', item, value, nil, line
    end
  elseif tag == STORED then
    local stored = call('HGET', P .. 'stored:' .. run.id, number)
    if stored then
      return accepts_tasks(run) and 'stored' or 'left', stored, value
    end
  end
  return find_lost(run, number, value)
end

local function find_task(run, number, texts)
  local tag, value = location_of(run.id, number)
  return find_at(run, number, tag, value, texts)
end

-- The numbers a run has given, in order from `first` on, as many as one call may look at; `each` may answer true to stop.
-- Answers: the number to go on with, 0 at the end.
local function each_number(run, first, most, each)
  local number, chunks = first, 0
  while number < run.next_task do
    local chunk = floor(number / LOCATIONS_PER_KEY)
    local finish = min(run.next_task, (chunk + 1) * LOCATIONS_PER_KEY) - 1
    chunks = chunks + 1
    if call('EXISTS', P .. 'location:' .. run.id .. ':' .. chunk) == 1 then
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
