-- close_for_rebuild: the first script of a rebuild run: closes all gates and leaves the run's number.
--
-- KEYS    S gates
-- ARGV    1 number of the run, 2 the run began with the loss noted (1 or 0)
-- RETURNS contracts.GateWriteCode: OK, MISSING (a gate is gone and no loss was noted) or STALE (a newer
--         run was here)
-- INVARIANT  Writes to a missing gate only when the loss stands in PostgreSQL. A closed gate without
--         stock still answers GATE_LOST. All SKUs or none.
local OK, MISSING, STALE = 1, 2, 3
local run = tonumber(ARGV[1])
if not run or run < 1 or #ARGV ~= 2 or (ARGV[2] ~= '1' and ARGV[2] ~= '0') then
  return redis.error_reply('ERR close_for_rebuild: ill arguments')
end
for s = 1, #KEYS do
  local gate = redis.call('HMGET', KEYS[s], 'status', 'rebuild_run', 'rebuild_seen')
  if not gate[1] and ARGV[2] == '0' then return MISSING end
  if tonumber(gate[2] or '0') > run or tonumber(gate[3] or '0') > run then return STALE end
end
for s = 1, #KEYS do
  redis.call('HSET', KEYS[s], 'status', 'CLOSED', 'rebuild_run', ARGV[1], 'rebuild_seen', ARGV[1])
  redis.call('HINCRBY', KEYS[s], 'version', 1)
end
return OK
