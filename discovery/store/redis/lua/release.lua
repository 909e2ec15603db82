-- Ends a lease that any replica granted. 'unknown': there is none with that id.
local id, idle = ARGV[8], tonumber(ARGV[9])

-- shorten_session keeps a session only for as long as its other leases need it.
local function shorten_session(name)
  if name == '' or redis.call('ZREM', p .. ':of:' .. name, id) == 0 then return '' end
  local before, bound = until_of(redis.call('HGET', p .. ':sessions', name))
  local longest = redis.call('ZREVRANGE', p .. ':of:' .. name, 0, 0, 'WITHSCORES')
  local at = math.max(now, tonumber(longest[2] or '0')) + idle
  if not before or at >= before then return '' end
  return put_session(name, bound, at)
end

check()
sweep()
local l = lease(id)
if not l then return answer('unknown') end
drop('L', id)
local session, key, kept = '', '', ''
if l.expires > now then
  session, key = names(l)
  kept = shorten_session(session)
  if key ~= '' and redis.call('HGET', p .. ':keys', key) == id then drop('K', key) end
end
emit('R', id, session, kept)
return answer('ok')
