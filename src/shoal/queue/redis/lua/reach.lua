-- Reach: what a worker can do of the work that needs capabilities.
local PLAIN = {0}

-- The numbers of the needs of a run that a worker with these can meet; work without needs is the first.
local function reach_of(run, has)
  if not next(has) or run.needs_sets == 0 then
    return PLAIN
  end
  local sets, reach = call('HGETALL', P .. 'needs:' .. run.id), {0}
  for i = 1, #sets, 2 do
    local able = true
    for name in string.gmatch(sets[i], '[^+]+') do
      able = able and has[name]
    end
    if able then
      reach[#reach + 1] = tonumber(sets[i + 1])
    end
  end
  return reach
end
