-- uses: base lanes items ending
-- set_run: now, run, action. Answers: a word, then what it needs (ok and whether a sweep is left, unknown, ended, open).
local WANTED = {pause = 'paused', resume = 'running', cancel = 'cancelled', finish = 'finished'}
local run, action = get_run(tonumber(ARGV[2])), ARGV[3]
if not run then
  return {'unknown'}
end
if run.state == WANTED[action] then
  return {'ok', run.left}
end
if not takes_work(run) then
  return {'ended', run.name, run.state}
end
if action == 'cancel' then
  cancel(run, 'cancelled')
elseif action == 'finish' then
  if run.ready + run.leased > 0 then
    return {'open', run.name, run.ready + run.leased}
  end
  end_run(run, 'finished')
else
  set(run, 'state', WANTED[action])
  set(run, 'changed_at', now)
  if action == 'resume' then
    local least
    for _, id in ipairs(call('ZRANGE', P .. 'live', 0, -1)) do
      local other = get_run(tonumber(id))
      if other.id ~= run.id and other.state == 'running' and (not least or other.share < least) then
        least = other.share
      end
    end
    set(run, 'share', max(run.share, least or 0))
    hint(run)
  end
end
flush()
return {'ok', run.left}
