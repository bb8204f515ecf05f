-- Wake: when the lanes of a run may be asked, in wake:<run>; and flush(), which writes what a call has changed.
local function append(book, key, first, second)
  local list = book[key]
  if not list then
    list = {}
    book[key] = list
  end
  list[#list + 1] = first
  list[#list + 1] = second
end

-- What waits with needs is found by them: claims that lack these do not come by it.
local function note_apart(wake, sleep, run, run_lane, id, at)
  for needs, shelf in pairs(run_lane[APART]) do
    local key = apart_key('wake:', run.id, needs)
    if at and ready_in(shelf) + shelf[ISOLATED] > 0 then
      append(wake, key, at, id)
      wake[key].run = run
    else
      append(sleep, key, id)
    end
  end
end

local wait_for_place, has_joined, flush
do  -- Lua counts the local names that are in sight, and allows 200
  -- The runs that are told when a lane opens: those whose claims found it full.
  local function waiting_runs(lane)
    local waiting = lane[WAITING_RUNS]
    return waiting and waiting[1] == lane[GIVEN] and waiting
  end

  function wait_for_place(lane, number)
    local waiting = waiting_runs(lane)
    if not waiting then
      return  -- all are told
    end
    for i = 2, #waiting do
      if waiting[i] == number then
        return
      end
    end
    waiting[#waiting + 1] = number
  end

  -- Whether a lane knows a run; those that ended or began again come and go in slices.
  function has_joined(lane, run)
    if run.left == 0 then
      return true
    end
    for _, number in ipairs(lane[RUNS]) do
      if number == run.id then
        return true
      end
    end
    return false
  end

  -- The runs that are told anew when a lane may be asked, beside those that changed what they have there; nil: all that it knows.
  local function runs_to_tell(lane, how, at, before)
    if how ~= 'its_own' or before == nil or (at and before and at < before) then
      lane[WAITING_RUNS] = nil
      return nil
    elseif at and before == false then
      local waiting = waiting_runs(lane)
      lane[WAITING_RUNS] = nil
      return waiting and {unpack(waiting, 2)}
    elseif before and not at then
      lane[WAITING_RUNS] = {lane[GIVEN]}
    end
    return {}
  end

  function flush()
    local packed, wake, sleep, wake_apart, sleep_apart, states_changed = {}, {}, {}, {}, {}, false
    for _, run in pairs(runs) do
      states_changed = states_changed or (run and run.changed.state)
    end

    local function tell(number, id, at)
      local run = get_run(number)
      local run_lane = accepts_tasks(run) and get_run_lane(run, id)
      if run_lane and at and ready_in(run_lane) + run_lane[ISOLATED] > 0 then
        append(wake, number, at, id)
      else
        append(sleep, number, id)
      end
      if run_lane and run_lane[APART] then
        note_apart(wake_apart, sleep_apart, run, run_lane, id, at or nil)
      end
    end

    for id, how in pairs(touched) do
      local lane = get_lane(id)
      local at, before = wake_time(lane), lanes.read_wake[id]
      local told = runs_to_tell(lane, states_changed and 'all' or how, at, before)
      lanes.read_wake[id] = at
      for _, number in ipairs(told or lane[RUNS]) do
        tell(number, id, at)
      end
      for number, changed in pairs(told and run_lanes_changed or {}) do
        if changed[id] and has_joined(lane, get_run(number)) then
          tell(number, id, at)
          if not at then
            wait_for_place(lane, number)
          end
        end
      end
      packed[#packed + 1] = id
      packed[#packed + 1] = cmsgpack.pack(lane)
    end
    call_many('HSET', P .. 'lanes', packed)
    for number, changed in pairs(run_lanes_changed) do
      local values = {}
      for id in pairs(changed) do
        values[#values + 1] = id
        values[#values + 1] = cmsgpack.pack(run_lanes[number][id])
      end
      call_many('HSET', P .. 'run_lanes:' .. number, values)
    end
    for number, values in pairs(wake) do
      local key = P .. 'wake:' .. number
      if call('EXISTS', key) == 0 then
        hint(get_run(number))
      end
      call_many('ZADD', key, values)
    end
    for number, values in pairs(sleep) do
      call_many('ZREM', P .. 'wake:' .. number, values)
    end
    for key, values in pairs(wake_apart) do
      if call('EXISTS', key) == 0 then
        hint(values.run)
      end
      call_many('ZADD', key, values)
    end
    for key, values in pairs(sleep_apart) do
      call_many('ZREM', key, values)
    end
    for number, run in pairs(runs) do
      if run and next(run.changed) then
        local values = {}
        for field in pairs(run.changed) do
          values[#values + 1] = field
          values[#values + 1] = run[field]
        end
        call_many('HSET', P .. 'run:' .. number, values)
        run.changed = {}
      end
    end
    touched, run_lanes_changed = {}, {}
  end
end
