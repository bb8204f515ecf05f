-- Ending: runs close their account at once; their lanes notice in slices. What was cancelled with a run is kept where it is for
-- a while (its fields kept, undo_until, before, kept_ready and kept_delayed), so that this can be undone; then it goes in slices, too.
local SLICE = 100  -- lanes per call: nobody else is answered meanwhile
local UNDO, LIMIT = 3600000000, 86400000000  -- for so long what was cancelled with a run is kept, or what its page limit left

local function get_kept(run, field)
  return tonumber(call('HGET', P .. 'run:' .. run.id, field) or 0)
end

local function keeps_tasks(run)
  return get_kept(run, 'undo_until') > now
end

-- A task that was cancelled with its run waits if that is undone.
local function keep_returned(run, enqueue)
  local ready, delayed = run.ready, run.delayed
  enqueue()
  call('HINCRBY', P .. 'run:' .. run.id, 'kept_ready', 1)
  call('HINCRBY', P .. 'run:' .. run.id, 'kept_delayed', run.delayed - delayed)
  set(run, 'ready', ready)
  set(run, 'delayed', delayed)
end

-- A slice of a run's lanes: one that ended leaves them, with what it had there unless that is kept; one that began again joins them.
local function sweep(run)
  if run.left == 0 then
    return
  end
  local slice = call('LRANGE', P .. 'lane_order:' .. run.id, run.cursor, run.cursor + SLICE - 1)
  local numbers, live, kept = {}, accepts_tasks(run), get_kept(run, 'kept') == 1
  for i, id in ipairs(slice) do
    numbers[i] = tonumber(id)
  end
  if #numbers > 0 then
    load_lanes(numbers)
    load_run_lanes(run, numbers)
  end
  for _, id in ipairs(numbers) do
    local lane, run_lane = get_lane(id), get_run_lane(run, id)
    if live then
      join(lane, run.id)
    else
      leave(lane, run.id)
    end
    if not live and not kept then
      local lists = {}
      for band = 0, BANDS - 1 do
        lists[band + 1] = ready_list(run.id, id, band)
      end
      for needs in pairs(run_lane[APART] or {}) do
        for line = needs * BANDS, needs * BANDS + BANDS - 1 do
          lists[#lists + 1] = ready_list(run.id, id, line)
        end
      end
      call('UNLINK', unpack(lists))
      run_lane[APART] = nil
      for i = ISOLATED, FIRST + BANDS - 1 do
        run_lane[i] = 0
      end
      touch_run_lane(run, id)
    end
    apply_pace(id)
  end
  set(run, 'cursor', run.cursor + #numbers)
  if #numbers < SLICE then
    set(run, 'left', 0)
  end
end

local function begin_sweep(run)
  set(run, 'left', 1)
  set(run, 'cursor', 0)
  sweep(run)
  if run.left == 1 then
    call('SADD', P .. 'sweeping', run.id)
  end
end

local function end_run(run, state)
  set(run, 'state', state)
  set(run, 'changed_at', now)
  set(run, 'finished_at', now)
  call('ZREM', P .. 'live_runs', run.id)
  for needs = 0, run.needs_sets do
    call('UNLINK', apart_key('wake:', run.id, needs))
  end
  begin_sweep(run)
end

-- What was cancelled with a run is kept no longer. What makes room comes first: a full server lets a script go on after that.
local function begin_clearing(run)
  call('ZREM', P .. 'undoable', run.id)
  call('HSET', P .. 'run:' .. run.id, 'kept', 0, 'undo_until', 0, 'cleared', 1)
  set(run, 'isolated', 0)
  for _, name in ipairs({'delayed:', 'ttl:', 'isolated:', 'stored:', 'returned:'}) do
    call('UNLINK', P .. name .. run.id)
  end
  call('UNLINK', P .. 'needed:' .. run.id)
  for needs = 1, run.needs_sets do
    call('UNLINK', apart_key('wake:', run.id, needs), apart_key('isolated:', run.id, needs))
  end
  begin_sweep(run)
end

-- Leased tasks may still bring their records: those under a lease up to `cut` are late.
local function cancel(run, state)
  for _, number in ipairs(call('HKEYS', P .. 'leases')) do
    if tonumber(number) > run.cut then
      local held = call('HGETALL', P .. 'lease:' .. number)
      for i = 1, #held, 2 do
        if split_id(held[i]) == run.id then
          local _, id = unpack_struct('>dI4', held[i + 1])
          local lane = get_lane(id)
          lane[FLIGHT] = lane[FLIGHT] - 1
          touch(id)
        end
      end
    end
  end
  local last = tonumber(call('HGET', P .. 'meta', 'lease') or 0)
  call('HSET', P .. 'meta', 'cut', int(last))
  set(run, 'cut', last)
  local undo_until = int(now + (state == 'finished' and LIMIT or UNDO))
  call('HSET', P .. 'run:' .. run.id, 'kept', 1, 'undo_until', undo_until, 'before', run.state, 'kept_ready', run.ready, 'kept_delayed', run.delayed)
  call('ZADD', P .. 'undoable', undo_until, run.id)
  bump(run, 'cancelled', run.ready + run.leased)
  set(run, 'ready', 0)
  set(run, 'delayed', 0)
  set(run, 'leased', 0)
  end_run(run, state)
end

-- Take back a cancel: the account is as it would be, and the lanes notice one after the other.
local function undo(run)
  local leased = 0
  for _, number in ipairs(call('HKEYS', P .. 'leases')) do
    local held = call('HGETALL', P .. 'lease:' .. number)
    for i = 1, #held, 2 do
      if split_id(held[i]) == run.id then
        local _, id = unpack_struct('>dI4', held[i + 1])
        local lane = get_lane(id)
        lane[FLIGHT] = lane[FLIGHT] + 1
        touch(id)
        leased = leased + 1
      end
    end
  end
  local ready = get_kept(run, 'kept_ready')
  set(run, 'cut', 0)
  bump(run, 'cancelled', -ready - leased)
  set(run, 'ready', ready)
  set(run, 'delayed', get_kept(run, 'kept_delayed'))
  set(run, 'leased', leased)
  set(run, 'state', call('HGET', P .. 'run:' .. run.id, 'before'))
  set(run, 'changed_at', now)
  set(run, 'finished_at', 0)
  call('HSET', P .. 'run:' .. run.id, 'kept', 0, 'undo_until', 0)
  call('HSET', P .. 'keys', call('HGET', P .. 'run:' .. run.id, 'key'), run.id)
  call('ZREM', P .. 'undoable', run.id)
  call('ZADD', P .. 'live_runs', run.id, run.id)
  begin_sweep(run)
end

-- The run with the same key that has not ended, if there is one.
local function going_on(run)
  local other = get_run(tonumber(call('HGET', P .. 'keys', call('HGET', P .. 'run:' .. run.id, 'key')) or 0))
  return accepts_tasks(other) and other
end

-- One that comes back is level with the others, it does not catch up.
local function level(run)
  local least
  for _, id in ipairs(call('ZRANGE', P .. 'live_runs', 0, -1)) do
    local other = get_run(tonumber(id))
    if other.id ~= run.id and other.state == 'running' and (not least or other.share < least) then
      least = other.share
    end
  end
  set(run, 'share', max(run.share, least or 0))
  hint(run)
end

-- When as many pages have ended as were asked for, the rest is cancelled and the run is complete.
local function stop_at_limit(run)
  if run.max_pages > 0 and run.done + run.dead + run.discarded - run.aside >= run.max_pages and accepts_tasks(run) and run.ready + run.leased > 0 then
    cancel(run, 'finished')
  end
end
