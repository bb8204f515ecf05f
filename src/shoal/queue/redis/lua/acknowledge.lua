-- uses: base reply_cache lanes wake outbox
-- acknowledge: now, request, numbers of entries. Answers: how many there were.
local gone = 0
for at = 3, #ARGV do
  local entry = call('HGET', P .. 'outbox', ARGV[at])
  if entry then
    local id, kind = unpack_entry(entry)
    local run = get_run(id)
    call('HDEL', P .. 'outbox', ARGV[at])
    call('ZREM', P .. 'outbox:' .. kind, ARGV[at])
    call('HDEL', P .. 'outbox_of:' .. id, ARGV[at])
    bump(run, 'outbox', -1)
    gone = gone + 1
    if run.outbox == MAX_OUTBOX - 1 then
      hint(run)  -- more of it is handed out again
    end
  end
end
flush()
return cache_reply(gone)
