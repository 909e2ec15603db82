-- Restores what a replica has and Redis lost: triples of a kind (L lease, S session,
-- C cooldown), a name and a value. It overwrites nothing. When leases were lost nothing
-- is granted for a while, so that the other replicas can restore theirs. Returns how
-- many leases were restored, and the generation that has them.
local fence = tonumber(ARGV[8])

check()
local lost = history() == 'lost'
redis.call('SET', p .. ':fence', int(math.max(tonumber(redis.call('GET', p .. ':fence') or '0'), fence)))

local put = {
  L = function(id, text)
    local l = parse(text)
    local here = lease(id)
    if not l or l.expires <= now or here and (here.rest ~= placeholder or l.rest == placeholder) then return end
    if here and here.expires > l.expires then -- the placeholder was renewed
      l.expires = here.expires
      text = format(l)
    end
    put_record(id, text)
    reindex(id, l)
    emit('L', id, text)
    return true
  end,
  S = function(name, value)
    local at, instance = until_of(value)
    if not at or until_of(redis.call('HGET', p .. ':sessions', name)) then return end
    emit('R', '', name, put_session(name, instance, at))
  end,
  C = function(name, value)
    local at = until_of(value)
    if not at or at <= (until_of(redis.call('HGET', p .. ':cooling', name)) or 0) then return end
    if redis.call('HSET', p .. ':cooling', name, int(at)) == 1 then count_cooldown(name, 1) end
    due('C', name, at)
    emit('C', name, int(at))
  end,
}
local n = 0
for i = 9, #ARGV, 3 do
  if put[ARGV[i]](ARGV[i + 1], ARGV[i + 2]) then n = n + 1 end
end
if n > 0 or lost then
  redis.call('HSET', p .. ':count', 'T', int(math.max(counted('T'), now + recovery)))
end
return {n, redis.call('HGET', p .. ':count', 'G')}
