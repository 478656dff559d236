-- issue_token: lets a buyer have a purchase token, within the sale's limit of valid ones.
--
-- KEYS    1 tokens
-- ARGV    1 user, 2 most valid tokens, 3 lifetime in ms
-- RETURNS the end of the token in epoch ms: the one he has, or a new one; 0 when none is left
-- INVARIANT  A buyer has one valid token at most, and asking again never makes it longer. Expired
--         ones make room. Nothing of a reservation is read or written here.
local limit, lifetime = tonumber(ARGV[2]), tonumber(ARGV[3])
if #KEYS ~= 1 or not (limit and lifetime) or ARGV[1] == '' then
  return redis.error_reply('ERR issue_token: ill argument')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now))
local has = redis.call('ZSCORE', KEYS[1], ARGV[1])
if has then return tonumber(has) end
if redis.call('ZCARD', KEYS[1]) >= limit then return 0 end
-- Whole seconds: the end is part of the token.
local ends = math.ceil((now + lifetime) / 1000) * 1000
redis.call('ZADD', KEYS[1], string.format('%d', ends), ARGV[1])
redis.call('PEXPIREAT', KEYS[1], string.format('%d', ends + 1000))
return ends
