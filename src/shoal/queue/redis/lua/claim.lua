-- uses: base lanes wake failing items leases reach hand_out promote pop
-- claim: now, worker, limit, lease, request, whether all runs are served, how many capabilities, these, names served.
-- Order: runs by priority and weighted share, lanes by when they come due, in a lane the most urgent run and of equals the
-- one served least there, then band and age; every 16th pick takes the oldest (core/claim_plan.py says the same in Python).
-- The cost is that of the lanes touched.
local PROMOTED, RUNS_CONSIDERED, ROUNDS = 200, 16, 8
local LAYOUT = 2  -- as in server.py
local SECOND, HORIZON, ACTIVE_WITHIN, LONGEST_WAIT = 1000000, 2000000, 10000000, 60000000
local UNLIMITED = 2 ^ 40
local MIN_LANES_PER_BATCH, MAX_RUN_LEAD, MAX_LANE_LEAD, YIELD_FRACTION = 16, 64, 16, 4
local worker, limit, span, request = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local LANES_READ = min(32, limit)  -- at a time

local again = same_request(worker, request)
if again then
  return again
end

local serves_all, serves, has = ARGV[6] == '1', {}, {}
for i = 8, 7 + tonumber(ARGV[7]) do
  has[ARGV[i]] = true
end
for i = 8 + tonumber(ARGV[7]), #ARGV do
  serves[ARGV[i]] = true
end
local meta = call('HMGET', P .. 'meta', 'lease', 'version')
local last_lease = tonumber(meta[1] or 0)
if tonumber(meta[2] or 0) > LAYOUT then
  return redis.error_reply('NEWER ' .. meta[2])  -- it was upgraded while this worker ran
end

local is_stepped_back = now < last_lease - SECOND

-- After the clock stepped back: no slot lies further away than anybody would have waited for one.
local function clamp_future_slot(id)
  local lane = get_lane(id)
  local latest = now + max(lane[SPACING], LONGEST_WAIT)
  if lane[NEXT] > latest or lane[LAST] > now then
    lane[NEXT], lane[LAST] = min(lane[NEXT], latest), min(lane[LAST], now)
    touch(id)
  end
end

local function clamp_future_slots(run)
  for needs = 0, run.needs_sets do
    local far = call('ZRANGEBYSCORE', apart_key('wake:', run.id, needs), '(' .. int(now), '+inf', 'LIMIT', 0, 1000)
    for _, id in ipairs(far) do
      clamp_future_slot(tonumber(id))
    end
  end
end

-- Runs: those served, by share, and those that other workers serve.
local served, by_id, competitors = {}, {}, {}
do  -- Lua counts the local names that are in sight, and allows 200
  -- Where pages are counted, those whose time is over are counted first. Answers: whether that was all of them.
  local function expire_first(run)
    return expire_some(run, PROMOTED) < PROMOTED
  end

  -- What is read of every run that is open; the rest only of those that are looked at further. Of a few all is read at once.
  local READ_WHOLE = 2
  local function about_run(id)
    local about = call('HMGET', P .. 'run:' .. id, 'state', 'name', 'scraper', 'outbox', 'ready', 'delayed', 'priority', 'share', 'weight',
      'last_claim_at', 'max_pages', 'isolated')
    return {id = tonumber(id), state = about[1], name = about[2], scraper = about[3], outbox = about[4] and tonumber(about[4]) or 0,
      ready = about[5] and tonumber(about[5]) or 0, delayed = about[6] and tonumber(about[6]) or 0, priority = about[7] and tonumber(about[7]) or 0,
      share = about[8] and tonumber(about[8]) or 0, weight = about[9] and tonumber(about[9]) or 0, last_claim_at = about[10] and tonumber(about[10]) or 0,
      max_pages = about[11] and tonumber(about[11]) or 0, isolated = about[12] and tonumber(about[12]) or 0}
  end

  -- Delayed tasks and page limits are seen to before anything is planned. Answers: the run, how many it may hand out, and whether
  -- it may do so now.
  local function prepare(id)
    local run = get_run(id)
    local all_counted = run.max_pages == 0 or expire_first(run)
    promote(run, PROMOTED)
    if is_stepped_back then
      clamp_future_slots(run)
    end
    return run, run.max_pages > 0 and run.max_pages - run.done - run.dead - run.discarded - run.leased + run.aside or UNLIMITED, all_counted
  end

  local noted, MAX_NOTED = 0, 32
  local live = call('ZRANGE', P .. 'live_runs', 0, -1)
  local read_run = #live <= READ_WHOLE and get_run or about_run
  for _, id in ipairs(live) do
    local run, left, all_counted = read_run(tonumber(id)), UNLIMITED, true
    if run.state == 'running' and run.outbox < MAX_OUTBOX then
      local mine = serves_all or serves[run.name] or serves[run.scraper]
      if mine and (run.delayed > 0 or run.max_pages > 0 or is_stepped_back) then
        run, left, all_counted = prepare(run.id)
      end
      if run.ready > run.delayed then
        if not mine then
          if run.last_claim_at > now - ACTIVE_WITHIN then
            competitors[run.id] = {max(1, run.weight), run.priority}
          end
        else
          -- Of very many runs a few at a time, unless others would soon take it for nobody's.
          local since = now - run.last_claim_at
          if since > SECOND and (noted < MAX_NOTED or since > ACTIVE_WITHIN / 2) then
            noted = noted + 1
            call('HSET', P .. 'run:' .. run.id, 'last_claim_at', int(now))
          end
          if left > 0 then
            local one = {id = run.id, weight = max(1, run.weight), priority = run.priority, share = run.share, isolated = run.isolated,
              left = all_counted and left or 0, due = {}, first = 1, read = 0, reach = next(has) and reach_of(get_run(run.id), has) or PLAIN}
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
end
if next(touched) then
  flush()  -- what was promoted is to be found below
end

local function comes_before(a, b)
  if a.priority ~= b.priority then
    return a.priority > b.priority
  end
  return a.share < b.share or (a.share == b.share and a.id < b.id)
end
table.sort(served, comes_before)
if #served > RUNS_CONSIDERED then
  LANES_READ = MIN_LANES_PER_BATCH  -- each gives a few tasks only
elseif #served > 1 or #served == 1 and get_run(served[1].id).band == 0 then
  LANES_READ = max(LANES_READ, MIN_LANES_PER_BATCH)  -- the most urgent task may be in any of them
end

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
    for _, needs in ipairs(one.reach) do
      consider(apart_key('wake:', one.id, needs))
    end
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

-- The next few of a run's lanes that are due, soonest first; a lane may be found by any of the needs within reach.
local fetch_due
do
  -- What was found of a run: lanes that are due. Those that have moved on since are put where they belong, those that are full
  -- are found again when they open.
  local function keep_due(one, key, found)
    local due, later, full = {}, {}, {}
    for i, id in ipairs(found) do
      found[i] = tonumber(id)
    end
    load_lanes(found)
    for _, id in ipairs(found) do
      if is_stepped_back then
        clamp_future_slot(id)
      end
      local lane = get_lane(id)
      local at = wake_time(lane)
      if not at then
        full[#full + 1] = id
        wait_for_place(lane, one.id)
        touch(id, true)
      elseif at > now + HORIZON then
        later[#later + 1] = int(at)
        later[#later + 1] = id
      else
        due[#due + 1] = id
      end
    end
    call_many('ZADD', key, later)
    call_many('ZREM', key, full)
    return due
  end

  -- Most are in order as they were found.
  local function sort_by_time(found)
    local at, is_sorted = {}, true
    for i, id in ipairs(found) do
      at[id] = wake_time(get_lane(id))
      is_sorted = is_sorted and (i == 1 or at[found[i - 1]] <= at[id])
    end
    if not is_sorted then
      table.sort(found, function(a, b) return at[a] < at[b] or (at[a] == at[b] and a < b) end)
    end
  end

  -- A few more lanes of a run that are due, of work with these needs: so many were read before. Answers: how many there are by now, or
  -- nil if there are no more.
  local function read_lanes(one, needs, read, lanes_due)
    local key, count = apart_key('wake:', one.id, needs), LANES_READ
    for _ = 1, ROUNDS do
      local found = call('ZRANGEBYSCORE', key, '-inf', int(now + HORIZON), 'LIMIT', read, count)
      local due = #found > 0 and keep_due(one, key, found) or {}
      for _, id in ipairs(due) do
        if not one.listed or not one.listed[id] then
          lanes_due[#lanes_due + 1] = id
        end
      end
      read = read + #due
      if #found < count then
        return nil
      elseif #due > 0 then
        break
      end
      count = max(count, MIN_LANES_PER_BATCH)
    end
    return read
  end

  function fetch_due(one)
    local found, more = {}, nil
    if #one.reach == 1 then
      more = read_lanes(one, 0, one.read, found)
    else
      one.listed, one.read_of = one.listed or {}, one.read_of or {}
      for _, needs in ipairs(one.reach) do
        local read = one.read_of[needs] or 0
        if read >= 0 then
          local part = {}
          read = read_lanes(one, needs, read, part)
          one.read_of[needs], more = read or -1, more or read
          for _, id in ipairs(part) do
            one.listed[id] = true
            found[#found + 1] = id
          end
        end
      end
    end
    one.read = more
    sort_by_time(found)
    for _, id in ipairs(found) do
      one.due[#one.due + 1] = id
    end
    if #found > 0 then
      load_run_lanes(get_run(one.id), found)
    end
    return #found
  end
end

-- Of very many runs only the first that have work due are looked at: the most urgent, and of equals those with the least share.
local considered = {numbers = {}}
for _, one in ipairs(served) do
  if #considered >= RUNS_CONSIDERED then
    break
  end
  one.fetched = fetch_due(one)
  if one.fetched > 0 or #served <= RUNS_CONSIDERED then
    one.is_considered, one.run = true, get_run(one.id)
    considered[#considered + 1] = one
    considered.numbers[#considered] = one.id
  end
end

-- Lanes as the plan sees them: who wants them of the runs served here (order), and of those that others serve (rivals).
local known = {}

local view
do
  -- A run that had nothing to do in a lane does not get to catch up at the others' expense.
  local function level(seen)
    local most = 0
    for _, rival in ipairs(seen.rivals) do
      most = max(most, rival[1])
    end
    for _, number in ipairs(seen.order) do
      most = max(most, seen.picks[number] / by_id[number].weight)
    end
    for _, number in ipairs(seen.order) do
      seen.picks[number] = max(seen.picks[number], floor((most - MAX_LANE_LEAD) * by_id[number].weight))
    end
  end

  -- How many tasks of a run are ready in a lane that this worker can do.
  local function within_reach(one, run_lane)
    local total = ready_in(run_lane)
    for i = 2, #one.reach do
      local shelf = shelf_of(run_lane, one.reach[i])
      total = total + (shelf and ready_in(shelf) or 0)
    end
    return total
  end

  function view(id)
    local seen = known[id]
    if seen then
      return seen
    end
    local lane = get_lane(id)
    local free = lane[ROOM] > 0 and lane[ROOM] - lane[FLIGHT] or UNLIMITED
    if lane[PARKED] > 0 then
      free = min(free, 1 - lane[FLIGHT])
    end
    seen = {id = id, at = max(lane[NEXT], lane[HELD]), spacing = lane[SPACING], free = free, given = lane[GIVEN], ready = {}, picks = {}, order = {}, rivals = {}}
    known[id] = seen
    for _, number in ipairs(#considered < #lane[RUNS] and considered.numbers or lane[RUNS]) do
      local one = by_id[number]
      local run_lane = one and one.is_considered and get_run_lane(one.run, id)
      if run_lane and has_joined(lane, one.run) then
        seen.order[#seen.order + 1] = number
        seen.ready[number], seen.picks[number] = within_reach(one, run_lane), run_lane[PICKS]
      end
    end
    for _, number in ipairs(next(competitors) and (seen.spacing > 0 or free < UNLIMITED) and lane[RUNS] or {}) do
      local run_lane = competitors[number] and get_run_lane(get_run(number), id)
      if run_lane and ready_in(run_lane) + run_lane[ISOLATED] > 0 then
        seen.rivals[#seen.rivals + 1] = {run_lane[PICKS] / competitors[number][1], competitors[number][2]}
      end
    end
    if #seen.order + #seen.rivals > 1 then
      level(seen)
    end
    return seen
  end
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
  seen.given = seen.given + 1
  return slot
end

-- A task that has lost a worker is handed out by itself, before all others.
local function pick_isolated()
  for _, one in ipairs(served) do
    local alone = {}
    for _, needs in ipairs(one.left > 0 and one.isolated > 0 and one.reach or {}) do
      for _, number in ipairs(call('ZRANGE', apart_key('isolated:', one.id, needs), 0, 49)) do
        alone[#alone + 1] = number
      end
    end
    if #alone > 0 then
      one.run = get_run(one.id)
      for _, number in ipairs(alone) do
        local task = unpack_item(call('HGET', P .. 'stored:' .. one.id, number))
        local seen = view(task.lane)
        if room(seen) >= 1 then
          if task.expires > 0 and task.expires <= now then
            expire(one.run, task)
          else
            dequeue_stored(one.run, task)
            local run_lane = get_run_lane(one.run, task.lane)
            run_lane[PICKS] = run_lane[PICKS] + 1
            return {{one.run, task.number, task.lane, task.band, pack_stored(task), take(seen)}}
          end
        end
      end
    end
  end
end

-- Of the lanes read last, those with urgent tasks come first; the others as they come due.
local urgent_first
do
  local function top_band(one, id)
    local run_lane, top = get_run_lane(one.run, id), BANDS
    for _, needs in ipairs(one.reach) do
      local shelf, band = shelf_of(run_lane, needs), 0
      while shelf and band < top and shelf[FIRST + band] <= 0 do
        band = band + 1
      end
      top = shelf and band or top
    end
    return top
  end

  function urgent_first(one, count)
    if count < 2 or one.run.band > 0 then
      return
    end
    local first, tops, is_mixed = #one.due - count + 1, {}, false
    for i = first, #one.due do
      tops[i] = top_band(one, one.due[i])
      is_mixed = is_mixed or tops[i] ~= tops[first]
    end
    if not is_mixed then
      return
    end
    local places = {}
    for i = first, #one.due do
      places[#places + 1] = {tops[i], i, one.due[i]}
    end
    table.sort(places, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
    for i, place in ipairs(places) do
      one.due[first + i - 1] = place[3]
    end
  end
end

-- Whether the next task of a lane is the oldest of any run, where runs of several priorities want it.
local function is_oldest_turn(seen)
  return (seen.given + 1) % OLDEST_PICK_EVERY == 0
end

-- When the oldest task of a run came that is ready in a lane, after so many that the plan gave away as such.
local function oldest_at(run, id, given_away)
  local times, run_lane = {}, get_run_lane(run, id)
  for _, needs in ipairs(by_id[run.id].reach) do
    for line = needs * BANDS, needs * BANDS + BANDS - 1 do
      if ready_in_line(run_lane, line) > 0 then
        for _, item in ipairs(call('LRANGE', ready_list(run.id, id, line), 0, given_away)) do
          if byte(item) == 1 then
            local _, added = unpack_struct('>I4d', item, 2)
            times[#times + 1] = added
          else
            local stored = call('HGET', P .. 'stored:' .. run.id, item)
            times[#times + 1] = stored and unpack_item(stored).due
          end
        end
      end
    end
  end
  table.sort(times)
  return times[given_away + 1] or math.huge
end

-- Whose task the lane gives next, whether nobody else wants it, and whether it is the oldest of all. Where several want
-- it: the most urgent, and of equals whoever was served least in it.
local choose
do
  -- Of those that want the lane the run whose oldest task came first.
  local function choose_oldest(turn, seen, decided)
    local best, first
    for _, number in ipairs(seen.order) do
      local one = by_id[number]
      if one == turn or (seen.ready[number] > 0 and one.left > 0) then
        local part = decided[number .. ':' .. seen.id]
        local at = oldest_at(one.run, seen.id, part and part.oldest or 0)
        if not best or at < first or (at == first and number < best.id) then
          best, first = one, at
        end
      end
    end
    return best
  end

  function choose(turn, seen, decided)
    local picks, ready = seen.picks, seen.ready
    local best, urgency, place, mixed, others = turn, turn.priority, picks[turn.id] / turn.weight, false, false
    for _, number in ipairs(seen.order) do
      if ready[number] > 0 then
        local one = by_id[number]
        if one ~= turn and one.left > 0 then
          local its_urgency, its_place = one.priority, picks[number] / one.weight
          others, mixed = true, mixed or its_urgency ~= turn.priority
          if its_urgency > urgency or (its_urgency == urgency and (its_place < place or (its_place == place and number < best.id))) then
            best, urgency, place = one, its_urgency, its_place
          end
        end
      end
    end
    if not others then
      return turn, #seen.rivals == 0, false
    elseif mixed and is_oldest_turn(seen) then
      return choose_oldest(turn, seen, decided), false, true
    end
    return best, false, false
  end
end

-- Whether a slot is left, for a moment, to a run that other workers serve: the more urgent come first, at the turn of the
-- oldest the less urgent; and equals that were served less.
local function must_yield(seen, chosen)
  local mine, rivals, wanted = seen.picks[chosen.id] / chosen.weight, false, false
  for _, rival in ipairs(seen.rivals) do
    local picks, priority = rival[1], rival[2]
    if priority == chosen.priority then
      rivals, wanted = true, wanted or mine > picks
    elseif (priority < chosen.priority) == is_oldest_turn(seen) then
      rivals, wanted = true, true
    end
  end
  if not rivals then
    return false
  end
  if seen.at > now then
    return true  -- slots to come are not hoarded where others want them too
  end
  return wanted and now < seen.at + floor(seen.spacing / YIELD_FRACTION)
end

-- How many lanes are due, counted as far as it matters.
local function count_lanes(contenders)
  local count, counted = 0, {}
  for _, one in ipairs(contenders) do
    for _, id in ipairs(one.due) do
      count = count + (counted[id] and 0 or 1)
      counted[id] = true
      if count >= MIN_LANES_PER_BATCH then
        return count
      end
    end
  end
  return count
end

local function plan(contenders)
  local decided, order, left, top = {}, {}, limit, 0
  for _, one in ipairs(contenders) do
    top = max(top, one.share)
  end
  for _, one in ipairs(contenders) do
    one.share = max(one.share, top - MAX_RUN_LEAD)
  end
  local chunk = max(1, math.ceil(limit / min(count_lanes(contenders), MIN_LANES_PER_BATCH)))
  while left > 0 do
    local turn
    for _, one in ipairs(contenders) do
      if one.left > 0 and not one.due[one.first] and one.read then
        urgent_first(one, fetch_due(one))
      end
      if one.left > 0 and one.due[one.first] and (not turn or comes_before(one, turn)) then
        turn = one
      end
    end
    if not turn then
      break
    end
    local seen = view(turn.due[turn.first])
    turn.first = turn.first + 1
    local chosen, unrivalled, oldest = choose(turn, seen, decided)
    if not must_yield(seen, chosen) then
      local count = min(unrivalled and min(chunk, left) or 1, chosen.left, room(seen), seen.ready[chosen.id])
      if count > 0 then
        local key = chosen.id .. ':' .. seen.id
        if not decided[key] then
          decided[key] = {one = chosen, seen = seen, slots = {}, oldest = 0}
          order[#order + 1] = decided[key]
        end
        decided[key].oldest = decided[key].oldest + (oldest and 1 or 0)
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

-- The most urgent first, mostly as they were picked; the client puts them in the order of their slots.
local function sort_by_urgency(picked)
  local is_sorted = true
  for i = 2, #picked do
    local a, b = picked[i - 1], picked[i]
    if a[1].priority < b[1].priority or (a[1].priority == b[1].priority and a[4] % BANDS > b[4] % BANDS) then
      is_sorted = false
      break
    end
  end
  if not is_sorted then
    for i, pick in ipairs(picked) do
      pick.place = i
    end
    table.sort(picked, function(a, b)
      if a[1].priority ~= b[1].priority then
        return a[1].priority > b[1].priority
      end
      local first, second = a[4] % BANDS, b[4] % BANDS
      return first < second or (first == second and a.place < b.place)
    end)
  end
  return picked
end

local function batch()
  local contenders = {}
  for _, one in ipairs(considered) do
    urgent_first(one, one.fetched)
    if #one.due > 0 then
      contenders[#contenders + 1] = one
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
    local got = pop(run, seen.id, #part.slots, part.oldest, part.one.reach)
    for i, item in ipairs(got) do
      picked[#picked + 1] = {run, item[1], seen.id, item[2], item[3], part.slots[i]}
    end
    if #got > 0 then
      get_run_lane(run, seen.id)[PICKS] = seen.picks[run.id]
      touch_run_lane(run, seen.id)
    end
  end
  return sort_by_urgency(picked)
end

-- A lease for what was picked, written down as the call ends.
local function hand_out(picked)
  if #picked == 0 then
    return nothing()
  end
  local number, tasks, counts = open_lease(picked, worker, request, span, last_lease)
  if #picked == limit then
    -- There may be more than this worker took: the next that waits is to look, too.
    for run in pairs(counts) do
      if run.ready > run.delayed then
        hint_at(P .. (serves_all and 'hint' or 'hint:' .. (serves[run.scraper] and run.scraper or run.name)))
        break
      end
    end
  end
  flush()
  return tell_claim(number, tasks)
end

return hand_out(pick_isolated() or batch())
