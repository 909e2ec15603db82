-- Returns everything, for a replica that starts or was away for too long.
local top = redis.call('XREVRANGE', p .. ':log', '+', '-', 'COUNT', 1)
return {
  int(now), redis.call('GET', p .. ':rev') or '0', top[1] and top[1][2][2] or '',
  redis.call('HGETALL', p .. ':leases'), redis.call('HGETALL', p .. ':sessions'), redis.call('HGETALL', p .. ':cooling'),
}
