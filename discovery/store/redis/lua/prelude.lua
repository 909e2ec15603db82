-- Every script is prelude.lua, repair.lua and one operation.
--
-- KEYS[1]: the prefix of all keys, in braces so that they hash to one slot.
-- ARGV: now in microseconds since 1970 ('0': by this server's clock), the last
-- revision that the caller has seen and its nonce, the nonce of this call, the
-- generation that the caller knows ('': none), for how long expired leases take
-- reports, how many of them. A script's own arguments start at 8.
--
--   :leases    hash  id -> record; expired leases that take reports have short ones
--   :running:I zset  ids of the leases on instance I, by expiry
--   :keys      hash  holder and idempotency key -> id
--   :sessions  hash  holder and session -> until and instance
--   :of:S      zset  ids of the leases of session S, by expiry
--   :cooling   hash  Proxy UID and target -> until
--   :count     hash  counters: S holder, of its sessions; C Proxy UID, of the targets
--                    in cooldown; C, of those of all Proxies; R instance, of :running;
--                    N, of :leases. Also G, the generation: the nonce of the call that
--                    created or repaired all this; T, until when nothing is granted;
--                    W, the expiry up to which records are stripped
--   :due       zset  what expires when: L id, K key, S session, C cooldown
--   :ends      zset  ids of leases by expiry, to evict the first of too many expired
--                    ones. A lease that is missing here expires by :due
--   :fence     the last fencing token
--   :rev       the number of changes; :log has the last of them, for the replicas
--
-- :leases, :sessions and :cooling are authoritative, the rest is derived: see
-- repair.lua.
--
-- Times are microseconds. Doubles hold them exactly for another 250 years, but
-- tostring does not, hence int.
local p = KEYS[1]
local now, last, nonce_of_last, nonce = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local generation, window, most_expired = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end

local function int(n) return string.format('%.0f', n) end

-- parse reads a record, 'expires fence granted ttl length instance rest'; length is
-- that of instance, rest belongs to the callers. It returns nil for a corrupt record,
-- which must not stop the service.
local function parse(record)
  local expires, fence, granted, ttl, length, tail = (record or ''):match('^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not expires then return nil end
  length = tonumber(length)
  return {
    expires = tonumber(expires), fence = fence, granted = granted, ttl = ttl,
    instance = tail:sub(1, length), rest = tail:sub(length + 2),
  }
end

local function format(r)
  return table.concat({int(r.expires), r.fence, r.granted, r.ttl, #r.instance, r.instance, r.rest}, ' ')
end

-- lease finds a lease, running or expired.
local function lease(id)
  local dropped = redis.call('ZSCORE', p .. ':due', 'L' .. id)
  if not dropped or tonumber(dropped) <= now then return nil end
  return parse(redis.call('HGET', p .. ':leases', id))
end

-- until_of reads 'until anything', nil when that has passed.
local function until_of(value)
  local at, what = (value or ''):match('^(%d+) ?(.*)$')
  at = tonumber(at) or 0
  if at > now then return at, what end
end

-- emit appends a change to the log of the replicas. A log that is ahead of :rev,
-- because :rev was lost, is deleted, and the replicas reload.
local function emit(op, name, value, session)
  local rev = int(redis.call('INCR', p .. ':rev'))
  local function append()
    return redis.pcall('XADD', p .. ':log', 'MAXLEN', '~', 20000, rev .. '-1', 'nonce', nonce, op, name, value or '', session or '')
  end
  local added = append()
  if type(added) == 'table' and added.err then
    redis.call('DEL', p .. ':log')
    append()
  end
end

local function due(kind, name, at) redis.call('ZADD', p .. ':due', int(at), kind .. name) end

-- pair joins two names unambiguously, unpair splits them.
local function pair(a, b) return #a .. ':' .. a .. b end

local function unpair(name)
  local length, rest = name:match('^(%d+):(.*)$')
  length = tonumber(length) or 0
  return (rest or ''):sub(1, length), (rest or ''):sub(length + 1)
end

-- names of the session and of the key of a lease, '' for none.
local function names(l)
  local ok, rest = pcall(cjson.decode, l.rest)
  if not ok or type(rest) ~= 'table' then return '', '' end
  local function owned(name)
    if type(name) ~= 'string' or name == '' then return '' end
    return pair(type(rest.holder) == 'string' and rest.holder or '', name)
  end
  return owned(rest.session), owned(rest.key)
end

-- zadd is ZADD on a key that may have another type.
local function zadd(key, at, member)
  local added = redis.pcall('ZADD', key, int(at), member)
  if type(added) == 'table' then
    redis.call('DEL', key)
    added = redis.call('ZADD', key, int(at), member)
  end
  return added
end

local function count(what, n)
  if redis.call('HINCRBY', p .. ':count', what, n) <= 0 then redis.call('HDEL', p .. ':count', what) end
end

local function counted(what) return tonumber(redis.call('HGET', p .. ':count', what) or '0') end

local function count_cooldown(name, n)
  local uid, target = unpair(name)
  if target == '' then return end
  count('C' .. uid, n)
  count('C', n)
end

local function put_record(id, text)
  if redis.call('HSET', p .. ':leases', id, text) == 1 then count('N', 1) end
end

-- put_session binds a session to an instance until then, and returns its value.
local function put_session(name, instance, at)
  local value = int(at) .. ' ' .. instance
  if redis.call('HSET', p .. ':sessions', name, value) == 1 then count('S' .. unpair(name), 1) end
  due('S', name, at)
  return value
end

-- extend_session binds a session to an instance for at least as long as a lease
-- needs. It also removes the session's expired leases: nothing else does so before
-- the session ends.
local function extend_session(name, instance, id, expires, idle)
  if name == '' then return '' end
  zadd(p .. ':of:' .. name, expires, id)
  redis.call('ZREMRANGEBYSCORE', p .. ':of:' .. name, '-inf', int(now))
  local before = until_of(redis.call('HGET', p .. ':sessions', name))
  return put_session(name, instance, math.max(before or 0, expires + idle))
end

-- run has a lease take a slot of its instance until it expires.
local function run(id, l)
  zadd(p .. ':ends', l.expires, id)
  local added = zadd(p .. ':running:' .. l.instance, l.expires, id)
  if added > 0 then count('R' .. l.instance, added) end
end

-- remove deletes what is derived from an entry of :due, by its kind.
local remove = {
  L = function(id)
    local l = parse(redis.call('HGET', p .. ':leases', id))
    if l and redis.call('ZREM', p .. ':running:' .. l.instance, id) == 1 then count('R' .. l.instance, -1) end
    if redis.call('HDEL', p .. ':leases', id) == 1 then count('N', -1) end
    redis.pcall('ZREM', p .. ':ends', id)
  end,
  K = function(name) redis.call('HDEL', p .. ':keys', name) end,
  S = function(name)
    if redis.call('HDEL', p .. ':sessions', name) == 1 then count('S' .. unpair(name), -1) end
    redis.call('DEL', p .. ':of:' .. name)
  end,
  C = function(name)
    if redis.call('HDEL', p .. ':cooling', name) == 1 then count_cooldown(name, -1) end
  end,
}

-- drop removes something before its time.
local function drop(kind, name)
  remove[kind](name)
  redis.call('ZREM', p .. ':due', kind .. name)
end

-- evict_expired drops some of the leases that expired before most_expired others.
local function evict_expired()
  local key, expired = p .. ':ends', int(now)
  local n = redis.pcall('ZCOUNT', key, '-inf', expired)
  if type(n) == 'table' then
    redis.call('DEL', key)
    return
  end
  if n <= most_expired then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', expired, 'LIMIT', 0, math.min(n - most_expired, 32))) do
    drop('L', id)
    redis.call('ZREM', key, id)
  end
end

-- strip leaves of an expired lease what late reports and error messages need. The
-- session and the key, which the client chose, are most of a record.
local function strip(id)
  local l = parse(redis.call('HGET', p .. ':leases', id))
  if not l or l.expires > now then return end
  local ok, rest = pcall(cjson.decode, l.rest)
  if not ok or type(rest) ~= 'table' or not (rest.session or rest.key) then return end
  rest.session, rest.key, rest.fingerprint = nil, nil, nil
  l.rest = cjson.encode(rest)
  redis.call('HSET', p .. ':leases', id, format(l))
end

-- strip_expired continues where the last call ended.
local function strip_expired()
  local ids = redis.call('ZRANGEBYSCORE', p .. ':ends', '(' .. int(counted('W')), int(now), 'WITHSCORES', 'LIMIT', 0, 32)
  for i = 1, #ids, 2 do strip(ids[i]) end
  if #ids > 0 then redis.call('HSET', p .. ':count', 'W', int(tonumber(ids[#ids]))) end
end

-- sweep removes some of what has ended, and returns how much. What has ended never
-- counts, swept or not.
local function sweep()
  local ended = redis.call('ZRANGEBYSCORE', p .. ':due', '-inf', int(now), 'LIMIT', 0, 32)
  for _, member in ipairs(ended) do
    local f = remove[member:sub(1, 1)]
    if f then f(member:sub(2)) end
    redis.call('ZREM', p .. ':due', member)
  end
  evict_expired()
  strip_expired()
  return #ended
end

-- full reports whether a limit is reached, not counting what has ended.
local function full(what, most)
  while counted(what) >= most do
    if sweep() == 0 then return true end
  end
  return false
end
