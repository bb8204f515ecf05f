-- Documents by kind and name, a list of versions each: when it was made, its number, its text.
local function document_key(kind, name)
  return P .. 'document:' .. #kind .. ':' .. kind .. name
end

local function unpack_document(kept)
  if not kept then
    return 0
  end
  local made, version, at = unpack_struct('>dd', kept)
  return version, made, sub(kept, at)
end

local function newest_document(key)
  return unpack_document(call('LINDEX', key, -1))
end

local function add_document(key, kind, name, version, text)
  call('SADD', P .. 'documents:' .. kind, name)
  call('RPUSH', key, pack('>dd', now, version) .. text)
end
