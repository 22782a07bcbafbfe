-- Adds to counters, once for each op_id. Combinable: call i has KEYS[3i - 2 .. 3i] and
-- ARGV[3i .. 3i + 2].
-- KEYS for each call the counter and two hashes op_id -> result of the add, in the counter's slot
-- ARGV[1] how long a result is remembered, in milliseconds   ARGV[2] the counter's TTL or ''
-- ARGV[3..] for each call the amount, the op_id and when it was made, in unix milliseconds, or ''
-- where it does not say
-- RETURNS for each call the value after its add, be it now or when the op_id came first, or its
-- error; a string of digits when Lua would round the number. 'old' or 'ahead' when nothing was
-- added, because an op_id that is not remembered was made too long ago for that to mean that it is
-- new, or too far in the future to be remembered until then.
-- WHY a script: record and add in two steps count twice, or not at all, when the second is lost.
-- Of two hashes one takes results while it has at least ARGV[1] to live, then the other one, so old
-- results expire with their hash. The two take FULL results each. Further results go to a pair of
-- hashes chosen by the op_id, because a server frees an expired hash in one go and serves no call
-- meanwhile. The names of a pair are the two names with '.' and four digits: in the same slot, and
-- made only when needed, because two more KEYS for every call cost as much as an INCRBY.
-- There are enough pairs to keep each hash below 512 fields. Up to there a hash is packed and
-- searched from its beginning: with 500 fields a look takes the server 6 us, with 30 less than 1.
-- Permissions are checked before the add, so that no later command is refused.
local FULL = 4096
local DENIED = 'NOPERM this user may not run all that an add with an op_id takes: nothing was added'
local call, exact, ask = redis.pcall, 2 ^ 53, redis.acl_check_cmd
local keep, ttl = tonumber(ARGV[1]), ARGV[2]
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
        -- Its negative does not fit: two steps, neither of which leaves 64 bits.
        call('INCRBY', key, '9223372036854775807')
        amount = '-1'
    end
    call('INCRBY', key, amount:sub(1, 1) == '-' and amount:sub(2) or '-' .. amount)
end

-- As add_with_ttl.lua does when there is a TTL.
local function add(key, amount)
    if ttl ~= '' then
        local left = call('PTTL', key)
        if left == -2 then
            local wrote = call('SET', key, amount, 'PX', ttl)
            return wrote.err and wrote or amount
        end
        if left == -1 then
            left = call('INCRBY', key, '0')
            if type(left) == 'number' then left = call('PEXPIRE', key, ttl) end
        end
        if type(left) == 'table' then return left end
    elseif #amount > 15 then
        -- Checked first: taking back the first add of a new counter would leave a 0.
        if ask and not ask('GET', key) then return {err = DENIED} end
    end
    local value = call('INCRBY', key, amount)
    if type(value) == 'number' then
        if value < exact and value > -exact then return string.format('%d', value) end
        value = call('GET', key)
        if type(value) == 'table' then take_back(key, amount) end
    end
    return value
end

-- The one of two hashes that will live for `need` milliseconds or more, and the TTL that it needs
-- for that: up to `spread` more.
local function choose(first, second, need, spread)
    local left_first = call('PTTL', first)
    if type(left_first) == 'table' then return nil, left_first end
    if left_first >= need then return first end
    local left_second = call('PTTL', second)
    if type(left_second) == 'table' then return nil, left_second end
    if left_second >= need then return second end
    local ops, life_of_ops = first, need + spread
    if left_first >= 0 then
        ops = second
        if left_second >= 0 then
            -- Both hold results that are needed: the younger takes more until the older is gone.
            if left_first > left_second then ops = first end
            life_of_ops = need + math.min(left_first, left_second) + 1
        end
    end
    return ops, string.format('%d', life_of_ops)
end

local function add_once(counter, first, second, amount, op_id, made)
    local known = call('HGET', first, op_id)
    if known then return known end
    local size_first, size_second = call('HLEN', first), call('HLEN', second)
    if is_error(size_first) then return size_first end
    if is_error(size_second) then return size_second end
    if size_second > 0 then
        known = call('HGET', second, op_id)
        if known then return known end
    end
    -- A full hash outlives each result that went elsewhere for want of room, so only then look there.
    local own_first, own_second, spread
    if size_first >= FULL or size_second >= FULL then
        local digits = redis.sha1hex(op_id):sub(1, 4)
        own_first, own_second = first .. '.' .. digits, second .. '.' .. digits
        -- By their number, so that hashes which were made together do not end together.
        spread = keep - math.floor(keep * tonumber(digits, 16) / 131072)
        known = call('HGET', own_first, op_id) or call('HGET', own_second, op_id)
        if known then return known end
    end
    local need = keep
    if made ~= '' then
        local at, unknown = time()
        if unknown then return unknown end
        if made + keep <= at then return 'old' end
        if made - at > keep then return 'ahead' end
        need = keep + math.max(made - at, 0)
    end
    local ops, renewed = choose(first, second, need, keep)
    if not ops then return renewed end
    local full, full_renewed
    if (ops == first and size_first or size_second) >= FULL then
        -- The full hash must outlive the result that goes elsewhere.
        full, full_renewed = ops, renewed
        ops, renewed = choose(own_first, own_second, need, spread)
        if not ops then return renewed end
    end
    if ask and not (ask('HSET', ops, op_id, '') and
                    (not (renewed or full_renewed) or ask('PEXPIRE', ops, '1'))) then
        return {err = DENIED}
    end
    -- The add is the first write: for want of memory a server refuses only that.
    local result = add(counter, amount)
    if is_error(result) then return result end
    local recorded = call('HSET', ops, op_id, result)
    if is_error(recorded) then
        -- By a server before 7.0, which cannot be asked.
        take_back(counter, amount)
        return recorded
    end
    if renewed then call('PEXPIRE', ops, renewed) end
    if full_renewed then call('PEXPIRE', full, full_renewed) end
    return result
end

local answers = {}
for index = 1, #KEYS / 3 do
    local at = 3 * index
    answers[index] = add_once(KEYS[at - 2], KEYS[at - 1], KEYS[at], ARGV[at], ARGV[at + 1],
                              ARGV[at + 2])
end
return answers
