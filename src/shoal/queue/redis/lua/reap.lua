-- uses: base lanes items leases ending
-- reap: now, how many dead workers, then of each: name, how many tasks it was executing, their ids.
-- Answers: returned, dead, expired, whether there is more to do.
local TASKS, EXPIRED_TASKS, LOST_LIMIT = 500, 200, 3
local SILENT = 'the worker died or fell silent while it held this task'
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

local function give_back(number, lease, charged)
  local held = call('HGETALL', P .. 'lease:' .. number)
  for i = 1, #held, 2 do
    local id, value = held[i], held[i + 1]
    local run = get_run((split_id(id)))
    handled = handled + 1
    -- One that was cancelled with its run is only dropped: nobody will bring its records any more.
    if run and tonumber(number) > run.cut then
      local task = unpack_held(value)
      local lane = get_lane(task.lane)
      lane[FLIGHT] = lane[FLIGHT] - 1
      touch(task.lane)
      bump(run, 'leased', -1)
      local guilty = not charged or charged[id]
      if guilty then
        task.lost = task.lost + 1
        bump(run, 'lost', 1)
      end
      local attempt = guilty and made_attempt(lease[WORKER], 'worker_lost', SILENT) or ''
      if task.lost >= LOST_LIMIT then
        bury(run, task, 0, 'worker_lost', '', attempt)
        bump(run, 'dead', 1)
        dead = dead + 1
      else
        remember(task, attempt)
        task.due = min(task.due, now)
        wait_odd(run, task, true)
        place(run.id, task.number, ODD, task.lane)
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
for _, number in ipairs(call('ZRANGEBYSCORE', P .. 'until', '-inf', int(now), 'LIMIT', 0, 100)) do
  lost[#lost + 1] = {number, get_lease(number)}
end
if #lost == 100 then
  more = 1
end
if next(dead_workers) then
  local all = call('HGETALL', P .. 'leases')
  for i = 1, #all, 2 do
    local lease = cmsgpack.unpack(all[i + 1])
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
for _, id in ipairs(call('ZRANGE', P .. 'live', 0, -1)) do
  local run = get_run(tonumber(id))
  local over = call('ZRANGEBYSCORE', P .. 'ttl:' .. id, '-inf', int(now), 'LIMIT', 0, EXPIRED_TASKS)
  for _, number in ipairs(over) do
    expire(run, unpack_item(call('HGET', P .. 'odd:' .. id, number)))
    expired = expired + 1
  end
  if #over == EXPIRED_TASKS then
    more = 1
  end
  stop_at_limit(run)  -- tasks that expired or lost their workers count as ended too
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
