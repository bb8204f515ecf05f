-- uses: base papers
-- keep_paper: now, kind, name, text. Answers: version, made at.
local kind, name, text = ARGV[2], ARGV[3], ARGV[4]
local key = paper_key(kind, name)
local version, made, newest = newest_paper(key)
if newest == text then
  return {version, made}
end
add_paper(key, kind, name, version + 1, text)
return {version + 1, now}
