-- Ends a lease, wherever it was granted. Unknown ids are 'unknown'.
local id, idle = ARGV[8], tonumber(ARGV[9])

-- shorten has a session remembered for no longer than its other leases want.
local function shorten(name)
  if name == '' or redis.call('ZREM', p .. ':of:' .. name, id) == 0 then return '' end
  local before, bound = until_of(redis.call('HGET', p .. ':sessions', name))
  local longest = redis.call('ZREVRANGE', p .. ':of:' .. name, 0, 0, 'WITHSCORES')
  local at = math.max(now, tonumber(longest[2] or '0')) + idle
  if not before or at >= before then return '' end
  return put_session(name, bound, at)
end

check()
tidy()
local l = lease(id)
if not l then return answer('unknown') end
do
  forget.L(id)
  redis.call('ZREM', p .. ':due', 'L' .. id)
  local session, kept = '', ''
  if l.expires > now then
    session = names(l)
    kept = shorten(session)
  end
  emit('R', id, session, kept)
end
return answer('ok')
