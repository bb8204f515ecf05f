-- uses: base lanes wake failing items end_run
-- set_run: now, run, action. Answers: a word, then what it needs (ok and whether a sweep is left, unknown, ended, open, outbox, late, replaced).
local WANTED = {pause = 'paused', resume = 'running', cancel = 'cancelled', finish = 'finished'}
local run, action = get_run(tonumber(ARGV[2])), ARGV[3]
if not run then
  return {'unknown'}
end
if run.state == WANTED[action] or (action == 'undo' and accepts_tasks(run)) then
  return {'ok', run.left}
end
if action == 'undo' and run.state == 'cancelled' then
  if not keeps_tasks(run) then
    return {'late', run.name}
  end
  local other = going_on(run)
  if other then
    return {'replaced', run.name, other.name}
  end
  undo(run)
  level(run)
  flush()
  return {'ok', run.left}
end
if not accepts_tasks(run) then
  return {'ended', run.name, run.state}
end
if action == 'cancel' then
  cancel(run, 'cancelled')
elseif action == 'finish' then
  if run.ready + run.leased > 0 then
    return {'open', run.name, run.ready + run.leased}
  end
  if run.outbox > 0 then
    return {'outbox', run.name, run.outbox}
  end
  call('UNLINK', P .. 'returned:' .. run.id)
  end_run(run, 'finished')
else
  set(run, 'state', WANTED[action])
  set(run, 'changed_at', now)
  if action == 'resume' then
    level(run)
  end
end
flush()
return {'ok', run.left}
