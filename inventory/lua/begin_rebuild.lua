-- begin_rebuild: the wait is over; from here confirm, release and adjust_stock answer RETRY.
--
-- KEYS    S gates
-- ARGV    1 number of the run
-- RETURNS contracts.GateWriteCode: OK, MISSING, STALE (not this run's gate any more) or REFUSED (not
--         CLOSED: the run starts again from the top)
-- INVARIANT  REBUILDING only from CLOSED, only by the run whose number the gate holds. All SKUs or none.
local OK, MISSING, STALE, REFUSED = 1, 2, 3, 4
if #ARGV ~= 1 or not tonumber(ARGV[1]) then return redis.error_reply('ERR begin_rebuild: ill argument') end
for s = 1, #KEYS do
  local gate = redis.call('HMGET', KEYS[s], 'status', 'rebuild_run')
  if not gate[1] then return MISSING end
  if gate[2] ~= ARGV[1] then return STALE end
  if gate[1] ~= 'CLOSED' then return REFUSED end
end
for s = 1, #KEYS do redis.call('HSET', KEYS[s], 'status', 'REBUILDING') end
return OK
