-- uses: base lanes wake failing items end_run
-- set_max_pages: now, run, limit. Answers: a word, then what it needs (ok and whether a sweep is left, unknown, ended, late, reached, replaced).
local run, limit = get_run(tonumber(ARGV[2])), tonumber(ARGV[3])
if not run then
  return {'unknown'}
end
if not accepts_tasks(run) then
  local ended, other = run.done + run.dead + run.discarded - run.aside, going_on(run)
  if run.state ~= 'finished' or run.cancelled == 0 or run.max_pages == 0 or ended < run.max_pages then
    return {'ended'}
  elseif not keeps_tasks(run) then
    return {'late'}
  elseif limit > 0 and limit <= ended then
    return {'reached', ended}
  elseif other then
    return {'replaced', other.name}
  end
  undo(run)
  level(run)
end
set(run, 'max_pages', limit)
set(run, 'changed_at', now)
flush()
return {'ok', run.left}
