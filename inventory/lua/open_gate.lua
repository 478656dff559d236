-- open_gate: the operators' open and resume, of all gates of a sale.
--
-- KEYS    S gates
-- ARGV    1 version of the sale, 2 first open of the sale (1 or 0); then S epochs
-- RETURNS contracts.GateWriteCode: OK, MISSING (a gate is lost), STALE (a newer open, pause, close or
--         stop was here), REFUSED (a rebuild run is unfinished, or not the gate that PostgreSQL means)
--         or REBUILDING
-- INVARIANT  The only script but rebuild's last one that opens, and the only one that clears
--         `stopped`. All SKUs or none.
local OK, MISSING, STALE, REFUSED, REBUILDING = 1, 2, 3, 4, 5
local version = tonumber(ARGV[1])
if not version or #ARGV ~= 2 + #KEYS or (ARGV[2] ~= '1' and ARGV[2] ~= '0') then
  return redis.error_reply('ERR open_gate: ill arguments')
end
for s = 1, #KEYS do
  local gate = redis.call('HMGET', KEYS[s], 'status', 'status_version', 'rebuild_run', 'epoch', 'warm')
  if not gate[1] then return MISSING end
  if gate[1] == 'REBUILDING' then return REBUILDING end
  if (gate[3] or '0') ~= '0' then return REFUSED end
  if tonumber(gate[2] or '0') > version then return STALE end
  if gate[4] ~= ARGV[2 + s] then return REFUSED end
  -- Loaded afresh though the sale was opened before: what it sold is not in this gate.
  if gate[5] == '1' and ARGV[2] == '0' then return REFUSED end
end
for s = 1, #KEYS do
  redis.call('HSET', KEYS[s], 'status', 'OPEN', 'stopped', '0', 'status_version', ARGV[1])
  redis.call('HDEL', KEYS[s], 'warm')
  redis.call('HINCRBY', KEYS[s], 'version', 1)
end
return OK
