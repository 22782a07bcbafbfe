-- Adds to counters and sees to it that they expire. Combinable: call i has KEYS[i], ARGV[i + 1].
-- KEYS counters   ARGV[1] TTL in milliseconds   ARGV[2..] the amount for each key
-- RETURNS for each key the value after the add, or its error; a string of digits when Lua would
-- round the number
-- WHY a script: INCRBY and PEXPIRE as two commands leave an immortal key when the second is lost.
-- The TTL starts with the first add; a key found without an expiry is healed.
-- One loop without functions: making three of them costs as much as an INCRBY.
local call, answers = redis.pcall, {}
for index, key in ipairs(KEYS) do
    local amount = ARGV[index + 1]
    local answer = call('PTTL', key)
    if answer == -2 then
        answer = call('SET', key, amount, 'PX', ARGV[1])
        if answer.ok then answer = amount end
    else
        if answer == -1 then
            -- The expiry first, and only for a counter: if an ACL refuses it nothing is counted.
            answer = call('INCRBY', key, '0')
            if type(answer) == 'number' then answer = call('PEXPIRE', key, ARGV[1]) end
        end
        if type(answer) == 'number' then
            answer = call('INCRBY', key, amount)
            if type(answer) == 'number' and math.abs(answer) >= 2 ^ 53 then
                answer = call('GET', key)
                if type(answer) == 'table' then
                    -- Refused, so the add is taken back. The least number has no negative.
                    if amount == '-9223372036854775808' then
                        call('INCRBY', key, '9223372036854775807')
                        amount = '-1'
                    end
                    call('INCRBY', key, amount:find('-', 1, true) and amount:sub(2) or '-' .. amount)
                end
            end
        end
    end
    answers[index] = answer
end
return answers
