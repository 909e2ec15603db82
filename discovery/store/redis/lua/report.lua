-- Starts or extends a cooldown (length 0: none) for a report on a lease. 'full': no
-- other target can be in cooldown.
local id, cooldown, length = ARGV[8], ARGV[9], tonumber(ARGV[10])
local most_of_proxy, most = tonumber(ARGV[11]), tonumber(ARGV[12])

check()
sweep()
if not lease(id) then return answer('unknown') end
local ends = now + length
if length > 0 and ends > (until_of(redis.call('HGET', p .. ':cooling', cooldown)) or 0) then
  local uid, target = unpair(cooldown)
  local new = redis.call('HEXISTS', p .. ':cooling', cooldown) == 0
  if new and target ~= '' and (full('C' .. uid, most_of_proxy) or full('C', most)) then return answer('full') end
  if redis.call('HSET', p .. ':cooling', cooldown, int(ends)) == 1 then count_cooldown(cooldown, 1) end
  due('C', cooldown, ends)
  emit('C', cooldown, int(ends))
end
return answer('ok')
