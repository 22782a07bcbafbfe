-- Adds to the number of one period, or reads it, by the server's clock.
-- KEYS[1] the period's counter
-- ARGV[1] amount, or '' to read   ARGV[2] 1 if the period must be the present one, else 0
-- ARGV[3] when the period begins   ARGV[4] when it ends   ARGV[5] when its number is gone
-- ARGV[6] how far ahead a period may begin; all in seconds, times since the epoch
-- RETURNS {0, value, time} when done; {1, 0, time} when the present is another period, {2, 0, time}
-- when the period is gone, {3, 0, time} when it is too far ahead: nothing was done. The value is a
-- string (Lua would round a number above 2^53).
-- WHY a script: which period the present is, the add and the expiry are one step.
local time = redis.call('TIME')
local now = tonumber(time[1])
local begins, gone = tonumber(ARGV[3]), tonumber(ARGV[5])
if ARGV[2] == '1' and (now < begins or now >= tonumber(ARGV[4])) then return {1, 0, now} end
if ARGV[1] == '' then return {0, redis.call('GET', KEYS[1]) or '0', now} end
if now >= gone then return {2, 0, now} end
if begins - now > tonumber(ARGV[6]) then return {3, 0, now} end
local at = ARGV[5] .. '000'
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
    redis.call('SET', KEYS[1], ARGV[1], 'PXAT', at)
    return {0, ARGV[1], now}
end
if left < (gone - now) * 1000 - math.floor(time[2] / 1000) then
    -- It has lost its expiry, or was added to with a shorter keep. The expiry first, and only for a
    -- counter: if an ACL refuses it nothing is counted.
    redis.call('INCRBY', KEYS[1], 0)
    redis.call('PEXPIREAT', KEYS[1], at)
end
local sum = redis.call('INCRBY', KEYS[1], ARGV[1])
if sum < 2 ^ 53 and sum > -2 ^ 53 then return {0, string.format('%d', sum), now} end
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
    -- Refused, so what was added is taken back; the least number has no positive.
    local amount = ARGV[1]
    if amount == '-9223372036854775808' then
        redis.call('INCRBY', KEYS[1], '9223372036854775807')
        amount = '-1'
    end
    redis.call('INCRBY', KEYS[1], amount:find('-', 1, true) and amount:sub(2) or '-' .. amount)
    return value
end
return {0, value, now}
