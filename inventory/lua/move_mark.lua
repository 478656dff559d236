-- move_mark: moves the mark that tells an older copy of Redis, from n - 1 to n.
--
-- KEYS    1 mark
-- ARGV    1 n
-- RETURNS the mark as it was before, or -1 when it is gone
-- INVARIANT  Never created here, and moved by one step only: a mark that is behind stays behind.
local n = tonumber(ARGV[1])
if #KEYS ~= 1 or not n then return redis.error_reply('ERR move_mark: ill argument') end
local mark = tonumber(redis.call('GET', KEYS[1]) or nil)
if not mark then return -1 end
if mark == n - 1 then redis.call('SET', KEYS[1], ARGV[1]) end
return mark
