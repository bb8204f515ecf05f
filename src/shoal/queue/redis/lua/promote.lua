-- Promote: delayed tasks whose time has come are ready.
local function promote(run, most)
  if run.delayed <= 0 then
    return
  end
  local due = call('ZRANGEBYSCORE', P .. 'delayed:' .. run.id, '-inf', int(now), 'LIMIT', 0, most)
  for _, number in ipairs(due) do
    local task = unpack_item(call('HGET', P .. 'stored:' .. run.id, number))
    call('ZREM', P .. 'delayed:' .. run.id, number)
    bump(run, 'delayed', -1)
    enqueue_stored(run, task, false)
  end
end
