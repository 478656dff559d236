-- release: PostgreSQL has ended these reservations (reject, expiry, cancel, refund).
--
-- KEYS    1 mq_pending, 2 open; S times: gate, stock, buyers; N reservation hashes
-- ARGV    1 S, 2 N; N times 6: number of the SKU (1..S), reservation id, user, quantity, restock
--         (1 or 0), reason
-- RETURNS {contracts.ReleaseCode, units given back} of each, flat
-- INVARIANT  Units go back if and only if buyers[user] names this reservation, whether or not its
--         hash still exists, and that entry is cleared in the same script: at most once. While the
--         gate is lost or REBUILDING nothing changes (RETRY). The id leaves both ZSETs.
local OK, RETRY = 1, 2
local S, N = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (S and N) or #KEYS ~= 2 + 3 * S + N or #ARGV ~= 2 + 6 * N then
  return redis.error_reply('ERR release: wrong number of keys or arguments')
end
for i = 1, N do
  local a = 2 + 6 * (i - 1)
  local s, quantity = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 4])
  if not (s and s >= 1 and s <= S and quantity and quantity >= 1 and (ARGV[a + 5] == '1' or ARGV[a + 5] == '0')) then
    return redis.error_reply('ERR release: ill argument in item ' .. i)
  end
end
local works, replies, left = {}, {}, {}
for s = 1, S do
  local status = redis.call('HGET', KEYS[3 * s], 'status')
  works[s] = status and status ~= 'REBUILDING' and redis.call('EXISTS', KEYS[3 * s + 1]) == 1
end
for i = 1, N do
  local a = 2 + 6 * (i - 1)
  local s, id, user, quantity = tonumber(ARGV[a + 1]), ARGV[a + 2], ARGV[a + 3], tonumber(ARGV[a + 4])
  local given = 0
  if not works[s] then
    replies[2 * i - 1] = RETRY
  else
    replies[2 * i - 1] = OK
    if redis.call('HGET', KEYS[3 * s + 2], user) == id then
      redis.call('HDEL', KEYS[3 * s + 2], user)
      if ARGV[a + 5] == '1' then
        redis.call('INCRBY', KEYS[3 * s + 1], quantity)
        given = quantity
      end
      redis.call('HINCRBY', KEYS[3 * s], 'version', 1)
    end
    local hash = KEYS[2 + 3 * S + i]
    local status = redis.call('HGET', hash, 'status')
    if status and status ~= 'RELEASED' then
      redis.call('HSET', hash, 'status', 'RELEASED', 'reject_reason', ARGV[a + 6], 'lease_owner', '',
        'lease_until', '0')
    end
    left[#left + 1] = id
  end
  replies[2 * i] = given
end
if #left > 0 then
  redis.call('ZREM', KEYS[1], unpack(left))
  redis.call('ZREM', KEYS[2], unpack(left))
end
return replies
