-- Gives a holder's place back.
-- KEYS[1] the holders, as concurrency_acquire.lua has them   ARGV[1] the holder's id and lease
-- RETURNS 1, or 0 if the lease had ended or the place had already been given back
-- WHY a script: ZREM does not say whether the lease had ended.
local call = redis.call
local key, held = KEYS[1], ARGV[1]
local score = call('ZSCORE', key, held)
if not score then
    -- A limit with another lease may have taken the place, or renewed it.
    local name = string.match(held, '^(.*) %d+$')
    for _, one in ipairs(call('ZRANGE', key, '0', '-1')) do
        if string.match(one, '^(.*) %d+$') == name then score, held = call('ZSCORE', key, one), one end
    end
end
if not score then return 0 end
local time = call('TIME')
call('ZREM', key, held)
return score + 0 > time[1] * 1000000 + time[2] and 1 or 0
