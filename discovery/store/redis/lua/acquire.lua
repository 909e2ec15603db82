-- Grants a lease on the instance that the caller chose. 'outdated': the choice is
-- based on a stale mirror; 'full': the holder can have no other session; 'recovering':
-- lost leases are being restored. A repeated call is idempotent.
local id, instance, rest, max, ttl = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
local cools_all, cools_target, key, superseded = ARGV[13], ARGV[14], ARGV[15], ARGV[16]
local session, expected, idle, most = ARGV[17], ARGV[18], tonumber(ARGV[19]), tonumber(ARGV[20])

check()
if lease(id) then return answer('ok') end
sweep()

local function outdated()
  if key ~= '' then
    local held = redis.call('HGET', p .. ':keys', key)
    local running = held and held ~= superseded and lease(held)
    if running and running.expires > now then return true end
  end
  if session ~= '' then
    local _, bound = until_of(redis.call('HGET', p .. ':sessions', session))
    if (bound or '') ~= expected then return true end
  end
  for _, name in ipairs({cools_all, cools_target}) do
    if until_of(redis.call('HGET', p .. ':cooling', name)) then return true end
  end
  return running(instance) >= max or must_reload()
end
if outdated() then return answer('outdated') end
if counted('T') > now then return answer('recovering') end
if session ~= '' and redis.call('HEXISTS', p .. ':sessions', session) == 0 and full('S' .. unpair(session), most) then
  return answer('full')
end

local fence = math.max(tonumber(redis.call('GET', p .. ':fence') or '0'), now) + 1
local granted = {
  expires = now + ttl, fence = int(fence), granted = int(now), ttl = int(ttl), instance = instance, rest = rest,
}
local text = format(granted)
redis.call('SET', p .. ':fence', int(fence))
put_record(id, text)
run(id, granted)
due('L', id, granted.expires + window)
if key ~= '' then
  redis.call('HSET', p .. ':keys', key, id)
  due('K', key, granted.expires)
end
emit('L', id, text, extend_session(session, instance, id, granted.expires, idle))
return answer('ok')
