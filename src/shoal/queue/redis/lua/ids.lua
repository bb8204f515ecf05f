-- uses: base lanes wake seen_sets admit
-- ids: now, run, digests. Answers: the number of each task, 0 where there is none.
local run, numbers = get_run(tonumber(ARGV[2])), {}
for i = 3, #ARGV do
  local found = run and call('HGET', bucket_of(run, ARGV[i]), ARGV[i])
  numbers[i - 2] = found and math.abs(tonumber(found)) or 0
end
return numbers
