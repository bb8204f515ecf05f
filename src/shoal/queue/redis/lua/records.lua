-- uses: base lanes wake
-- records: now, run, then the first and the last, of each span. The last of a page is '+' and how many it may hold.
-- Answers: of each span the first there is, then the records from there on.
local run, told = get_run(tonumber(ARGV[2])), {}
for i = 3, run and #ARGV or 0, 2 do
  local first, last = max(tonumber(ARGV[i]), run.trimmed + 1), ARGV[i + 1]
  last = byte(last) == byte('+') and first + tonumber(last) - 1 or tonumber(last)
  if last >= first then
    told[#told + 1] = {first, call('LRANGE', P .. 'records:' .. run.id, first - run.trimmed - 1, last - run.trimmed - 1)}
  end
end
return told
