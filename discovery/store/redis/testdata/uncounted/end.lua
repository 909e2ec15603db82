-- Ends cooldowns before their time, and answers how many there were.
check()
tidy()
local ended = {}
for i = 8, #ARGV do
  local name = ARGV[i]
  if until_of(redis.call('HGET', p .. ':cooling', name)) then
    forget.C(name)
    redis.call('ZREM', p .. ':due', 'C' .. name)
    table.insert(ended, #name .. ':' .. name)
  end
end
if #ended > 0 then emit('E', table.concat(ended)) end
return answer(int(#ended))
