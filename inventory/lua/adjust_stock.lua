-- adjust_stock: gives a top-up's units to the gate, or takes a cut's units from it, once an epoch.
--
-- KEYS    1 gate, 2 stock, 3 ops
-- ARGV    1 operation id, 2 units (+ to give, - to take), 3 epoch
-- RETURNS {contracts.AdjustCode, units really given (+) or taken (-)}
-- INVARIANT  Stock never falls below 0: a cut takes what is there. Each operation acts once in an
--         epoch; another epoch's is refused, and so is everything while REBUILDING.
local OK, REPEATED, WRONG_EPOCH, RETRY, MISSING = 1, 2, 3, 4, 5
local units, epoch = tonumber(ARGV[2]), tonumber(ARGV[3])
if #KEYS ~= 3 or #ARGV ~= 3 or not (units and epoch) or units == 0 or ARGV[1] == '' then
  return redis.error_reply('ERR adjust_stock: ill argument')
end
local gate = redis.call('HMGET', KEYS[1], 'status', 'epoch')
if not gate[1] then return { MISSING, 0 } end
if gate[1] == 'REBUILDING' then return { RETRY, 0 } end
local stock = tonumber(redis.call('GET', KEYS[2]) or nil)
if not stock then return { MISSING, 0 } end
if tonumber(gate[2]) ~= epoch then return { WRONG_EPOCH, 0 } end
local done = redis.call('HGET', KEYS[3], ARGV[1])
if done then return { REPEATED, tonumber(done) } end
if units < 0 and stock < -units then units = -stock end
if units ~= 0 then redis.call('INCRBY', KEYS[2], string.format('%d', units)) end
redis.call('HSET', KEYS[3], ARGV[1], string.format('%d', units))
redis.call('HINCRBY', KEYS[1], 'version', 1)
return { OK, units }
