-- Adds to counters only if the result stays inside bounds. Combinable: call i has KEYS[i] and
-- ARGV[3i - 1], ARGV[3i], ARGV[3i + 1].
-- KEYS counters   ARGV[1] TTL in milliseconds or ''
-- ARGV[2..] for each key the amount, the least value or '', the greatest value or ''
-- RETURNS for each key {1, value} or, refused, {0, value as it stands}, or its error; a value is a
-- string of digits when Lua would round the number
-- WHY a script: with a check before the add, two callers can both take the last unit.
-- Lua's numbers are exact up to 2^53. Beyond that the server adds and the script compares strings
-- of digits. If the sum is out of bounds, a second INCRBY, which cannot be refused, reverts the
-- add.
local call, exact = redis.pcall, 2 ^ 53
local ttl = ARGV[1]

local function less(a, b)
    local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if negative_a ~= negative_b then return negative_a end
    if negative_a then a, b = b:sub(2), a:sub(2) end
    if #a ~= #b then return #a < #b end
    return a < b
end

local function outside(value, least, most)
    return (least ~= '' and less(value, least)) or (most ~= '' and less(most, value))
end

local function take_back(key, amount)
    if amount == '-9223372036854775808' then
        -- Its negative does not fit in 64 bits, so the add is reverted in two steps.
        call('INCRBY', key, '9223372036854775807')
        amount = '-1'
    end
    call('INCRBY', key, amount:sub(1, 1) == '-' and amount:sub(2) or '-' .. amount)
end

local function create(key, amount, least, most)
    if outside(amount, least, most) then return {0, 0} end
    local wrote
    if ttl == '' then
        wrote = call('SET', key, amount)
    else
        wrote = call('SET', key, amount, 'PX', ttl)
    end
    return wrote.err and wrote or {1, amount}
end

local function heal(key)
    local left = call('PTTL', key)
    if left ~= -1 then return left end
    -- The expiry comes before the add: if an ACL refuses it, nothing is counted. INCRBY by 0 fails
    -- for a key that is no counter.
    left = call('INCRBY', key, '0')
    if type(left) == 'table' then return left end
    return call('PEXPIRE', key, ttl)
end

local function try(key, amount, least, most)
    local before = call('GET', key)
    if not before then return create(key, amount, least, most) end
    if type(before) == 'table' then return before end
    local number, added = tonumber(before) or exact, tonumber(amount)
    local sum = number + added
    local surely = math.max(math.abs(number), math.abs(added), math.abs(sum)) < exact
    if surely and ((least ~= '' and sum < tonumber(least)) or
                   (most ~= '' and sum > tonumber(most))) then
        return {0, before}
    end
    if ttl ~= '' then
        local healed = heal(key)
        if type(healed) == 'table' then return healed end
    end
    local value = call('INCRBY', key, amount)
    if type(value) == 'table' then
        -- A sum beyond 64 bits is outside any bounds. Other errors are returned.
        if value.err:find('overflow', 1, true) then return {0, before} end
        return value
    end
    if surely then return {1, value} end
    value = call('GET', key)
    if outside(value, least, most) then
        take_back(key, amount)
        return {0, before}
    end
    return {1, value}
end

local answers = {}
for index, key in ipairs(KEYS) do
    local at = 3 * index
    answers[index] = try(key, ARGV[at - 1], ARGV[at], ARGV[at + 1])
end
return answers
