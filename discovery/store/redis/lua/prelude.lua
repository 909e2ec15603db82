-- What all scripts share. One script is one operation, and Redis runs one at a
-- time: between its checks and its writes nothing else happens.
--
-- KEYS[1] is the prefix of all keys, in braces: they hash to one slot.
-- ARGV: now in microseconds since 1970 ('0': by this server's clock), the last
-- revision that the caller has seen with its nonce, the nonce of this call, the
-- generation that the caller knows ('': none), for how long expired leases take
-- reports, how many of them. What else a script takes begins at 8.
--
--   :leases    hash  id -> record, cut short of expired leases that take reports
--   :running:I zset  ids of the leases on instance I, by expiry
--   :keys      hash  holder and idempotency key -> id
--   :sessions  hash  holder and session -> until and instance
--   :of:S      zset  ids of the leases of session S, by expiry
--   :cooling   hash  Proxy UID and target -> until
--   :count     hash  how many there are: S holder, of its sessions; C Proxy UID, of
--                    the targets that it cools for; C, of those of all Proxies;
--                    R instance, of its entries in :running; N, of entries in
--                    :leases. And G, the generation:
--                    the nonce of the call that made or mended all this; T, until
--                    when nothing is granted; W, the expiry up to which records are
--                    cut short; O, the last change by a replica that does not keep
--                    N which N has in it
--   :due       zset  what is forgotten when: L id, K key, S session, C cooldown
--   :ends      zset  ids of leases, by expiry, to forget the first of those that have
--                    expired when there are too many. What it lacks is forgotten
--                    when it is due
--   :fence     the last fencing token
--   :rev       the number of changes, :log the last of them, for the replicas
--
-- :leases, :sessions and :cooling are the truth, the others follow from them: see
-- mend.lua.
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

-- A record is 'expires fence granted ttl length instance rest', the instance
-- being so many bytes long. The rest is for the callers alone.
-- What is no record is none: whoever lost or spoilt one must not end the service.
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

-- lease finds a lease that is remembered, running or not.
local function lease(id)
  local forgotten = redis.call('ZSCORE', p .. ':due', 'L' .. id)
  if not forgotten or tonumber(forgotten) <= now then return nil end
  return parse(redis.call('HGET', p .. ':leases', id))
end

-- until_of reads 'until anything', nil when that is over.
local function until_of(value)
  local at, what = (value or ''):match('^(%d+) ?(.*)$')
  at = tonumber(at) or 0
  if at > now then return at, what end
end

-- emit tells the replicas of a change. A log that goes beyond the number of
-- changes, since that was lost, begins anew, and has the replicas reload. An entry
-- begins with the word N from those who keep N: releases before them wrote n.
local function emit(op, name, value, session)
  local rev = redis.call('INCR', p .. ':rev')
  local function append()
    return redis.pcall('XADD', p .. ':log', 'MAXLEN', '~', 20000, int(rev) .. '-1', 'N', nonce, op, name, value or '', session or '')
  end
  local added = append()
  if type(added) == 'table' and added.err then
    redis.call('DEL', p .. ':log')
    append()
  end
end

local function due(kind, name, at)
  redis.call('ZADD', p .. ':due', int(at), kind .. name)
end

-- unpair takes a name apart that pair made of two.
local function unpair(name)
  local length, rest = name:match('^(%d+):(.*)$')
  length = tonumber(length) or 0
  return (rest or ''):sub(1, length), (rest or ''):sub(length + 1)
end

local function pair(a, b) return #a .. ':' .. a .. b end

-- names of the session and of the key that a lease was granted under, '' for none.
local function names(l)
  local ok, rest = pcall(cjson.decode, l.rest)
  if not ok or type(rest) ~= 'table' then return '', '' end
  local function owned(name)
    if type(name) ~= 'string' or name == '' then return '' end
    return pair(type(rest.holder) == 'string' and rest.holder or '', name)
  end
  return owned(rest.session), owned(rest.key)
end

-- zadd is ZADD on a key that may have been spoilt.
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

-- record writes what is known of a lease.
local function record(id, text)
  if redis.call('HSET', p .. ':leases', id, text) == 1 then count('N', 1) end
end

-- put_session has a session remembered on an instance until then.
local function put_session(name, instance, at)
  local value = int(at) .. ' ' .. instance
  if redis.call('HSET', p .. ':sessions', name, value) == 1 then count('S' .. unpair(name), 1) end
  due('S', name, at)
  return value
end

-- settle keeps a session on an instance for at least as long as a lease needs. Those
-- of its leases that have expired go: nobody else forgets them while it goes on.
local function settle(name, instance, id, expires, idle)
  if name == '' then return '' end
  zadd(p .. ':of:' .. name, expires, id)
  redis.call('ZREMRANGEBYSCORE', p .. ':of:' .. name, '-inf', int(now))
  local before = until_of(redis.call('HGET', p .. ':sessions', name))
  return put_session(name, instance, math.max(before or 0, expires + idle))
end

-- run has a lease count on its instance until it expires.
local function run(id, l)
  zadd(p .. ':ends', l.expires, id)
  local added = zadd(p .. ':running:' .. l.instance, l.expires, id)
  if added > 0 then count('R' .. l.instance, added) end
end

local forget = {
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

-- trim forgets some of the leases that have expired before most_expired others.
-- Those that run are none of them. Callers know by themselves which ones they are.
local function trim()
  local key, expired = p .. ':ends', int(now)
  local n = redis.pcall('ZCOUNT', key, '-inf', expired)
  if type(n) == 'table' then
    redis.call('DEL', key)
    return
  end
  if n <= most_expired then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', expired, 'LIMIT', 0, math.min(n - most_expired, 32))) do
    local l = parse(redis.call('HGET', p .. ':leases', id))
    if l and l.expires > now then -- it was renewed by a caller that does not write :ends
      redis.call('ZADD', key, int(l.expires), id)
    else
      forget.L(id)
      redis.call('ZREM', p .. ':due', 'L' .. id)
    end
  end
end

-- wither leaves of a lease that has expired what its holder is told and a late report
-- needs. The names of its session and its key, which its holder made up, are most of a
-- record.
local function wither(id)
  local l = parse(redis.call('HGET', p .. ':leases', id))
  if not l or l.expires > now then return end
  local ok, rest = pcall(cjson.decode, l.rest)
  if not ok or type(rest) ~= 'table' or not (rest.session or rest.key) then return end
  rest.session, rest.key, rest.fingerprint = nil, nil, nil
  l.rest = cjson.encode(rest)
  redis.call('HSET', p .. ':leases', id, format(l))
end

-- wither_some goes on where the last call ended. Leases that it misses stay whole.
local function wither_some()
  local from = counted('W')
  local ids = redis.call('ZRANGEBYSCORE', p .. ':ends', '(' .. int(from), int(now), 'WITHSCORES', 'LIMIT', 0, 32)
  for i = 1, #ids, 2 do wither(ids[i]) end
  if #ids > 0 then redis.call('HSET', p .. ':count', 'W', int(tonumber(ids[#ids]))) end
end

-- tidy forgets some of what is over, and says of how much. What is over never
-- counts anyway.
local function tidy()
  local over = redis.call('ZRANGEBYSCORE', p .. ':due', '-inf', int(now), 'LIMIT', 0, 32)
  for _, member in ipairs(over) do
    local f = forget[member:sub(1, 1)]
    if f then f(member:sub(2)) end
    redis.call('ZREM', p .. ':due', member)
  end
  trim()
  wither_some()
  return #over
end

-- full reports whether there are as many of something as there may be, not
-- counting what is over.
local function full(what, most)
  while counted(what) >= most do
    if tidy() == 0 then return true end
  end
  return false
end
