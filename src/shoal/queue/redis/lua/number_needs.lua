-- uses: base lanes wake
-- number_needs: now, run, how many there may be, combinations of capabilities ("a+b").
-- Answers: the number of each, new ones included; 0 for those that are too many, and where there is no such run.
local run, most, numbers = get_run(tonumber(ARGV[2])), tonumber(ARGV[3]), {}
for i = 4, #ARGV do
  local known = run and call('HGET', P .. 'needs:' .. run.id, ARGV[i])
  if run and not known and run.needs_sets < most then
    bump(run, 'needs_sets', 1)
    known = run.needs_sets
    call('HSET', P .. 'needs:' .. run.id, ARGV[i], known)
  end
  numbers[#numbers + 1] = tonumber(known or 0)
end
flush()
return numbers
