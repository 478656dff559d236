-- edit_gate: the operators' change of window and limits, of all gates of a sale.
--
-- KEYS    S gates
-- ARGV    1 version of the edit; S times 6: starts_ms, ends_ms, validity_ms, limit per user, max open,
--         max pending
-- RETURNS contracts.GateWriteCode: OK, MISSING (a gate is lost) or STALE (a newer edit was here)
-- INVARIANT  Touches no status, stock or reservation: what the gate accepted keeps its valid_until.
--         All SKUs or none.
local OK, MISSING, STALE = 1, 2, 3
if #ARGV ~= 1 + 6 * #KEYS then return redis.error_reply('ERR edit_gate: wrong number of arguments') end
for i = 1, #ARGV do
  if not tonumber(ARGV[i]) then return redis.error_reply('ERR edit_gate: ill argument ' .. i) end
end
for s = 1, #KEYS do
  local gate = redis.call('HMGET', KEYS[s], 'status', 'edit_version')
  if not gate[1] then return MISSING end
  if tonumber(gate[2] or '0') > tonumber(ARGV[1]) then return STALE end
end
for s = 1, #KEYS do
  local a = 1 + 6 * (s - 1)
  redis.call('HSET', KEYS[s], 'starts_ms', ARGV[a + 1], 'ends_ms', ARGV[a + 2], 'validity_ms', ARGV[a + 3],
    'limit_per_user', ARGV[a + 4], 'max_open', ARGV[a + 5], 'max_pending', ARGV[a + 6],
    'edit_version', ARGV[1])
  redis.call('HINCRBY', KEYS[s], 'version', 1)
end
return OK
