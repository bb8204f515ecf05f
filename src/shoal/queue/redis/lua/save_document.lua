-- uses: base documents
-- save_document: now, kind, name, text. Answers: version, made at.
local kind, name, text = ARGV[2], ARGV[3], ARGV[4]
local key = document_key(kind, name)
local version, made, newest = newest_document(key)
if newest == text then
  return {version, made}
end
add_document(key, kind, name, version + 1, text)
return {version + 1, now}
