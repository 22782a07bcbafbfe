-- Adds to a counter only where the result stays inside bounds.
-- KEYS[1] counter
-- ARGV[1] amount   ARGV[2] least value or ''   ARGV[3] greatest value or ''
-- ARGV[4] life in milliseconds or ''
-- RETURNS {1, value} or, refused, {0, value as it stands}; values are strings
-- WHY a script: a check before the add lets two callers both take the last one.
-- The server adds and we undo, because its integers are exact and Lua's end at 2^53: values are
-- compared as strings of digits.
local function less(a, b)
    local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if negative_a ~= negative_b then return negative_a end
    if negative_a then a, b = b:sub(2), a:sub(2) end
    if #a ~= #b then return #a < #b end
    return a < b
end

local before = redis.call('GET', KEYS[1])
local added = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(added) == 'table' and added.err then
    -- Would leave 64 bits, and so any bounds; another type is the caller's to hear of.
    if before and added.err:find('overflow', 1, true) then return {0, before} end
    return added
end
local value = redis.call('GET', KEYS[1])
if (ARGV[2] ~= '' and less(value, ARGV[2])) or (ARGV[3] ~= '' and less(ARGV[3], value)) then
    if before then
        redis.call('SET', KEYS[1], before, 'KEEPTTL')
    else
        redis.call('DEL', KEYS[1])
    end
    return {0, before or '0'}
end
if ARGV[4] ~= '' and redis.call('PTTL', KEYS[1]) < 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return {1, value}
