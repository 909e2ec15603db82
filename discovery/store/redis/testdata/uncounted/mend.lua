-- Keys get lost: to evictions, failovers, FLUSHALL and careless hands. Each script
-- begins with check, which costs a few lookups, and mends what follows from what is
-- left. What may be gone for good the replicas put back, who remember it: see
-- restore.lua.

-- settling is for how long nothing is granted after leases may have been lost, so
-- that each replica, which looks four times a second, can put back what it knows.
local settling = 2000000

-- furthest is the most that a place is taken by a lease without a record.
local furthest = 24 * 3600 * 1000000

local function size(command, name)
  local n = redis.pcall(command, p .. ':' .. name)
  return type(n) == 'number' and n or -1
end

-- of_kind deletes a key that is of the wrong type. It reports whether it did.
local function of_kind(key, kind)
  local is = redis.call('TYPE', key).ok
  if is == kind or is == 'none' then return false end
  redis.call('DEL', key)
  return true
end

-- nothing is the rest of a placeholder: of a record that says no more than which
-- place is taken, and for how long.
local nothing = '{}'

-- recount has an instance's places be what its leases take. What runs without a
-- record counts, too, since the record may be what was lost, and gets a placeholder:
-- a replica that did not know of the place would choose it again and again.
local function recount(instance)
  local key = p .. ':running:' .. instance
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. int(now + furthest), '+inf')) do
    redis.call('ZADD', key, int(now + furthest), id)
  end
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local expires = tonumber(all[i + 1])
    local held = {expires = expires, fence = '0', granted = '0', ttl = '0', instance = instance, rest = nothing}
    if redis.call('HSETNX', p .. ':leases', all[i], format(held)) == 1 then
      due('L', all[i], expires + window)
      zadd(p .. ':ends', expires, all[i])
    end
  end
  local n = #all / 2
  redis.call('HDEL', p .. ':count', 'R' .. instance)
  if n > 0 then count('R' .. instance, n) end
  return n
end

-- adopt has everything follow from a lease's record.
local function adopt(id, l)
  due('L', id, l.expires + window)
  if l.expires <= now then
    zadd(p .. ':ends', l.expires, id)
    return
  end
  of_kind(p .. ':running:' .. l.instance, 'zset')
  run(id, l)
  local session, key = names(l)
  if session ~= '' then zadd(p .. ':of:' .. session, l.expires, id) end
  if key == '' then return end
  local other = parse(redis.call('HGET', p .. ':leases', redis.call('HGET', p .. ':keys', key) or ''))
  if other and tonumber(other.fence) > tonumber(l.fence) then return end
  redis.call('HSET', p .. ':keys', key, id)
  due('K', key, l.expires)
end

-- each calls f for the fields of a hash, and deletes those for which it returns
-- nothing. It returns how many it kept, and whether it deleted any.
local function each(name, f)
  local all, kept, spoilt = redis.call('HGETALL', p .. ':' .. name), 0, false
  for i = 1, #all, 2 do
    if f(all[i], all[i + 1]) then
      kept = kept + 1
    else
      redis.call('HDEL', p .. ':' .. name, all[i])
      spoilt = true
    end
  end
  return kept, spoilt
end

-- mend derives anew what can be derived, and begins a new generation. instance is
-- one that must be counted whether or not a record names it.
local function mend(instance)
  local kinds = {
    leases = 'hash', keys = 'hash', sessions = 'hash', cooling = 'hash', count = 'hash',
    due = 'zset', fence = 'string', rev = 'string', log = 'stream',
  }
  for name, kind in pairs(kinds) do of_kind(p .. ':' .. name, kind) end
  for _, name in ipairs({'fence', 'rev'}) do
    if not tonumber(redis.call('GET', p .. ':' .. name) or '0') then redis.call('DEL', p .. ':' .. name) end
  end

  local known, before = redis.call('HGET', p .. ':count', 'G'), 0
  local quiet = tonumber(redis.call('HGET', p .. ':count', 'T') or '0') or 0
  if instance then before = tonumber(redis.call('HGET', p .. ':count', 'R' .. instance) or '0') or 0 end
  local marked = 0
  for _, member in ipairs(redis.call('ZRANGE', p .. ':due', 0, -1)) do
    if member:sub(1, 1) == 'L' then marked = marked + 1 end
  end
  redis.call('DEL', p .. ':due', p .. ':count', p .. ':keys', p .. ':ends')

  local instances = {}
  local leases, spoilt = each('leases', function(id, record)
    local l = parse(record)
    if not l then return false end
    instances[l.instance] = true
    adopt(id, l)
    return true
  end)
  each('sessions', function(name, value)
    local at, bound = (value or ''):match('^(%d+) (.+)$')
    if not at then return false end
    of_kind(p .. ':of:' .. name, 'zset')
    count('S' .. unpair(name), 1)
    due('S', name, tonumber(at))
    return true
  end)
  each('cooling', function(name, value)
    local at = tonumber((value or ''):match('^%d+$') or '')
    if not at then return false end
    count_cooldown(name, 1)
    due('C', name, at)
    return true
  end)
  local after = instance and recount(instance) or 0
  for i in pairs(instances) do
    if i ~= instance then recount(i) end
  end

  -- Are there leases that are gone? A new store has none.
  local lost = spoilt or marked > leases or before > after
  if not known then lost = generation ~= '' and (marked == 0 or marked > leases) end
  if lost then quiet = math.max(quiet, now + settling) end
  redis.call('HSET', p .. ':count', 'G', nonce, 'T', int(quiet))
end

local function check()
  local known = redis.pcall('HGET', p .. ':count', 'G')
  local held = size('HLEN', 'leases') + size('HLEN', 'keys') + size('HLEN', 'sessions') + size('HLEN', 'cooling')
  if type(known) ~= 'string' or held ~= size('ZCARD', 'due') then mend() end
end

-- running counts the leases that run on an instance.
local function running(instance)
  local key = p .. ':running:' .. instance
  local gone = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', int(now))
  if type(gone) == 'table' then
    redis.call('DEL', key)
  elseif gone > 0 then
    count('R' .. instance, -gone)
  end
  if redis.call('ZCARD', key) ~= counted('R' .. instance) then mend(instance) end
  return redis.call('ZCARD', key)
end

-- history says how what the caller knows lies to what is here. 'changes': all since
-- can be told; 'reload': it cannot any more; 'lost': the caller knows of another
-- past, and may know of leases that are in none that is here.
local function history()
  local rev = tonumber(redis.call('GET', p .. ':rev') or '0')
  local from = redis.call('XRANGE', p .. ':log', int(last) .. '-1', int(last) .. '-1')
  local nonce_here = from[1] and from[1][2][2]
  if last > rev or (last > 0 and nonce_here and nonce_here ~= nonce_of_last) then return 'lost' end
  if not nonce_here and nonce_of_last ~= '' then return 'reload' end
  return 'changes', rev
end

-- estranged reports whether the caller must load all before it may choose.
local function estranged()
  return redis.call('HGET', p .. ':count', 'G') ~= generation or history() ~= 'changes'
end

-- answer says how it went, what time it is, and what has changed since the
-- caller looked last, its own doing included; or why that cannot be told.
local function answer(status)
  local known, rev = history()
  if known ~= 'changes' then return {status, int(now), known} end
  local changes = redis.call('XRANGE', p .. ':log', int(last + 1) .. '-1', '+', 'COUNT', 1000)
  if last + #changes < rev and #changes < 1000 then
    known = 'reload'
  elseif generation ~= '' and redis.call('HGET', p .. ':count', 'G') ~= generation then
    known = 'lost'
  end
  return {status, int(now), known, changes}
end
