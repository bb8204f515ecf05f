-- uses: base reply_cache lanes wake failing items end_run
-- revive: now, request, run, numbers of dead letters. Answers: a word, then how many came back and whether a sweep is left.
local run = get_run(tonumber(ARGV[3]))
if not run then
  return {'unknown'}
end
if run.state == 'cancelled' then
  return {'cancelled', run.name}
end
local brings_back = run.state == 'finished' and keeps_tasks(run)
if run.state == 'finished' and not brings_back and #ARGV > 3 and get_kept(run, 'kept') == 1 then
  begin_clearing(run)  -- what its page limit cancelled and is kept no longer goes first
  flush()
  return {'sweep', 0, run.left}
end
if run.state == 'finished' and run.left == 1 then
  return {'sweep', 0, 1}
end
local found = {}
for i = 4, #ARGV do
  local row = call('HGET', P .. 'dead:' .. run.id, ARGV[i])
  if row then
    found[#found + 1] = row
  end
end
if #found == 0 then
  return {'ok', 0, 0}
end
if brings_back then
  local other = going_on(run)
  undo(run)
  level(run)
  set(run, 'state', 'running')
  if other then  -- the key stays its
    call('HSET', P .. 'keys', call('HGET', P .. 'run:' .. run.id, 'key'), other.id)
  end
elseif run.state == 'finished' then
  set(run, 'state', 'running')
  set(run, 'finished_at', 0)
  set(run, 'changed_at', now)
  call('ZADD', P .. 'live_runs', run.id, run.id)
  begin_sweep(run)
end
for _, row in ipairs(found) do
  local task, lease = remove_dead_letter(run, row)
  forget_failures_of(task.body)
  if task.expires > 0 then
    task.expires = now + task.expires - task.added
  end
  task.added, task.due, task.attempts, task.lost, task.back = now, now, 0, 0, lease
  if run.max_pages > 0 then
    task.band = task.band - task.band % BANDS  -- first, or what was left would take the pages that they give back
  end
  append_attempt(task, new_attempt('', 'revived', 'requeued'))
  if lease > 0 then
    call('HSET', P .. 'returned:' .. run.id, task.number, int(lease))
  end
  enqueue_stored(run, task, false)
  set_location(run.id, task.number, STORED, task.lane)
end
if run.max_pages > 0 then
  -- They were handed out once already: the page limit makes room for them again.
  set(run, 'max_pages', max(run.max_pages, run.done + run.dead + run.discarded + run.leased - run.aside))
end
bump(run, 'dead', -#found)
bump(run, 'ready', #found)
flush()
return cache_reply({'ok', #found, run.left})
