-- uses: base cache
-- cache_sweep: now, kept, most.
cache_push_out(nil, tonumber(ARGV[2]), tonumber(ARGV[3]))
return 1
