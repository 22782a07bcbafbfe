-- Gives a holder's place back.
-- KEYS[1] the holders, as concurrency_acquire.lua has them   ARGV[1] the holder's id
-- RETURNS 1, or 0 where the lease had ended before or the place was given back already
-- WHY a script: ZREM does not say whether the lease had ended.
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score then return 0 end
local time = redis.call('TIME')
redis.call('ZREM', KEYS[1], ARGV[1])
return score + 0 > time[1] * 1000000 + time[2] and 1 or 0
