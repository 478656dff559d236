-- confirm: PostgreSQL has an order for these reservations.
--
-- KEYS    1 mq_pending, 2 open; S gates; N reservation hashes
-- ARGV    1 S, 2 N; N times 2: number of the SKU (1..S), reservation id
-- RETURNS contracts.ConfirmCode of each
-- INVARIANT  RESERVED -> CONFIRMED only. The id leaves both ZSETs, also when its hash is gone;
--         nothing changes while the gate is REBUILDING.
local OK, ALREADY, NOT_APPLICABLE, MISSING, RETRY = 1, 2, 3, 4, 5
local S, N = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (S and N) or #KEYS ~= 2 + S + N or #ARGV ~= 2 + 2 * N then
  return redis.error_reply('ERR confirm: wrong number of keys or arguments')
end
for i = 1, N do
  local s = tonumber(ARGV[1 + 2 * i])
  if not (s and s >= 1 and s <= S) then return redis.error_reply('ERR confirm: ill SKU in item ' .. i) end
end
local rebuilding, codes, left = {}, {}, {}
for s = 1, S do rebuilding[s] = redis.call('HGET', KEYS[2 + s], 'status') == 'REBUILDING' end
for i = 1, N do
  if rebuilding[tonumber(ARGV[1 + 2 * i])] then
    codes[i] = RETRY
  else
    local hash = KEYS[2 + S + i]
    local status = redis.call('HGET', hash, 'status')
    if not status then
      codes[i] = MISSING
    elseif status == 'RESERVED' then
      redis.call('HSET', hash, 'status', 'CONFIRMED', 'mq_status', 'MQ_SENT', 'lease_owner', '',
        'lease_until', '0')
      codes[i] = OK
    else
      codes[i] = status == 'CONFIRMED' and ALREADY or NOT_APPLICABLE
    end
    left[#left + 1] = ARGV[2 + 2 * i]
  end
end
if #left > 0 then
  redis.call('ZREM', KEYS[1], unpack(left))
  redis.call('ZREM', KEYS[2], unpack(left))
end
return codes
