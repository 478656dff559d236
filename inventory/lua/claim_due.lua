-- claim_due: takes the lease of reservations that are due to be sent again. The ids were read before
-- from mq_pending; all is checked again here.
--
-- KEYS    1 mq_pending; then N reservation hashes
-- ARGV    1 lease owner, 2 lease in ms; then N reservation ids, in the order of KEYS
-- RETURNS 1 how many ids were dropped because their hash is gone; 2 {reservation id, fields of its
--         hash...} of each claimed one
-- INVARIANT  Only RESERVED + MQ_PENDING, due by its score, without a running lease. send_attempt
--         grows with each claim. Ids that have no business in mq_pending leave it; none enters.
local lease_ms = tonumber(ARGV[2])
if not lease_ms or #ARGV ~= 1 + #KEYS then
  return redis.error_reply('ERR claim_due: wrong number of keys or arguments')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease_until = string.format('%d', now + lease_ms)
local claimed, leave, scores, dropped = {}, {}, {}, 0
for i = 1, #KEYS - 1 do
  local id, hash = ARGV[2 + i], KEYS[1 + i]
  local score = tonumber(redis.call('ZSCORE', KEYS[1], id) or nil)
  if score and score <= now then
    local at = redis.call('HMGET', hash, 'request_id', 'order_id', 'message_id', 'user_id', 'sku_id',
      'quantity', 'status', 'mq_status', 'created_at', 'valid_until', 'traceparent', 'send_attempt',
      'reject_reason', 'lease_until')
    if not at[7] then
      dropped = dropped + 1
      leave[#leave + 1] = id
    elseif at[7] ~= 'RESERVED' or at[8] ~= 'MQ_PENDING' then
      leave[#leave + 1] = id
    elseif tonumber(at[14] or '0') <= now then
      at[12] = string.format('%d', (at[12] or 0) + 1)
      redis.call('HSET', hash, 'lease_owner', ARGV[1], 'lease_until', lease_until,
        'next_retry_at', lease_until, 'send_attempt', at[12])
      scores[#scores + 1] = lease_until
      scores[#scores + 1] = id
      claimed[#claimed + 1] = { id, unpack(at, 1, 13) }
    end
  end
end
if #scores > 0 then redis.call('ZADD', KEYS[1], 'XX', unpack(scores)) end
if #leave > 0 then redis.call('ZREM', KEYS[1], unpack(leave)) end
return { dropped, claimed }
