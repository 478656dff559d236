-- give_back: admission's compare-and-set after a definite send failure, at the first and only
-- attempt of the process that still owns the reservation.
--
-- KEYS    1 mq_pending, 2 open; S times: gate, stock, buyers; N times: reservation hash, request key
-- ARGV    1 S, 2 N, 3 lease owner; N times 4: number of the SKU (1..S), reservation id, user, quantity
-- RETURNS contracts.GiveBackCode of each
-- INVARIANT  Changes only what is RESERVED, leased to the caller, never claimed by the scanner and
--         seen by nobody else. Units go back if and only if buyers names this reservation.
local OK, REFUSED, RELEASED, MISSING = 1, 2, 3, 4
local S, N = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (S and N) or #KEYS ~= 2 + 3 * S + 2 * N or #ARGV ~= 3 + 4 * N then
  return redis.error_reply('ERR give_back: wrong number of keys or arguments')
end
for i = 1, N do
  local s, quantity = tonumber(ARGV[4 * i]), tonumber(ARGV[4 * i + 3])
  if not (s and s >= 1 and s <= S and quantity and quantity >= 1) then
    return redis.error_reply('ERR give_back: ill argument in item ' .. i)
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local status, codes, left = {}, {}, {}
for s = 1, S do
  status[s] = redis.call('HGET', KEYS[3 * s], 'status')
  if redis.call('EXISTS', KEYS[3 * s + 1]) == 0 then status[s] = false end
end
for i = 1, N do
  local s, id, user, quantity = tonumber(ARGV[4 * i]), ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3]
  local hash, request = KEYS[1 + 3 * S + 2 * i], KEYS[2 + 3 * S + 2 * i]
  local at = redis.call('HMGET', hash, 'status', 'lease_owner', 'lease_until', 'send_attempt', 'observed')
  if not status[s] or not at[1] then
    codes[i] = MISSING
  elseif at[1] == 'RELEASED' then
    codes[i] = RELEASED
  elseif status[s] == 'REBUILDING' or at[1] ~= 'RESERVED' or at[2] ~= ARGV[3]
    or tonumber(at[3] or '0') <= now or at[4] ~= '0' or at[5] ~= '0' then
    codes[i] = REFUSED
  else
    if redis.call('HGET', KEYS[3 * s + 2], user) == id then
      redis.call('HDEL', KEYS[3 * s + 2], user)
      redis.call('INCRBY', KEYS[3 * s + 1], quantity)
      redis.call('HINCRBY', KEYS[3 * s], 'version', 1)
    end
    redis.call('HSET', hash, 'status', 'RELEASED', 'reject_reason', 'SEND_FAILED', 'lease_owner', '',
      'lease_until', '0')
    local named = redis.call('GET', request)
    if named and string.match(named, '^%S+ (%S+)') == id then redis.call('DEL', request) end
    left[#left + 1] = id
    codes[i] = OK
  end
end
if #left > 0 then
  redis.call('ZREM', KEYS[1], unpack(left))
  redis.call('ZREM', KEYS[2], unpack(left))
end
return codes
