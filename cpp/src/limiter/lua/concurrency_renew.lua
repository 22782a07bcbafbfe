-- Renews the lease of a holder's place, unless it has ended.
-- KEYS[1] the holders, as concurrency_acquire.lua has them
-- ARGV[1] the lease in microseconds   ARGV[2] the holder's id and lease
-- RETURNS 1, or 0 where the lease had ended or the place was given back
-- WHY a script: between a look and a write the lease can end and others can take all places.
local call, format, ceil, max = redis.call, string.format, math.ceil, math.max
local key, id = KEYS[1], ARGV[2]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local score, held = call('ZSCORE', key, id), id
if not score then
    -- A limit with another lease may have taken the place.
    local name = string.match(id, '^(.*) %d+$')
    for _, one in ipairs(call('ZRANGE', key, '0', '-1')) do
        if string.match(one, '^(.*) %d+$') == name then score, held = call('ZSCORE', key, one), one end
    end
end
if not score or score + 0 <= now then return 0 end
local ask = redis.acl_check_cmd
if ask and not (ask('PEXPIRE', key, '1') and ask('ZREM', key, held)) then
    return {err = 'NOPERM this user may not give the key an expiry or remove from it; nothing was done'}
end
local ends = now + ARGV[1]
local last = max(call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2] + 0, ends)
call('ZADD', key, format('%d', ends), id)
if held ~= id then call('ZREM', key, held) end
call('PEXPIRE', key, format('%d', ceil((last - now) / 1000)))
return 1
