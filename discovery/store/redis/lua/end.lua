-- Ends cooldowns early, and answers how many there were.
check()
sweep()
local ended = {}
for i = 8, #ARGV do
  local name = ARGV[i]
  if until_of(redis.call('HGET', p .. ':cooling', name)) then
    drop('C', name)
    table.insert(ended, #name .. ':' .. name)
  end
end
if #ended > 0 then emit('E', table.concat(ended)) end
return answer(int(#ended))
