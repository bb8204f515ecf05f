-- uses: base lanes wake failing items
-- regroup_dead: now, run, numbers of dead letters. Those of an older layout find their groups.
local run = get_run(tonumber(ARGV[2]))
for i = 3, #ARGV do
  local row = run and call('HGET', P .. 'dead:' .. run.id, ARGV[i])
  if row then
    local _, ended, _, _, lane, _, _, _, _, cause = unpack_struct(ROW, row)
    join_group(run, tonumber(ARGV[i]), lane, cause, ended)
  end
end
return 1
