-- reschedule: a send did not succeed; the reservation becomes due again after a delay.
--
-- KEYS    1 mq_pending; then N reservation hashes
-- ARGV    1 lease owner; N times 2: reservation id, delay in ms
-- RETURNS contracts.MarkCode of each
-- INVARIANT  Fenced by the owner of the lease; only RESERVED + MQ_PENDING; never adds to the ZSET.
local OK, NOT_APPLICABLE, MISSING = 1, 2, 3
if #ARGV ~= 1 + 2 * (#KEYS - 1) then return redis.error_reply('ERR reschedule: wrong number of keys') end
for i = 1, #KEYS - 1 do
  if not tonumber(ARGV[2 * i + 1]) then return redis.error_reply('ERR reschedule: ill delay ' .. i) end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local codes = {}
for i = 1, #KEYS - 1 do
  local at = redis.call('HMGET', KEYS[1 + i], 'status', 'mq_status', 'lease_owner')
  if not at[1] then
    codes[i] = MISSING
  elseif at[1] ~= 'RESERVED' or at[2] ~= 'MQ_PENDING' or at[3] ~= ARGV[1] then
    codes[i] = NOT_APPLICABLE
  else
    local due = string.format('%d', now + ARGV[2 * i + 1])
    redis.call('HSET', KEYS[1 + i], 'lease_owner', '', 'lease_until', '0', 'next_retry_at', due)
    redis.call('ZADD', KEYS[1], 'XX', due, ARGV[2 * i])
    codes[i] = OK
  end
end
return codes
