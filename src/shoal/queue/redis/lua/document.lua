-- uses: base documents
-- document: now, kind, name, version (0 is the newest). Answers: version, made at, text; or nothing.
local key, wanted = document_key(ARGV[2], ARGV[3]), tonumber(ARGV[4])
local version, made, text = newest_document(key)
if wanted > 0 and wanted < version then
  version, made, text = unpack_document(call('LINDEX', key, wanted - version - 1))
end
if version == 0 or wanted > version then
  return false
end
return {version, made, text}
