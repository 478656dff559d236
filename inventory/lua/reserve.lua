-- reserve: answers a batch of buyers of ONE activity, each apart. The only script that creates
-- reservation keys.
--
-- KEYS    1 mq_pending, 2 open; S times: gate, stock, buyers; N times: request key, own
--         reservation hash; H reservation hashes that an earlier answer named (code 0)
-- ARGV    1 S, 2 N, 3 H, 4 lease owner, 5 lease in ms; S SKU ids; N times 9: number of the SKU
--         (1..S), user, quantity, reservation id, request id, order id, message id, traceparent,
--         fingerprint; H reservation ids, in the order of their hashes in KEYS
-- RETURNS 1 now in epoch ms; 2 {gate version, validity in ms} of each SKU, flat (-1 when lost);
--         3 {code, stock left, request of this batch that is named or 0} of each request, flat;
--         4 {request, reservation id, fields of its hash...} for each stored reservation named.
--         Codes are contracts.ReserveCode; 0 = the identity names a reservation whose hash is not
--         in KEYS: nothing was done for this request, call again with that hash.
-- INVARIANT  Everything is read and decided before anything is written, and stock is taken before
--         the reservations are written: an error (an ill argument, a key of a wrong type) leaves
--         all as it was, for the whole batch. A reservation id whose hash exists is never written.
local RESERVED, SOLD_OUT, ALREADY_RESERVED, REQUEST_REPLAYED, REQUEST_CONFLICT = 1, 2, 3, 4, 5
local RESERVATION_ENDED, NOT_STARTED, ENDED, CLOSED, LIMIT_EXCEEDED = 6, 7, 8, 9, 10
local BUSY, GATE_LOST, UNKNOWN_HASH = 11, 12, 0
local KEEP_MS = 7 * 86400 * 1000 -- reservation keys live until the sale's end + 7 days

local S, N, H, lease_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
if not (S and N and H and lease_ms) or #KEYS ~= 2 + 3 * S + 2 * N + H or #ARGV ~= 5 + S + 9 * N + H then
  return redis.error_reply('ERR reserve: wrong number of keys or arguments')
end
local first_key, first_arg = 2 + 3 * S, 5 + S

-- Arguments.
local sku, quantity, users, requests, hashes, hash_of = {}, {}, {}, {}, {}, {}
for s = 1, S do users[s] = {} end
for i = 1, N do
  local a = first_arg + 9 * (i - 1)
  local s, n = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3])
  if not (s and n) or not users[s] or n ~= math.floor(n) or ARGV[a + 2] == '' or ARGV[a + 4] == '' then
    return redis.error_reply('ERR reserve: ill argument in request ' .. i)
  end
  sku[i], quantity[i] = s, n
  users[s][#users[s] + 1] = ARGV[a + 2]
  requests[i], hashes[i] = KEYS[first_key + 2 * i - 1], KEYS[first_key + 2 * i]
  hash_of[ARGV[a + 4]] = hashes[i]
end
for h = 1, H do hash_of[ARGV[first_arg + 9 * N + h]] = KEYS[first_key + 2 * N + h] end

-- Reads, as few as possible: one of each kind for the batch or for the SKU.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local pending, open = redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2])
local gates, buyers, heads = {}, {}, {}
for s = 1, S do
  local g = redis.call('HMGET', KEYS[3 * s], 'status', 'stopped', 'starts_ms', 'ends_ms',
    'validity_ms', 'limit_per_user', 'max_open', 'max_pending', 'version')
  local stock = tonumber(redis.call('GET', KEYS[3 * s + 1]) or nil)
  heads[2 * s - 1], heads[2 * s] = -1, -1
  if g[1] and g[9] and stock then
    gates[s] = {
      accepts = g[1] == 'OPEN' and g[2] ~= '1', starts = tonumber(g[3]), ends = tonumber(g[4]),
      limit = tonumber(g[6]), max_open = tonumber(g[7]), max_pending = tonumber(g[8]),
      valid_until = now + g[5], stock = stock, taken = 0, writes = {},
    }
    heads[2 * s - 1], heads[2 * s] = tonumber(g[9]), tonumber(g[5])
    buyers[s] = {}
    if #users[s] > 0 then
      local held = redis.call('HMGET', KEYS[3 * s + 2], unpack(users[s]))
      for u = 1, #held do buyers[s][users[s][u]] = held[u] end
    end
  end
end
local known = N > 0 and redis.call('MGET', unpack(requests)) or {}
local some_exist = N > 0 and redis.call('EXISTS', unpack(hashes)) > 0

-- Decisions. `made` and `keyed` are what this batch itself has accepted so far.
local made, keyed, observed_in_batch, observe, accepted, answers, details = {}, {}, {}, {}, {}, {}, {}

-- Answers with the reservation `id`; returns code and, for one of this batch, its number.
local function named(i, id, code, is_own)
  local j = made[id]
  if j then
    if not is_own then observed_in_batch[j] = true end
    return code, j
  end
  local hash = hash_of[id]
  if not hash then
    details[#details + 1] = { i, id }
    return UNKNOWN_HASH, 0
  end
  local fields = redis.call('HMGET', hash, 'request_id', 'order_id', 'message_id', 'user_id', 'sku_id',
    'quantity', 'status', 'mq_status', 'created_at', 'valid_until', 'traceparent', 'send_attempt',
    'reject_reason')
  details[#details + 1] = { i, id, unpack(fields, 1, 13) }
  if fields[7] == 'RELEASED' and code == REQUEST_REPLAYED then return RESERVATION_ENDED, 0 end
  if fields[7] and not is_own then observe[hash] = true end
  return code, 0
end

-- The order of these checks is part of the protocol: identity first, whatever the gate's status.
local function decide(i, gate, user, id)
  if not gate then return GATE_LOST, 0 end
  if made[id] or (some_exist and redis.call('EXISTS', hashes[i]) == 1) then
    return named(i, id, REQUEST_REPLAYED, true)
  end
  local fingerprint = ARGV[first_arg + 9 * i]
  local request = keyed[requests[i]] or known[i]
  if request then
    local _, reservation, print = string.match(request, '^(%S+) (%S+) (%S*)$')
    if print ~= fingerprint then return REQUEST_CONFLICT, 0 end
    return named(i, reservation, REQUEST_REPLAYED, false)
  end
  local holder = buyers[sku[i]][user]
  if holder then return named(i, holder, ALREADY_RESERVED, false) end
  if not gate.accepts then return CLOSED, 0 end
  if now < gate.starts then return NOT_STARTED, 0 end
  if now >= gate.ends then return ENDED, 0 end
  if quantity[i] < 1 or quantity[i] > gate.limit then return LIMIT_EXCEEDED, 0 end
  if gate.stock < quantity[i] then return SOLD_OUT, 0 end
  if open >= gate.max_open or pending >= gate.max_pending then return BUSY, 0 end
  gate.stock, gate.taken = gate.stock - quantity[i], gate.taken + quantity[i]
  open, pending = open + 1, pending + 1
  buyers[sku[i]][user], made[id] = id, i
  keyed[requests[i]] = ARGV[first_arg + 9 * i - 4] .. ' ' .. id .. ' ' .. fingerprint
  gate.writes[#gate.writes + 1] = user
  gate.writes[#gate.writes + 1] = id
  accepted[#accepted + 1] = i
  return RESERVED, 0
end

for i = 1, N do
  local a = first_arg + 9 * (i - 1)
  local gate = gates[sku[i]]
  local code, j = decide(i, gate, ARGV[a + 2], ARGV[a + 4])
  answers[3 * i - 2], answers[3 * i - 1], answers[3 * i] = code, gate and gate.stock or -1, j
end

-- Writes.
if #accepted > 0 then
  local until_s, lease_until = {}, string.format('%d', now + lease_ms)
  local created_at, zpending, zopen = string.format('%d', now), {}, {}
  for s = 1, S do
    local gate = gates[s]
    if gate and gate.taken > 0 then
      redis.call('DECRBY', KEYS[3 * s + 1], gate.taken)
      redis.call('HSET', KEYS[3 * s + 2], unpack(gate.writes))
      until_s[s] = { string.format('%d', gate.valid_until), string.format('%d', gate.ends + KEEP_MS) }
    end
  end
  for k = 1, #accepted do
    local i = accepted[k]
    local a = first_arg + 9 * (i - 1)
    local id = ARGV[a + 4]
    local valid_until, keep = until_s[sku[i]][1], until_s[sku[i]][2]
    redis.call('HSET', hashes[i], 'request_id', ARGV[a + 5], 'order_id', ARGV[a + 6],
      'message_id', ARGV[a + 7], 'user_id', ARGV[a + 2], 'sku_id', ARGV[5 + sku[i]],
      'quantity', ARGV[a + 3], 'status', 'RESERVED', 'mq_status', 'MQ_PENDING',
      'created_at', created_at, 'valid_until', valid_until, 'traceparent', ARGV[a + 8],
      'lease_owner', ARGV[4], 'lease_until', lease_until, 'next_retry_at', lease_until,
      'send_attempt', '0', 'observed', observed_in_batch[i] and '1' or '0')
    redis.call('PEXPIREAT', hashes[i], keep)
    redis.call('SET', requests[i], keyed[requests[i]], 'PXAT', keep)
    zpending[2 * k - 1], zpending[2 * k] = lease_until, id
    zopen[2 * k - 1], zopen[2 * k] = valid_until, id
  end
  redis.call('ZADD', KEYS[1], unpack(zpending))
  redis.call('ZADD', KEYS[2], unpack(zopen))
end
for hash in pairs(observe) do redis.call('HSET', hash, 'observed', '1') end
return { now, heads, answers, details }
