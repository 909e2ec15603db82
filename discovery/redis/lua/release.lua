-- Ends a lease, wherever it was granted. Unknown ids are no error.
local id, idle = ARGV[5], tonumber(ARGV[6])

-- session_of names the session of a lease, '' when it has none.
local function session_of(l)
  local ok, rest = pcall(cjson.decode, l.rest)
  if not ok or type(rest) ~= 'table' or type(rest.session) ~= 'string' or rest.session == '' then return '' end
  local holder = type(rest.holder) == 'string' and rest.holder or ''
  return #holder .. ':' .. holder .. rest.session
end

-- shorten has a session remembered for no longer than its other leases want.
local function shorten(name)
  if name == '' or redis.call('ZREM', p .. ':of:' .. name, id) == 0 then return '' end
  local before, bound = until_of(redis.call('HGET', p .. ':sessions', name))
  local longest = redis.call('ZREVRANGE', p .. ':of:' .. name, 0, 0, 'WITHSCORES')
  local at = math.max(now, tonumber(longest[2] or '0')) + idle
  if not before or at >= before then return '' end
  return put_session(name, bound, at)
end

tidy()
local l = lease(id)
if l then
  forget.L(id)
  redis.call('ZREM', p .. ':due', 'L' .. id)
  local session, kept = '', ''
  if l.expires > now then
    session = session_of(l)
    kept = shorten(session)
  end
  emit('R', id, session, kept)
end
return answer('ok')
