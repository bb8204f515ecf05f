-- Hand out: a lease for what was picked, and how it is told: lease, next (or -1), lanes (id, name, spacing, parked each), tasks (id, held each), now.
local function tell_claim(number, tasks)
  local about, told = {}, {}
  for i = 2, #tasks, 2 do
    local _, id = unpack_struct('>dI4', tasks[i])
    if not told[id] then
      told[id] = true
      local lane = get_lane(id)
      for _, value in ipairs({id, lane[NAME], lane[SPACING], lane[PARKED]}) do
        about[#about + 1] = value
      end
    end
  end
  return {int(number), -1, about, tasks, now}
end

-- What is still leased of the batch of a request that was answered before, as long as its lease lives.
local function same_request(worker, request)
  local number = request ~= '' and call('HGET', P .. 'requests', request_name(worker, request))
  local lease = number and get_lease(number)
  if lease and lease[UNTIL] > now then
    local held, kept = call('HGETALL', P .. 'lease:' .. number), {}
    for i = 1, #held, 2 do
      local run = get_run((split_id(held[i])))
      if run and tonumber(number) > run.cut then
        kept[#kept + 1] = held[i]
        kept[#kept + 1] = held[i + 1]
      end
    end
    return tell_claim(tonumber(number), kept)
  elseif lease then
    lease[REQUEST] = ''  -- the name goes to the next lease, and does not end with this one
    set_lease(number, lease)
  end
end

-- A lease for what was picked: run, number, lane, line, item and slot each. The caller flushes.
local function open_lease(picked, worker, request, span, last_lease)
  local number = max(last_lease + 1, now)
  call('HSET', P .. 'meta', 'lease', int(number))
  local tasks, latest, counts = {}, {}, {}
  for _, pick in ipairs(picked) do
    local run, task, id, band, item, slot = unpack(pick)
    tasks[#tasks + 1] = int(run.id * SHIFT + task)
    tasks[#tasks + 1] = pack('>dI4B', slot, id, band) .. item
    local lane = get_lane(id)
    lane[FLIGHT] = lane[FLIGHT] + 1
    lane[GIVEN] = lane[GIVEN] + 1
    latest[id] = max(latest[id] or 0, slot)
    counts[run] = (counts[run] or 0) + 1
  end
  for id, slot in pairs(latest) do
    local lane = get_lane(id)
    advance_slot(lane, slot, lane[SPACING])
    touch(id, true)
  end
  for run, count in pairs(counts) do
    bump(run, 'ready', -count)
    bump(run, 'leased', count)
  end
  call_many('HSET', P .. 'lease:' .. int(number), tasks)
  set_lease(int(number), {worker, request, now + span, 0, {}})
  if request ~= '' then
    call('HSET', P .. 'requests', request_name(worker, request), int(number))
  end
  return number, tasks, counts
end
