-- Ends a lease, wherever it was granted. Unknown ids are no error.
local id = ARGV[5]

tidy()
if lease(id) then
  forget.L(id)
  redis.call('ZREM', p .. ':due', 'L' .. id)
  emit('R', id)
end
return answer('ok')
