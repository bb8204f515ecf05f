-- uses: base reply_cache documents
-- compare_and_swap: now, request, kind, name, the version expected (0: none), and the text, or none to remove it.
-- Answers: version, made at, text of what it is now or was; or nothing.
local kind, name, text = ARGV[3], ARGV[4], ARGV[6]
local key = document_key(kind, name)
local version, made, old = newest_document(key)
if version ~= tonumber(ARGV[5]) or (version == 0 and not text) then
  return false
end
call('DEL', key)
if not text then
  call('SREM', P .. 'documents:' .. kind, name)
  return cache_reply({version, made, old})
end
-- One that is made begins with the clock: no version of before is ever given again.
version = version > 0 and version + 1 or now
add_document(key, kind, name, version, text)
return cache_reply({version, now, text})
