-- Grants a lease on the instance that the caller chose, unless the caller chose
-- by an outdated picture: then 'outdated'; or 'full' when the holder can have no
-- other session. A repeated call changes nothing.
local id, instance, rest, max, ttl = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local cools_all, cools_target, key, superseded = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local session, expected, window, idle, most = ARGV[14], ARGV[15], tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18])

if lease(id) then return answer('ok') end
tidy()

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
  redis.call('ZREMRANGEBYSCORE', p .. ':running:' .. instance, '-inf', int(now))
  return redis.call('ZCARD', p .. ':running:' .. instance) >= max
end
if outdated() then return answer('outdated') end
if session ~= '' and redis.call('HEXISTS', p .. ':sessions', session) == 0 and full('S' .. unpair(session), most) then
  return answer('full')
end

local fence = math.max(tonumber(redis.call('GET', p .. ':fence') or '0'), now) + 1
local expires = now + ttl
local record = format({
  expires = expires, fence = int(fence), granted = int(now), ttl = int(ttl), instance = instance, rest = rest,
})
redis.call('SET', p .. ':fence', int(fence))
redis.call('HSET', p .. ':leases', id, record)
redis.call('ZADD', p .. ':running:' .. instance, int(expires), id)
due('L', id, expires + window)
if key ~= '' then
  redis.call('HSET', p .. ':keys', key, id)
  due('K', key, expires)
end
emit('L', id, record, settle(session, instance, id, expires, idle))
return answer('ok')
