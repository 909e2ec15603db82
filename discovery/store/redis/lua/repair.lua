-- Redis can lose keys: by eviction, failover, FLUSHALL or manual changes. Each script
-- starts with check, which takes a few lookups, and repair derives again what follows
-- from the rest. The replicas restore lost leases from their mirrors: see restore.lua.

-- recovery is for how long nothing is granted after leases may have been lost, so that
-- each replica, which polls four times a second, can restore what it has.
local recovery = 2000000

-- max_placeholder is for how long a lease without a record takes a slot at most.
local max_placeholder = 24 * 3600 * 1000000

local function size(command, name)
  local n = redis.pcall(command, p .. ':' .. name)
  return type(n) == 'number' and n or -1
end

-- want_type deletes a key of another type.
local function want_type(key, kind)
  local is = redis.call('TYPE', key).ok
  if is ~= kind and is ~= 'none' then redis.call('DEL', key) end
end

-- placeholder is the rest of a record that only takes a slot until it expires.
local placeholder = '{}'

-- recount derives an instance's counter from :running. A lease without a record, which
-- may have been lost, gets a placeholder: a replica that does not know that the slot is
-- taken would choose it again and again.
local function recount(instance)
  local key = p .. ':running:' .. instance
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. int(now + max_placeholder), '+inf')) do
    redis.call('ZADD', key, int(now + max_placeholder), id)
  end
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local expires = tonumber(all[i + 1])
    local held = {expires = expires, fence = '0', granted = '0', ttl = '0', instance = instance, rest = placeholder}
    if redis.call('HSETNX', p .. ':leases', all[i], format(held)) == 1 then
      count('N', 1)
      due('L', all[i], expires + window)
      zadd(p .. ':ends', expires, all[i])
    end
  end
  redis.call('HDEL', p .. ':count', 'R' .. instance)
  if #all > 0 then count('R' .. instance, #all / 2) end
  return #all / 2
end

-- reindex derives everything that follows from a lease's record.
local function reindex(id, l)
  due('L', id, l.expires + window)
  if l.expires <= now then
    zadd(p .. ':ends', l.expires, id)
    return
  end
  want_type(p .. ':running:' .. l.instance, 'zset')
  run(id, l)
  local session, key = names(l)
  if session ~= '' then zadd(p .. ':of:' .. session, l.expires, id) end
  if key == '' then return end
  local other = parse(redis.call('HGET', p .. ':leases', redis.call('HGET', p .. ':keys', key) or ''))
  if other and tonumber(other.fence) > tonumber(l.fence) then return end
  redis.call('HSET', p .. ':keys', key, id)
  due('K', key, l.expires)
end

-- each calls f for the fields of a hash, and deletes those for which it returns false.
-- It returns how many it kept, and whether it deleted any.
local function each(name, f)
  local all, kept, corrupt = redis.call('HGETALL', p .. ':' .. name), 0, false
  for i = 1, #all, 2 do
    if f(all[i], all[i + 1]) then
      kept = kept + 1
    else
      redis.call('HDEL', p .. ':' .. name, all[i])
      corrupt = true
    end
  end
  return kept, corrupt
end

-- repair derives again all that can be derived, and starts a new generation. It
-- recounts instance even if no record names it.
local function repair(instance)
  local kinds = {
    leases = 'hash', keys = 'hash', sessions = 'hash', cooling = 'hash', count = 'hash',
    due = 'zset', fence = 'string', rev = 'string', log = 'stream',
  }
  for name, kind in pairs(kinds) do want_type(p .. ':' .. name, kind) end
  for _, name in ipairs({'fence', 'rev'}) do
    if not tonumber(redis.call('GET', p .. ':' .. name) or '0') then redis.call('DEL', p .. ':' .. name) end
  end

  local function before(what) return tonumber(redis.call('HGET', p .. ':count', what) or '0') or 0 end
  local known, no_grants, recorded = redis.call('HGET', p .. ':count', 'G'), before('T'), before('N')
  local running_before, marked = instance and before('R' .. instance) or 0, 0
  for _, member in ipairs(redis.call('ZRANGE', p .. ':due', 0, -1)) do
    if member:sub(1, 1) == 'L' then marked = marked + 1 end
  end
  redis.call('DEL', p .. ':due', p .. ':count', p .. ':keys', p .. ':ends')

  local instances = {}
  local leases, corrupt = each('leases', function(id, record)
    local l = parse(record)
    if not l then return false end
    instances[l.instance] = true
    reindex(id, l)
    return true
  end)
  if leases > 0 then count('N', leases) end
  each('sessions', function(name, value)
    local at, bound = (value or ''):match('^(%d+) (.+)$')
    if not at then return false end
    want_type(p .. ':of:' .. name, 'zset')
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
  local running_after = instance and recount(instance) or 0
  for i in pairs(instances) do
    if i ~= instance then recount(i) end
  end

  -- Leases are lost when there are fewer than counted. A new store has no count.
  local lost = corrupt or marked > leases or recorded > leases or running_before > running_after
  if not known then lost = generation ~= '' and (marked == 0 or marked > leases) end
  if lost then no_grants = math.max(no_grants, now + recovery) end
  redis.call('HSET', p .. ':count', 'G', nonce, 'T', int(no_grants))
end

local function check()
  local known = redis.pcall('HGET', p .. ':count', 'G')
  local leases = size('HLEN', 'leases')
  local held = leases + size('HLEN', 'keys') + size('HLEN', 'sessions') + size('HLEN', 'cooling')
  if type(known) ~= 'string' or held ~= size('ZCARD', 'due') then return repair() end
  -- Records and their entries of :due can be lost together: then N differs.
  if leases ~= tonumber(redis.call('HGET', p .. ':count', 'N') or '0') then repair() end
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
  if redis.call('ZCARD', key) ~= counted('R' .. instance) then repair(instance) end
  return redis.call('ZCARD', key)
end

-- history compares what the caller has seen with :log. 'changes': the log has all
-- changes since; 'reload': it no longer has; 'lost': the caller has seen changes that
-- are not in it, and may know of lost leases.
local function history()
  local rev = tonumber(redis.call('GET', p .. ':rev') or '0')
  local from = redis.call('XRANGE', p .. ':log', int(last) .. '-1', int(last) .. '-1')
  local nonce_here = from[1] and from[1][2][2]
  if last > rev or (last > 0 and nonce_here and nonce_here ~= nonce_of_last) then return 'lost' end
  if not nonce_here and nonce_of_last ~= '' then return 'reload' end
  return 'changes', rev
end

-- must_reload reports whether the caller's mirror is of another generation or history.
local function must_reload()
  return redis.call('HGET', p .. ':count', 'G') ~= generation or history() ~= 'changes'
end

-- answer returns the status, the time, and the changes since the caller's revision, its
-- own included, or why there is no list of them.
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
