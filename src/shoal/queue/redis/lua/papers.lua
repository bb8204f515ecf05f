-- Papers: documents by kind and name, a list of versions each: when it was made, its number, its text.
local function paper_key(kind, name)
  return P .. 'paper:' .. #kind .. ':' .. kind .. name
end

local function unpack_paper(kept)
  if not kept then
    return 0
  end
  local made, version, at = unpack_struct('>dd', kept)
  return version, made, sub(kept, at)
end

local function newest_paper(key)
  return unpack_paper(call('LINDEX', key, -1))
end

local function add_paper(key, kind, name, version, text)
  call('SADD', P .. 'papers:' .. kind, name)
  call('RPUSH', key, pack('>dd', now, version) .. text)
end
