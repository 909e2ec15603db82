-- Mends what check does not see, for a caller that ran into it. What it cannot read
-- goes, as triples of a hash, a field and its value: callers and scripts may not
-- agree on what is an entry, and replicas that find one that is none in turns would
-- mend in turns for ever.
for i = 8, #ARGV, 3 do
  local key, field = p .. ':' .. ARGV[i], ARGV[i + 1]
  if redis.pcall('HGET', key, field) == ARGV[i + 2] then
    redis.call('HDEL', key, field)
    if ARGV[i] == 'sessions' then redis.call('DEL', p .. ':of:' .. field) end
  end
end
mend()
return answer('ok')
