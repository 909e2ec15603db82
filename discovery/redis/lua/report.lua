-- Starts or prolongs a cooldown (of no length: none) on the word of a lease
-- that is remembered.
local id, cooldown, length = ARGV[5], ARGV[6], tonumber(ARGV[7])

tidy()
if not lease(id) then return answer('unknown') end
local ends = now + length
if length > 0 and ends > (until_of(redis.call('HGET', p .. ':cooling', cooldown)) or 0) then
  redis.call('HSET', p .. ':cooling', cooldown, int(ends))
  due('C', cooldown, ends)
  emit('C', cooldown, int(ends))
end
return answer('ok')
