-- uses: base lanes wake leases
-- extend: now, worker, lease, then of each lease: number, how many of its tasks were started, their ids.
-- Answers: leases that are lost, tasks that were cancelled.
local worker, span, at = ARGV[2], tonumber(ARGV[3]), 4
local lost, cancelled = {}, {}
local cut = tonumber(call('HGET', P .. 'meta', 'cut') or 0)
while at <= #ARGV do
  local number, count, begun = ARGV[at], tonumber(ARGV[at + 1]), {}
  for i = 1, count do
    begun[i] = ARGV[at + 1 + i]
  end
  at = at + 2 + count
  local lease = get_lease(number)
  if not lease or lease[WORKER] ~= worker or lease[UNTIL] <= now then
    lost[#lost + 1] = number
  else
    if tonumber(number) <= cut then
      local gone, executed = {}, {}
      for _, id in ipairs(call('HKEYS', P .. 'lease:' .. number)) do
        local run = get_run((split_id(id)))
        if run and tonumber(number) <= run.cut then
          cancelled[#cancelled + 1] = id
          gone[id] = true
        end
      end
      for _, id in ipairs(begun) do
        if not gone[id] then
          executed[#executed + 1] = id  -- the others are executed by nobody from here on
        end
      end
      begun = executed
    end
    lease[UNTIL], lease[EXTENDED], lease[STARTED] = max(lease[UNTIL], now + span), 1, begun
    set_lease(number, lease)
  end
end
return {lost, cancelled}
