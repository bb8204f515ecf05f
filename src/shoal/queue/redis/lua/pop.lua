-- Pop: tasks of a run leave the lines of a lane, in the order in which they are handed out.
local OLDEST_PICK_EVERY, POPS = 16, 400

-- The number of the first task in a line.
local function number_of_first(run, id, line)
  local first = call('LINDEX', ready_list(run.id, id, line), 0)
  return first and (byte(first) == 1 and unpack_struct('>I4', first, 2) or tonumber(first))
end

-- Of the lines of a band that this worker can reach the one whose first task is the oldest, its number, and whether others wait.
local function oldest_line(run, id, run_lane, reach, band)
  local best, oldest, others
  for _, needs in ipairs(reach) do
    local line = needs * BANDS + band
    if ready_in_line(run_lane, line) > 0 then
      local number = number_of_first(run, id, line)
      others = best ~= nil
      if number and (not oldest or number < oldest) then
        best, oldest = line, number
      end
    end
  end
  return best, oldest, others
end

-- Band by band, with the oldest of all bands at every sixteenth pick, and first of all so many that are the oldest anyway.
local function pop(run, id, count, oldest_first, reach)
  local run_lane, got, tries = get_run_lane(run, id), {}, 0
  local picks = run_lane[PICKS]
  while #got < count and tries < POPS do
    local top, second
    for band = 0, BANDS - 1 do
      local waiting = run_lane[FIRST + band]
      for i = 2, #reach do
        waiting = waiting + ready_in_line(run_lane, reach[i] * BANDS + band)
      end
      if waiting > 0 then
        if top then
          second = band
          break
        end
        top = band
      end
    end
    if not top then
      break
    end
    local line, want, pick = top, count - #got, picks + #got + 1
    local before_others = oldest_first > 0
    if second and (before_others or pick % OLDEST_PICK_EVERY == 0) then
      want = 1
      oldest_first = oldest_first - 1
      local oldest
      for other = top, BANDS - 1 do
        local found, number = oldest_line(run, id, run_lane, reach, other)
        if number and (not oldest or number < oldest) then
          oldest, line = number, found
        end
      end
    else
      if second then
        want = min(want, OLDEST_PICK_EVERY - pick % OLDEST_PICK_EVERY)
      end
      if #reach > 1 then
        local found, _, others = oldest_line(run, id, run_lane, reach, top)
        line = found or top
        want = others and 1 or want
      end
      if second or #reach > 1 then
        want = min(want, ready_in_line(run_lane, line))
      end
    end
    local band = line  -- as it is kept of a task
    local items = call('LPOP', ready_list(run.id, id, band), want)
    if not items then
      break
    end
    local cleared, inline = false, 0
    tries = tries + #items
    for _, item in ipairs(items) do
      if byte(item) == 1 then
        inline = inline + 1
        got[#got + 1] = {(unpack_struct('>I4', item, 2)), band, item}
      else
        cleared = cleared or item == CLEARED
        local stored = call('HGET', P .. 'stored:' .. run.id, item)
        local task = stored and unpack_item(stored)
        if task and task.wait_mode == IN_LIST then
          if task.expires > 0 and task.expires <= now then
            expire(run, task)
          else
            dequeue_stored(run, task)
            got[#got + 1] = {task.number, band, stored}
          end
        end
      end
    end
    if inline > 0 then
      add_ready(run, id, band, -inline)
    end
    if cleared then
      call('LREM', ready_list(run.id, id, band), 0, CLEARED)  -- the others that were dropped, too
    end
  end
  return got
end
