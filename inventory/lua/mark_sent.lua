-- mark_sent: the broker has confirmed these reservations' messages.
--
-- KEYS    1 mq_pending; then N reservation hashes
-- ARGV    N reservation ids, in the order of KEYS
-- RETURNS contracts.MarkCode of each
-- INVARIANT  Only RESERVED + MQ_PENDING changes; nothing is created or added. No owner is asked:
--         that the message is stored is true whoever says it, also after another took the lease.
local OK, NOT_APPLICABLE, MISSING = 1, 2, 3
if #KEYS ~= 1 + #ARGV then return redis.error_reply('ERR mark_sent: wrong number of keys') end
local codes, sent = {}, {}
for i = 1, #ARGV do
  local now = redis.call('HMGET', KEYS[1 + i], 'status', 'mq_status')
  if not now[1] then
    codes[i] = MISSING
  elseif now[1] ~= 'RESERVED' or now[2] ~= 'MQ_PENDING' then
    codes[i] = NOT_APPLICABLE
  else
    redis.call('HSET', KEYS[1 + i], 'mq_status', 'MQ_SENT', 'lease_owner', '', 'lease_until', '0')
    sent[#sent + 1] = ARGV[i]
    codes[i] = OK
  end
end
if #sent > 0 then redis.call('ZREM', KEYS[1], unpack(sent)) end
return codes
