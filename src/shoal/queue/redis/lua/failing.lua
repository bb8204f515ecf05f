-- Failing: how often URLs failed for good, over runs. failing: key -> count, last, number of the last failure, causes;
-- failing_order: keys by that number. A key is the digest of a URL.
local failing

-- Under which key failures of a task count, if any: those of a form say nothing of the next, and typed tasks have no page.
local function failure_key(body)
  local size = unpack_struct('>I3', body, 2)
  local has_view, view = pcall(cmsgpack.unpack, sub(body, 5, 4 + size))
  local url = has_view and type(view) == 'table' and view[1]
  if type(url) ~= 'string' or sub(url, 1, 5) == 'task:' then  -- somebody else may have written it
    return nil
  end
  local is_read, work = pcall(cjson.decode, sub(body, 5 + size))
  local options = is_read and type(work) == 'table' and work[2]
  if type(options) == 'table' and ((options.method or 'GET') ~= 'GET' or (options.body or cjson.null) ~= cjson.null) then
    return nil
  end
  return redis.sha1hex(url)
end

local function count_failure(body, cause)
  local key = failure_key(body)
  if not key then
    return
  end
  local row = call('HGET', P .. 'failing', key)
  local count, _, _, causes = unpack(row and cmsgpack.unpack(row) or {0, 0, 0, {}})
  -- A letter of several bytes that is cut in two would be no text.
  local name, kinds = #cause > 100 and string.gsub(sub(cause, 1, 100), '[\194-\244][\128-\191]*$', '') or cause, 0
  for _ in pairs(causes) do
    kinds = kinds + 1
  end
  if not causes[name] and kinds >= 8 then
    name = 'other'
  end
  causes[name] = (causes[name] or 0) + 1
  local number = call('HINCRBY', P .. 'meta', 'failures', 1)
  call('HSET', P .. 'failing', key, cmsgpack.pack({count + 1, now, number, causes}))
  call('ZADD', P .. 'failing_order', number, key)
  failing = true
end

-- A task went well, or starts over. Costs nothing where nothing failed.
local function forget_failures_of(body)
  if failing == nil then
    failing = call('EXISTS', P .. 'failing') == 1
  end
  local key = failing and failure_key(body)
  if key and call('HDEL', P .. 'failing', key) == 1 then
    call('ZREM', P .. 'failing_order', key)
  end
end
