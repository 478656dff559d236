-- adopt: an order exists whose buyer does not hold it at the gate (its release was no definite
-- failure after all): its units are taken from the gate, which promised them twice.
--
-- KEYS    1 gate, 2 stock, 3 buyers, 4 ops
-- ARGV    1 order id (the operation), 2 user, 3 reservation, 4 quantity, 5 epoch
-- RETURNS contracts.AdoptCode
-- INVARIANT  Takes units from the gate only, all or nothing, and only while nobody stands in
--         buyers[user]; once an epoch. Touches no reservation hash and no ZSET.
local OK, REPEATED, TAKEN, SHORT, RETRY, HELD = 1, 2, 3, 4, 5, 6
local quantity, epoch = tonumber(ARGV[4]), tonumber(ARGV[5])
if #KEYS ~= 4 or #ARGV ~= 5 or not (quantity and epoch) or quantity < 1 or ARGV[1] == '' then
  return redis.error_reply('ERR adopt: ill argument')
end
local gate = redis.call('HMGET', KEYS[1], 'status', 'epoch')
local stock = tonumber(redis.call('GET', KEYS[2]) or nil)
if not gate[1] or not stock or gate[1] == 'REBUILDING' or tonumber(gate[2] or '0') ~= epoch then return RETRY end
local holder = redis.call('HGET', KEYS[3], ARGV[2])
if holder == ARGV[3] then return HELD end
if redis.call('HEXISTS', KEYS[4], ARGV[1]) == 1 then return REPEATED end
if holder then return TAKEN end
if stock < quantity then return SHORT end
redis.call('DECRBY', KEYS[2], quantity)
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[4], ARGV[1], string.format('%d', -quantity))
redis.call('HINCRBY', KEYS[1], 'version', 1)
return OK
