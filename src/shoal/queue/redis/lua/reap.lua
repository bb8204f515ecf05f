-- uses: base lanes wake failing items leases end_run
-- reap: now, how many dead workers, then of each: name, how many tasks it was executing, their ids.
-- Answers: returned, dead, expired, whether there is more to do.
local TASKS, EXPIRED_TASKS, DISCARDED_TASKS, LOST_LIMIT = 500, 200, 200, 3
local UNACKNOWLEDGED = 'its lease ended before it was settled, and it is handed out once at most'
local SILENT = 'the worker died or went silent while it held this task'
local dead_workers, at = {}, 3
for _ = 1, tonumber(ARGV[2]) do
  local executing = {}
  for i = 1, tonumber(ARGV[at + 1]) do
    executing[ARGV[at + 1 + i]] = true
  end
  dead_workers[ARGV[at]] = executing
  at = at + 2 + tonumber(ARGV[at + 1])
end
local returned, dead, expired, handled, more = 0, 0, 0, 0, 0

-- Of one that was cancelled with its run nobody will bring the records any more: it waits if that is undone, or goes.
local function give_back_late(run, task)
  if keeps_tasks(run) and not is_auto(task) then
    task.due = min(task.due, now)
    keep_returned(run, function() enqueue_stored(run, task, true) end)
    set_location(run.id, task.number, STORED, task.lane)
  else
    set_location(run.id, task.number, REMOVED, 0)
  end
end

local function give_back(number, lease, charged)
  local held = call('HGETALL', P .. 'lease:' .. number)
  for i = 1, #held, 2 do
    local id, value = held[i], held[i + 1]
    local run = get_run((split_id(id)))
    handled = handled + 1
    if run and tonumber(number) <= run.cut then
      give_back_late(run, unpack_held(value))
    elseif run and tonumber(number) > run.cut then
      local task = unpack_held(value)
      local lane = get_lane(task.lane)
      lane[FLIGHT] = lane[FLIGHT] - 1
      touch(task.lane, true)
      bump(run, 'leased', -1)
      local auto = is_auto(task)
      local is_charged = not auto and (not charged or charged[id])
      if is_charged then
        task.lost = task.lost + 1
        bump(run, 'lost', 1)
      end
      local attempt = is_charged and new_attempt(lease[WORKER], 'worker_lost', SILENT) or ''
      if auto then
        dead_letter(run, task, 0, 'unacknowledged', '', new_attempt(lease[WORKER], 'unacknowledged', UNACKNOWLEDGED))
        bump(run, 'dead', 1)
        dead = dead + 1
      elseif task.lost >= LOST_LIMIT then
        dead_letter(run, task, 0, 'worker_lost', '', attempt)
        bump(run, 'dead', 1)
        dead = dead + 1
      else
        append_attempt(task, attempt)
        enqueue_stored(run, task, true)
        set_location(run.id, task.number, STORED, task.lane)
        bump(run, 'ready', 1)
        returned = returned + 1
      end
    end
  end
  drop_lease(number)
end

local function started(lease)
  if lease[EXTENDED] == 0 then
    return nil
  end
  local begun = {}
  for _, id in ipairs(lease[STARTED]) do
    begun[id] = true
  end
  return begun
end

local lost = {}
for _, number in ipairs(call('ZRANGEBYSCORE', P .. 'lease_expiry', '-inf', int(now), 'LIMIT', 0, 100)) do
  lost[#lost + 1] = {number, get_lease(number)}
end
if #lost == 100 then
  more = 1
end
if next(dead_workers) then
  local all = call('HGETALL', P .. 'leases')
  for i = 1, #all, 2 do
    local lease = read_lease(all[i + 1])
    if dead_workers[lease[WORKER]] and lease[UNTIL] > now then
      lost[#lost + 1] = {all[i], lease}
    end
  end
end
for _, one in ipairs(lost) do
  if handled >= TASKS then
    more = 1
    break
  end
  local number, lease = one[1], one[2]
  give_back(number, lease, dead_workers[lease[WORKER]] or started(lease))
end
for _, id in ipairs(call('ZRANGE', P .. 'live_runs', 0, -1)) do
  local run = get_run(tonumber(id))
  local over = expire_some(run, EXPIRED_TASKS)
  expired = expired + over
  if over == EXPIRED_TASKS then
    more = 1
  end
  stop_at_limit(run)  -- tasks that expired or lost their workers count as ended too
end
for _, id in ipairs(call('SMEMBERS', P .. 'discarding')) do
  local run = get_run(tonumber(id))
  if not run then
    call('SREM', P .. 'discarding', id)
  elseif run.dead > 0 and discard_some(run, DISCARDED_TASKS) == DISCARDED_TASKS then
    more = 1
  end
end
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'undoable', '-inf', int(now), 'LIMIT', 0, 5)) do
  local run = get_run(tonumber(id))
  if run then
    begin_clearing(run)
  else
    call('ZREM', P .. 'undoable', id)
  end
end
for _, id in ipairs(call('SMEMBERS', P .. 'sweeping')) do
  local run = get_run(tonumber(id))
  if run and run.left == 1 then
    sweep(run)
    more = 1
  else
    call('SREM', P .. 'sweeping', id)
  end
end
flush()
return {returned, dead, expired, more}
