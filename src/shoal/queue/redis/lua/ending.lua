-- Ending: runs close their account at once; what they leave in lanes and lists goes in slices.
local SLICE = 500  -- lanes per call

-- A slice of a run's lanes: one that ended leaves them, with what it had there; one that began again joins them.
local function sweep(run)
  if run.left == 0 then
    return
  end
  local slice = call('LRANGE', P .. 'order:' .. run.id, run.cursor, run.cursor + SLICE - 1)
  local numbers, live = {}, takes_work(run)
  for i, id in ipairs(slice) do
    numbers[i] = tonumber(id)
  end
  if #numbers > 0 then
    load_lanes(numbers)
    load_heads(run, numbers)
  end
  for _, id in ipairs(numbers) do
    local lane, head = get_lane(id), get_head(run, id)
    if live then
      join(lane, run.id)
    else
      leave(lane, run.id)
      local lists = {}
      for band = 0, BANDS - 1 do
        lists[band + 1] = ready_list(run.id, id, band)
      end
      call('UNLINK', unpack(lists))
      for i = ALONE, FIRST + BANDS - 1 do
        head[i] = 0
      end
      touch_head(run, id)
    end
    settle_pace(id)
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
  set(run, 'alone', 0)
  call('ZREM', P .. 'live', run.id)
  for _, name in ipairs({'wake:', 'delayed:', 'ttl:', 'alone:', 'odd:', 'back:'}) do
    call('UNLINK', P .. name .. run.id)
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
  bump(run, 'cancelled', run.ready + run.leased)
  set(run, 'ready', 0)
  set(run, 'delayed', 0)
  set(run, 'leased', 0)
  end_run(run, state)
end

-- When as many pages have ended as were asked for, the rest is cancelled and the run is complete.
local function stop_at_limit(run)
  if run.max_pages > 0 and run.done + run.dead >= run.max_pages and takes_work(run) and run.ready + run.leased > 0 then
    cancel(run, 'finished')
  end
end
