-- Extends a lease to ttl from now, and never shortens it.
local id, ttl, idle, key, session = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11], ARGV[12]

check()
sweep()
local l = lease(id)
if not l then return answer('unknown') end
if l.expires <= now then return answer('expired') end
if now + ttl <= l.expires then return answer('ok') end

l.expires, l.ttl = now + ttl, int(ttl)
local text = format(l)
put_record(id, text)
due('L', id, l.expires + window)
zadd(p .. ':ends', l.expires, id)
if zadd(p .. ':running:' .. l.instance, l.expires, id) > 0 then repair(l.instance) end
if key ~= '' and redis.call('HGET', p .. ':keys', key) == id then due('K', key, l.expires) end
local kept = ''
if session ~= '' then
  local _, bound = until_of(redis.call('HGET', p .. ':sessions', session))
  if bound then kept = extend_session(session, bound, id, l.expires, idle) end
end
emit('L', id, text, kept)
return answer('ok')
