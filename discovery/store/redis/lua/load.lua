-- Returns everything, for a replica that starts or whose log is cut off, and how its
-- mirror relates to that.
check()
local known = history()
local here = redis.call('HGET', p .. ':count', 'G')
if generation ~= '' and generation ~= here then known = 'lost' end
local rev = redis.call('GET', p .. ':rev') or '0'
local top = redis.call('XREVRANGE', p .. ':log', '+', '-', 'COUNT', 1)
if top[1] and top[1][1] ~= rev .. '-1' then -- it does not match :rev
  redis.call('DEL', p .. ':log')
  top = {}
end
return {
  int(now), rev, top[1] and top[1][2][2] or '', here, known,
  redis.call('HGETALL', p .. ':leases'), redis.call('HGETALL', p .. ':sessions'), redis.call('HGETALL', p .. ':cooling'),
}
