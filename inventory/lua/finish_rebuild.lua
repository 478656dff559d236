-- finish_rebuild: the last script of a rebuild run: writes what PostgreSQL's transaction found.
--
-- KEYS    1 mark; S times: gate, stock, buyers, ops
-- ARGV    1 S, 2 number of the run, 3 mark to write ('' = leave it: no loss was noted), 4 PostgreSQL's
--         status (OPEN, PAUSED or CLOSED), 5 version of the sale; S times 9: units, epoch, starts_ms,
--         ends_ms, validity_ms, limit per user, max open, max pending, B; then for each SKU its B times
--         2: user, reservation
-- RETURNS contracts.GateWriteCode: OK, MISSING, STALE (not this run's gate) or REFUSED (not REBUILDING)
-- INVARIANT  Only in REBUILDING and only by the run whose number the gate holds. The status is
--         PostgreSQL's ORed with `stopped`: a stop that arrived meanwhile stands. `ops` begins anew
--         with the epoch. The number stays as the newest seen. All SKUs or none.
local OK, MISSING, STALE, REFUSED = 1, 2, 3, 4
local S = tonumber(ARGV[1])
if not S or #KEYS ~= 1 + 4 * S or #ARGV < 5 + 9 * S
  or (ARGV[4] ~= 'OPEN' and ARGV[4] ~= 'PAUSED' and ARGV[4] ~= 'CLOSED') then
  return redis.error_reply('ERR finish_rebuild: wrong number of keys or arguments')
end
local expected = 5 + 9 * S
for s = 1, S do
  for k = 1, 9 do
    if not tonumber(ARGV[5 + 9 * (s - 1) + k]) then
      return redis.error_reply('ERR finish_rebuild: ill argument of SKU ' .. s)
    end
  end
  expected = expected + 2 * ARGV[5 + 9 * s]
end
if #ARGV ~= expected then return redis.error_reply('ERR finish_rebuild: wrong number of buyers') end
local stopped, newer = {}, {}
for s = 1, S do
  local gate = redis.call('HMGET', KEYS[4 * s - 2], 'status', 'rebuild_run', 'stopped', 'edit_version')
  if not gate[1] then return MISSING end
  if gate[2] ~= ARGV[2] then return STALE end
  if gate[1] ~= 'REBUILDING' then return REFUSED end
  stopped[s] = gate[3] == '1' or ARGV[4] ~= 'OPEN'
  newer[s] = tonumber(gate[4] or '0') > tonumber(ARGV[5])
end
local from = 5 + 9 * S
for s = 1, S do
  local a, gate = 5 + 9 * (s - 1), KEYS[4 * s - 2]
  local status = ARGV[4]
  if stopped[s] and status == 'OPEN' then status = 'CLOSED' end
  redis.call('SET', KEYS[4 * s - 1], ARGV[a + 1])
  redis.call('DEL', KEYS[4 * s], KEYS[4 * s + 1])
  for _ = 1, tonumber(ARGV[a + 9]) do
    redis.call('HSET', KEYS[4 * s], ARGV[from + 1], ARGV[from + 2])
    from = from + 2
  end
  redis.call('HSET', gate, 'status', status, 'stopped', stopped[s] and '1' or '0', 'epoch', ARGV[a + 2],
    'rebuild_run', '0')
  if not newer[s] then
    redis.call('HSET', gate, 'starts_ms', ARGV[a + 3], 'ends_ms', ARGV[a + 4], 'validity_ms', ARGV[a + 5],
      'limit_per_user', ARGV[a + 6], 'max_open', ARGV[a + 7], 'max_pending', ARGV[a + 8],
      'edit_version', ARGV[5])
  end
  redis.call('HDEL', gate, 'warm')
  redis.call('HINCRBY', gate, 'version', 1)
end
if ARGV[3] ~= '' then redis.call('SET', KEYS[1], ARGV[3]) end
return OK
