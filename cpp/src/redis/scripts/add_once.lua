-- Adds to counters, once for each op_id. Combinable: call i has KEYS[3i - 2 .. 3i] and
-- ARGV[3i .. 3i + 2].
-- KEYS for each call the counter and two hashes op_id -> result of the add, in the counter's slot
-- ARGV[1] how long a result is remembered, in milliseconds   ARGV[2] the counter's life or ''
-- ARGV[3..] for each call the amount, the op_id and when it was made, in unix milliseconds, or ''
-- where it does not say
-- RETURNS for each call the value after its add, be it now or when the op_id came first, or its
-- error; a string of digits where Lua would round the number. 'old' or 'ahead' where nothing was
-- added, because an op_id that is not remembered was made too long ago for that to mean that it is
-- new, or too far in the future to be remembered until then.
-- WHY a script: record and add in two steps count twice, or not at all, when the second is lost.
-- A hash takes results while it has at least ARGV[1] to live, which is half its life; then the
-- other one does, and what is too old goes by itself. A result is '' while its add is not made: should
-- nobody be allowed to remove it, then it still says that nothing was counted.
local call, exact = redis.pcall, 2 ^ 53
local keep, life = tonumber(ARGV[1]), ARGV[2]
local now

local function is_error(reply) return type(reply) == 'table' and reply.err end

local function time()
    if not now then
        local clock = redis.pcall('TIME')
        if is_error(clock) then return nil, clock end
        now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    end
    return now
end

local function take_back(key, amount)
    if amount == '-9223372036854775808' then
        -- Has no positive: in two steps, neither of which leaves 64 bits.
        call('INCRBY', key, '9223372036854775807')
        amount = '-1'
    end
    call('INCRBY', key, amount:sub(1, 1) == '-' and amount:sub(2) or '-' .. amount)
end

-- As add_with_ttl.lua does where there is a life.
local function add(key, amount)
    if life ~= '' then
        local left = call('PTTL', key)
        if left == -2 then
            local wrote = call('SET', key, amount, 'PX', life)
            return wrote.err and wrote or amount
        end
        if left == -1 then
            left = call('INCRBY', key, '0')
            if type(left) == 'number' then left = call('PEXPIRE', key, life) end
        end
        if type(left) == 'table' then return left end
    end
    local value = call('INCRBY', key, amount)
    if type(value) == 'number' then
        if value < exact and value > -exact then return string.format('%d', value) end
        value = call('GET', key)
        if type(value) == 'table' then take_back(key, amount) end
    end
    return value
end

-- The hash that will live for `need` milliseconds or more, and what life to give it for that.
local function choose(first, second, need)
    local left_first = call('PTTL', first)
    if type(left_first) == 'table' then return nil, left_first end
    if left_first >= need then return first end
    local left_second = call('PTTL', second)
    if type(left_second) == 'table' then return nil, left_second end
    if left_second >= need then return second end
    local ops, life_of_ops = first, need + keep
    if left_first >= 0 then
        ops = second
        if left_second >= 0 then
            -- Both still hold what others want: the younger takes more until the older is gone.
            if left_first > left_second then ops = first end
            life_of_ops = need + math.min(left_first, left_second) + 1
        end
    end
    return ops, string.format('%d', life_of_ops)
end

local function add_once(counter, first, second, amount, op_id, made)
    local known = call('HGET', first, op_id)
    if not known or known == '' then known = call('HGET', second, op_id) end
    if known and known ~= '' then return known end
    local need = keep
    if made ~= '' then
        local at, refused = time()
        if refused then return refused end
        if made + keep <= at then return 'old' end
        if made - at > keep then return 'ahead' end
        need = keep + math.max(made - at, 0)
    end
    local ops, renewed = choose(first, second, need)
    if not ops then return renewed end
    local result = call('HSET', ops, op_id, '')
    if not is_error(result) and renewed then result = call('PEXPIRE', ops, renewed) end
    if not is_error(result) then
        result = add(counter, amount)
        if not is_error(result) then
            call('HSET', ops, op_id, result)
            return result
        end
    end
    call('HDEL', ops, op_id)
    return result
end

local answers = {}
for index = 1, #KEYS / 3 do
    local at = 3 * index
    answers[index] = add_once(KEYS[at - 2], KEYS[at - 1], KEYS[at], ARGV[at], ARGV[at + 1],
                              ARGV[at + 2])
end
return answers
