-- Repairs corruption that the caller ran into and check does not see. It deletes what
-- the caller cannot read, given as triples of a hash, a field and its value: scripts may
-- accept it, and two replicas that repair in turns would never stop.
for i = 8, #ARGV, 3 do
  local key, field = p .. ':' .. ARGV[i], ARGV[i + 1]
  if redis.pcall('HGET', key, field) == ARGV[i + 2] then
    redis.call('HDEL', key, field)
    if ARGV[i] == 'sessions' then redis.call('DEL', p .. ':of:' .. field) end
  end
end
repair()
return answer('ok')
