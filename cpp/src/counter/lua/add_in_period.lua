-- Adds to numbers of one period, or reads them, by the server's clock. Combinable: call i has KEYS[i],
-- ARGV[i + 5].
-- KEYS the period's counters
-- ARGV[1] 1 if the period must be the present one, else 0   ARGV[2] when the period begins
-- ARGV[3] when it ends   ARGV[4] when its numbers are gone   ARGV[5] how far ahead a period may begin;
-- all in seconds, times since the epoch   ARGV[6..] the amount for each key, or '' to read
-- RETURNS for each key its error, or {0, value, time} when done; {1, 0, time} when the present is
-- another period, {2, 0, time} when the period is gone, {3, 0, time} when it is too far ahead: nothing
-- was done. The value is a string when Lua would round the number.
-- WHY a script: which period the present is, the add and the expiry are one step.
local call, answers = redis.pcall, {}
local time = redis.call('TIME')
local now = tonumber(time[1])
local begins, gone, at = tonumber(ARGV[2]), tonumber(ARGV[4]), ARGV[4] .. '000'
local least_left = (gone - now) * 1000 - math.floor(time[2] / 1000)
local elsewhere = ARGV[1] == '1' and (now < begins or now >= tonumber(ARGV[3]))
local refused = 0
if elsewhere then
    refused = 1
elseif now >= gone then
    refused = 2
elseif begins - now > tonumber(ARGV[5]) then
    refused = 3
end
for index, key in ipairs(KEYS) do
    local amount, value = ARGV[index + 5], nil
    if elsewhere or (refused > 0 and amount ~= '') then
        answers[index] = {refused, 0, now}
    else
        if amount == '' then
            value = call('GET', key) or '0'
        else
            value = call('PTTL', key)
            if value == -2 then
                value = call('SET', key, amount, 'PXAT', at)
                if value.ok then value = amount end
            else
                if type(value) == 'number' and value < least_left then
                    -- It has lost its expiry, or was added to with a shorter keep. The expiry first,
                    -- and only for a counter: if an ACL refuses it nothing is counted.
                    value = call('INCRBY', key, '0')
                    if type(value) == 'number' then value = call('PEXPIREAT', key, at) end
                end
                if type(value) == 'number' then
                    value = call('INCRBY', key, amount)
                    if type(value) == 'number' and math.abs(value) >= 2 ^ 53 then
                        value = call('GET', key)
                        if type(value) == 'table' then
                            -- Refused, so what was added is taken back; the least number has no
                            -- positive.
                            if amount == '-9223372036854775808' then
                                call('INCRBY', key, '9223372036854775807')
                                amount = '-1'
                            end
                            call('INCRBY', key,
                                amount:find('-', 1, true) and amount:sub(2) or '-' .. amount)
                        end
                    end
                end
            end
        end
        answers[index] = type(value) == 'table' and value or {0, value, now}
    end
end
return answers
