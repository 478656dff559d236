-- load_gate: warm-up. Puts the stock of a sale that was never opened into its gates, CLOSED.
--
-- KEYS    1 mark; S times: gate, stock, ops
-- ARGV    1 S, 2 version; S times 8: units, epoch, starts_ms, ends_ms, validity_ms, limit per user,
--         max open, max pending
-- RETURNS contracts.GateWriteCode: OK, STALE (loaded with a newer epoch), REFUSED (opened before)
-- INVARIANT  A gate that was opened is never loaded again: only rebuild writes its stock. All SKUs
--         or none. The field `warm` is taken away by the first open.
local OK, STALE, REFUSED = 1, 3, 4
local S = tonumber(ARGV[1])
if not S or #KEYS ~= 1 + 3 * S or #ARGV ~= 2 + 8 * S then
  return redis.error_reply('ERR load_gate: wrong number of keys or arguments')
end
for i = 2, #ARGV do
  if not tonumber(ARGV[i]) then return redis.error_reply('ERR load_gate: ill argument ' .. i) end
end
for s = 1, S do
  local gate = redis.call('HMGET', KEYS[3 * s - 1], 'status', 'warm', 'epoch')
  if gate[1] and gate[2] ~= '1' then return REFUSED end
  if gate[1] and tonumber(gate[3]) > tonumber(ARGV[8 * s - 4]) then return STALE end
end
redis.call('SET', KEYS[1], '0', 'NX')
for s = 1, S do
  local a = 2 + 8 * (s - 1)
  redis.call('SET', KEYS[3 * s], ARGV[a + 1])
  redis.call('DEL', KEYS[3 * s + 1])
  redis.call('HSET', KEYS[3 * s - 1], 'status', 'CLOSED', 'stopped', '0', 'warm', '1', 'epoch', ARGV[a + 2],
    'starts_ms', ARGV[a + 3], 'ends_ms', ARGV[a + 4], 'validity_ms', ARGV[a + 5],
    'limit_per_user', ARGV[a + 6], 'max_open', ARGV[a + 7], 'max_pending', ARGV[a + 8],
    'version', '1', 'edit_version', ARGV[2], 'status_version', ARGV[2],
    'rebuild_run', '0', 'rebuild_seen', '0')
end
return OK
