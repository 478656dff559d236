-- close_gate: the operators' stop, close and pause, of all gates of a sale, at once.
--
-- KEYS    S gates
-- ARGV    1 version of the sale, 2 status to be in: PAUSED or CLOSED
-- RETURNS contracts.GateWriteCode: OK, MISSING (a gate is lost; the others are stopped) or STALE (a
--         newer open was here)
-- INVARIANT  `stopped` is set in any status; REBUILDING is never changed, CLOSED never becomes PAUSED.
local OK, MISSING, STALE = 1, 2, 3
local version = tonumber(ARGV[1])
if not version or #ARGV ~= 2 or (ARGV[2] ~= 'PAUSED' and ARGV[2] ~= 'CLOSED') then
  return redis.error_reply('ERR close_gate: ill arguments')
end
local code, status = OK, {}
for s = 1, #KEYS do
  local gate = redis.call('HMGET', KEYS[s], 'status', 'status_version')
  status[s] = gate[1]
  if not gate[1] then code = MISSING end
  if tonumber(gate[2] or '0') > version then return STALE end
end
for s = 1, #KEYS do
  if status[s] then
    if status[s] == 'OPEN' or status[s] == 'PAUSED' then status[s] = ARGV[2] end
    redis.call('HSET', KEYS[s], 'status', status[s], 'stopped', '1', 'status_version', ARGV[1])
    redis.call('HINCRBY', KEYS[s], 'version', 1)
  end
end
return code
