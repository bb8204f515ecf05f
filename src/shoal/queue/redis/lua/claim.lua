-- uses: base lanes items leases promote
-- claim: now, worker, limit, lease, request, whether all runs are served, names served.
-- Answers: lease, next (or -1), lanes (id, name, spacing, parked each), tasks (id, held each), now.
-- Order: runs by weighted share, lanes by when they come due, in a lane the run served least there, then band
-- and age; every 16th pick of a (run, lane) takes its oldest. The cost is that of the lanes touched.
local OLDEST_EVERY, PROMOTED, RUNS_CONSIDERED, POPS = 16, 200, 32, 400
local SECOND, HORIZON, ALIVE, LONGEST_WAIT = 1000000, 2000000, 10000000, 60000000
local UNLIMITED = 2 ^ 40
local LANES_SPREAD, RUN_LEAD, LANE_LEAD, COURTESY = 16, 64, 16, 4
local worker, limit, span, request = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local LANES_READ = min(32, limit)  -- at a time

local function answer(number, tasks)
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

if request ~= '' then
  local number = call('HGET', P .. 'requests', request_name(worker, request))
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
    return answer(tonumber(number), kept)
  end
end

local serves_all, serves = ARGV[6] == '1', {}
for i = 7, #ARGV do
  serves[ARGV[i]] = true
end
local last_lease = tonumber(call('HGET', P .. 'meta', 'lease') or 0)

-- After the clock stepped back: no slot lies further away than anybody would have waited for one.
local function forget_future(run)
  local far = call('ZRANGEBYSCORE', P .. 'wake:' .. run.id, '(' .. int(now), '+inf', 'LIMIT', 0, 1000)
  for _, id in ipairs(far) do
    local lane = get_lane(tonumber(id))
    local latest = now + max(lane[SPACING], LONGEST_WAIT)
    if lane[NEXT] > latest or lane[LAST] > now then
      lane[NEXT], lane[LAST] = min(lane[NEXT], latest), min(lane[LAST], now)
      touch(tonumber(id))
    end
  end
end

-- Where pages are counted, those whose time is over are counted first. Answers: whether that was all of them.
local function expire_first(run)
  local over = call('ZRANGEBYSCORE', P .. 'ttl:' .. run.id, '-inf', int(now), 'LIMIT', 0, PROMOTED)
  for _, number in ipairs(over) do
    expire(run, unpack_item(call('HGET', P .. 'odd:' .. run.id, number)))
  end
  return #over < PROMOTED
end

-- Runs: those served, by share, and those that other workers serve.
local served, by_id, strangers = {}, {}, {}
for _, id in ipairs(call('ZRANGE', P .. 'live', 0, -1)) do
  local run = get_run(tonumber(id))
  if run.state == 'running' then
    local mine, all_counted = serves_all or serves[run.name] or serves[run.scraper], true
    if mine then
      all_counted = run.max_pages == 0 or expire_first(run)
      promote(run, PROMOTED)
      if now < last_lease - SECOND then
        forget_future(run)
      end
    end
    if run.ready > run.delayed then
      if not mine then
        if run.asked_at > now - ALIVE then
          strangers[run.id] = max(1, run.weight)
        end
      else
        if now - run.asked_at > SECOND then
          set(run, 'asked_at', now)
        end
        local left = run.max_pages > 0 and run.max_pages - run.done - run.dead - run.leased or UNLIMITED
        if left > 0 then
          local one = {run = run, id = run.id, weight = max(1, run.weight), share = run.share, left = all_counted and left or 0,
            due = {}, first = 1, read = 0}
          served[#served + 1] = one
          by_id[run.id] = one
        end
      end
    elseif mine and run.delayed > 0 then
      served.waiting = served.waiting or {}
      table.insert(served.waiting, run)
    end
  end
end
if next(touched) then
  flush()  -- what was promoted is to be found below
end
table.sort(served, function(a, b) return a.share < b.share or (a.share == b.share and a.id < b.id) end)

local function nothing()
  flush()
  local soonest
  local function consider(key)
    local found = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if found[2] and (not soonest or tonumber(found[2]) < soonest) then
      soonest = tonumber(found[2])
    end
  end
  for _, one in ipairs(served) do
    consider(P .. 'wake:' .. one.id)
    consider(P .. 'delayed:' .. one.id)
  end
  for _, run in ipairs(served.waiting or {}) do
    consider(P .. 'delayed:' .. run.id)
  end
  return {'0', soonest and max(0, soonest - now) or -1, {}, {}, now}
end

if limit < 1 or #served == 0 then
  return nothing()
end

-- Lanes as the plan sees them: who wants them of the runs served here (order), and of those that others serve (rivals).
local known, known_count = {}, 0

-- A run that had nothing to do in a lane does not get to catch up at the others' expense.
local function level(seen)
  local most = 0
  for _, picks in ipairs(seen.rivals) do
    most = max(most, picks)
  end
  for _, number in ipairs(seen.order) do
    most = max(most, seen.picks[number] / by_id[number].weight)
  end
  for _, number in ipairs(seen.order) do
    seen.picks[number] = max(seen.picks[number], floor((most - LANE_LEAD) * by_id[number].weight))
  end
end

local function view(id)
  local seen = known[id]
  if seen then
    return seen
  end
  local lane = get_lane(id)
  local free = lane[ROOM] > 0 and lane[ROOM] - lane[FLIGHT] or UNLIMITED
  if lane[PARKED] > 0 then
    free = min(free, 1 - lane[FLIGHT])
  end
  seen = {id = id, at = max(lane[NEXT], lane[HELD]), spacing = lane[SPACING], free = free, ready = {}, picks = {}, order = {}, rivals = {}}
  known[id] = seen
  known_count = known_count + 1
  for _, number in ipairs(lane[RUNS]) do
    local head = (by_id[number] or strangers[number]) and get_head(get_run(number), id)
    if head and by_id[number] then
      seen.order[#seen.order + 1] = number
      seen.ready[number], seen.picks[number] = ready_in(head), head[PICKS]
    elseif head and (seen.spacing > 0 or free < UNLIMITED) and ready_in(head) + head[ALONE] > 0 then
      seen.rivals[#seen.rivals + 1] = head[PICKS] / strangers[number]
    end
  end
  if #seen.order + #seen.rivals > 1 then
    level(seen)
  end
  return seen
end

-- How many more tasks a lane may start within the horizon.
local function room(seen)
  local first = max(seen.at, now)
  if seen.spacing == 0 then
    return first <= now + HORIZON and seen.free or 0
  end
  return max(0, min(seen.free, floor((now + HORIZON - first) / seen.spacing) + 1))
end

local function take(seen)
  local slot = max(seen.at, now)
  seen.at = slot + seen.spacing
  seen.free = seen.free - 1
  return slot
end

-- A task that has lost a worker is handed out by itself, before all others.
local function alone()
  for _, one in ipairs(served) do
    if one.left > 0 and one.run.alone > 0 then
      for _, number in ipairs(call('ZRANGE', P .. 'alone:' .. one.id, 0, 49)) do
        local task = unpack_item(call('HGET', P .. 'odd:' .. one.id, number))
        local seen = view(task.lane)
        if room(seen) >= 1 then
          if task.expires > 0 and task.expires <= now then
            expire(one.run, task)
          else
            leave_odd(one.run, task)
            local head = get_head(one.run, task.lane)
            head[PICKS] = head[PICKS] + 1
            return {{one.run, task.number, task.lane, task.band, pack_odd(task), take(seen)}}
          end
        end
      end
    end
  end
end

-- Band by band, with the oldest of all bands at every sixteenth pick.
local function pop(run, id, count)
  local head, got, tries = get_head(run, id), {}, 0
  local picks = head[PICKS]
  while #got < count and tries < POPS do
    local top, second
    for band = 0, BANDS - 1 do
      if head[FIRST + band] > 0 then
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
    local band, want, pick = top, count - #got, picks + #got + 1
    if second and pick % OLDEST_EVERY == 0 then
      want = 1
      local oldest
      for other = top, BANDS - 1 do
        if head[FIRST + other] > 0 then
          local first = call('LINDEX', ready_list(run.id, id, other), 0)
          local number = first and (byte(first) == 1 and unpack_struct('>I4', first, 2) or tonumber(first))
          if number and (not oldest or number < oldest) then
            oldest, band = number, other
          end
        end
      end
    elseif second then
      want = min(want, OLDEST_EVERY - pick % OLDEST_EVERY, head[FIRST + top])
    end
    local items = call('LPOP', ready_list(run.id, id, band), want)
    if not items then
      break
    end
    local cleared = false
    tries = tries + #items
    for _, item in ipairs(items) do
      if byte(item) == 1 then
        more_ready(run, id, band, -1)
        got[#got + 1] = {(unpack_struct('>I4', item, 2)), band, item}
      else
        cleared = cleared or item == CLEARED
        local odd = call('HGET', P .. 'odd:' .. run.id, item)
        local task = odd and unpack_item(odd)
        if task and task.spot == IN_LIST then
          if task.expires > 0 and task.expires <= now then
            expire(run, task)
          else
            leave_odd(run, task)
            got[#got + 1] = {task.number, band, odd}
          end
        end
      end
    end
    if cleared then
      call('LREM', ready_list(run.id, id, band), 0, CLEARED)  -- the others that were dropped, too
    end
  end
  return got
end

-- The next few of a run's lanes that are due, soonest first.
local function read_due(one)
  local due = call('ZRANGEBYSCORE', P .. 'wake:' .. one.id, '-inf', int(now + HORIZON), 'LIMIT', one.read, LANES_READ)
  one.read = #due == LANES_READ and one.read + LANES_READ or nil  -- nil: there are no more
  for i, id in ipairs(due) do
    due[i] = tonumber(id)
    one.due[#one.due + 1] = due[i]
  end
  if #due > 0 then
    load_lanes(due)
    load_heads(one.run, due)
    for _, id in ipairs(due) do
      view(id)
    end
  end
end

-- Whose task the lane gives next: where several want it, whoever was served least in it.
local function choose(turn, seen)
  local least, others = turn, false
  local fewest = seen.picks[turn.id] / turn.weight
  for _, number in ipairs(seen.order) do
    local one = by_id[number]
    if number ~= turn.id and seen.ready[number] > 0 and one.left > 0 then
      others = true
      local picks = seen.picks[number] / one.weight
      if picks < fewest or (picks == fewest and number < least.id) then
        least, fewest = one, picks
      end
    end
  end
  return least, not others and #seen.rivals == 0
end

local function anothers_turn(seen, mine)
  if #seen.rivals == 0 then
    return false
  end
  if seen.at > now then
    return true  -- slots to come are not hoarded where others want them too
  end
  local fewest = seen.rivals[1]
  for _, picks in ipairs(seen.rivals) do
    fewest = min(fewest, picks)
  end
  return mine > fewest and now < seen.at + floor(seen.spacing / COURTESY)
end

local function plan(contenders)
  local decided, order, left, top = {}, {}, limit, 0
  for _, one in ipairs(contenders) do
    top = max(top, one.share)
  end
  for _, one in ipairs(contenders) do
    one.share = max(one.share, top - RUN_LEAD)
  end
  local chunk = max(1, math.ceil(limit / min(known_count, LANES_SPREAD)))
  while left > 0 do
    local turn
    for _, one in ipairs(contenders) do
      if one.left > 0 and not one.due[one.first] and one.read then
        read_due(one)
      end
      if one.left > 0 and one.due[one.first] and (not turn or one.share < turn.share or (one.share == turn.share and one.id < turn.id)) then
        turn = one
      end
    end
    if not turn then
      break
    end
    local seen = known[turn.due[turn.first]]
    turn.first = turn.first + 1
    local chosen, unrivalled = choose(turn, seen)
    if not anothers_turn(seen, seen.picks[chosen.id] / chosen.weight) then
      local count = min(unrivalled and min(chunk, left) or 1, chosen.left, room(seen), seen.ready[chosen.id])
      if count > 0 then
        local key = chosen.id .. ':' .. seen.id
        if not decided[key] then
          decided[key] = {one = chosen, seen = seen, slots = {}}
          order[#order + 1] = decided[key]
        end
        for _ = 1, count do
          table.insert(decided[key].slots, take(seen))
        end
        seen.ready[chosen.id] = seen.ready[chosen.id] - count
        seen.picks[chosen.id] = seen.picks[chosen.id] + count
        chosen.left = chosen.left - count
        chosen.share = chosen.share + count / chosen.weight
        left = left - count
        if room(seen) > 0 then
          for _, number in ipairs(seen.order) do
            if seen.ready[number] > 0 then
              turn.due[#turn.due + 1] = seen.id
              break
            end
          end
        end
      end
    end
  end
  return order
end

local function batch()
  local contenders = {}
  for _, one in ipairs(served) do
    read_due(one)
    if #one.due > 0 then
      contenders[#contenders + 1] = one
    end
    if #contenders >= RUNS_CONSIDERED then
      break  -- those with the least share came first
    end
  end
  if #contenders == 0 then
    return {}
  end
  local order, picked = plan(contenders), {}
  for _, one in ipairs(contenders) do
    if one.share ~= one.run.share then
      set(one.run, 'share', one.share)
    end
  end
  for _, part in ipairs(order) do
    local run, seen = part.one.run, part.seen
    local got = pop(run, seen.id, #part.slots)
    for i, item in ipairs(got) do
      picked[#picked + 1] = {run, item[1], seen.id, item[2], item[3], part.slots[i]}
    end
    if #got > 0 then
      get_head(run, seen.id)[PICKS] = seen.picks[run.id]
      touch_head(run, seen.id)
    end
  end
  return picked
end

local picked = alone() or batch()
if #picked == 0 then
  return nothing()
end
local number = max(last_lease + 1, now)
call('HSET', P .. 'meta', 'lease', int(number))
local tasks, latest, counts = {}, {}, {}
for _, pick in ipairs(picked) do
  local run, task, id, band, item, slot = unpack(pick)
  tasks[#tasks + 1] = int(run.id * SHIFT + task)
  tasks[#tasks + 1] = pack('>dI4B', slot, id, band) .. item
  local lane = get_lane(id)
  lane[FLIGHT] = lane[FLIGHT] + 1
  latest[id] = max(latest[id] or 0, slot)
  counts[run] = (counts[run] or 0) + 1
end
for id, slot in pairs(latest) do
  local lane = get_lane(id)
  pass(lane, slot, lane[SPACING])
  touch(id)
end
for run, count in pairs(counts) do
  bump(run, 'ready', -count)
  bump(run, 'leased', count)
end
if #picked == limit then
  -- There may be more than this worker took: the next that waits is to look, too.
  for run in pairs(counts) do
    if run.ready > run.delayed then
      hint_at(P .. (serves_all and 'hint' or 'hint:' .. (serves[run.scraper] and run.scraper or run.name)))
      break
    end
  end
end
many('HSET', P .. 'lease:' .. int(number), tasks)
set_lease(int(number), {worker, request, now + span, 0, {}})
if request ~= '' then
  call('HSET', P .. 'requests', request_name(worker, request), int(number))
end
flush()
return answer(number, tasks)
