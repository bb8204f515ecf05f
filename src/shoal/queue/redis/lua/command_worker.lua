-- uses: base
-- command_worker: now, worker, what is asked ('' takes it back). Answers: whether there is such a worker.
if call('HEXISTS', P .. 'workers', ARGV[2]) == 0 then
  return 0
end
if ARGV[3] == '' then
  call('HDEL', P .. 'commands', ARGV[2])
else
  call('HSET', P .. 'commands', ARGV[2], ARGV[3])
end
return 1
