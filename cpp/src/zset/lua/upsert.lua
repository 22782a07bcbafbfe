-- Upserts into sorted sets, each only if its set exists and will outlive the gate.
-- KEYS    of each element: the set, its companion (version hash) if it can have one, and its marker
--         if it is written with a version
-- ARGV[1] gate in milliseconds   ARGV[2] how long a companion outlives its set, in milliseconds
-- ARGV[3..] per element four: member, score, version or '', and how many keys are its own;
--           '0': it has the keys of the element before it
-- RETURNS per element 1 applied, 2 absent, 3 stale, 4 expiring, 5 no TTL, or its error
-- WHY a script: between EXISTS or PTTL and ZADD as two commands the set can expire, and ZADD then
-- makes one of a single member that never expires. pcall: one bad key must not end the batch.
-- What writes more than one key asks before its first change whether all of it is allowed: a refusal
-- leaves set, companion and marker as they were.
-- A companion's field "" is '0', or the server's time in ms until which the set lives although
-- remove() took its last member.
local APPLIED, ABSENT, STALE, EXPIRING, NO_TTL = 1, 2, 3, 4, 5
local gate, keep = tonumber(ARGV[1]), tonumber(ARGV[2])

-- True if version a is lower than b. As digits: Lua's numbers end at 2^53.
local function less(a, b)
    local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if negative_a ~= negative_b then return negative_a end
    if negative_a then a, b = b:sub(2), a:sub(2) end
    if #a ~= #b then return #a < #b end
    return a < b
end

local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

-- How long a set that has no members lives on, in milliseconds; 0 if it does not.
local function life_without_members(companion)
    if not companion then return 0 end
    local till = redis.pcall('HGET', companion, '')
    if not till or failed(till) or till == '0' then return 0 end
    local time = redis.pcall('TIME')
    if failed(time) then return 0, time end
    return till - (time[1] * 1000 + math.floor(time[2] / 1000))
end

-- What an upsert into the set would come to, its TTL, and whether it has no members. A script
-- stands outside of time: within it no key expires, so this holds for all elements of the set.
local function look_at(set, companion)
    local left = redis.pcall('PTTL', set)
    if failed(left) then return left end
    if left == -2 then
        local unknown
        left, unknown = life_without_members(companion)
        if unknown then return unknown end
        if left <= 0 then return ABSENT end
        return left <= gate and EXPIRING or APPLIED, left, true
    end
    -- A key of another type that passes here is refused by ZADD, the first change.
    if left > gate and left >= 0 then return APPLIED, left, false end
    local kind = redis.pcall('TYPE', set)
    if failed(kind) then return kind end
    if kind.ok ~= 'zset' then
        return {err = 'WRONGTYPE Operation against a key holding the wrong kind of value'}
    end
    return left < 0 and NO_TTL or EXPIRING
end

local ask = redis.acl_check_cmd
local function refused(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
    end
end

local states, lives, empty = {}, {}, {}
local function upsert(set, member, score, companion, version, marker)
    if not states[set] then
        states[set], lives[set], empty[set] = look_at(set, companion)
    end
    if states[set] ~= APPLIED then return states[set] end
    local life, mark, renew
    if version ~= '' then
        local last = redis.pcall('HGET', companion, member)
        if failed(last) then return last end
        if last and not less(last, version) then return STALE end
        -- Lost, with what it knew: a version that is too old could not be told from a new one. A
        -- set without a marker never had versions: it is others', and has them from now on.
        local companion_left = redis.pcall('PTTL', companion)
        if failed(companion_left) then return companion_left end
        local marker_left = redis.pcall('PTTL', marker)
        if failed(marker_left) then return marker_left end
        if companion_left == -2 and marker_left ~= -2 then return ABSENT end
        life = lives[set] + keep
        mark, renew = marker_left < life, companion_left < life
        local refusal = refused('ZADD', set, score, member) or
                        refused('HSET', companion, member, version) or
                        (mark and refused('SET', marker, '', 'PX', life)) or
                        (renew and refused('PEXPIRE', companion, life))
        if refusal then return refusal end
    end
    if empty[set] then
        local refusal = refused('PEXPIRE', set, lives[set]) or
                        refused('HSET', companion, '', '0')
        if refusal then return refusal end
    end
    -- The member first: what a server refuses to all, for want of memory, it refuses before the
    -- first change only.
    local added = redis.pcall('ZADD', set, score, member)
    if failed(added) then return added end
    if version ~= '' then
        if mark then redis.pcall('SET', marker, '', 'PX', life) end
        redis.pcall('HSET', companion, member, version)
        if renew then redis.pcall('PEXPIRE', companion, life) end
    end
    if empty[set] then
        -- Given members it would otherwise never expire.
        redis.pcall('PEXPIRE', set, lives[set])
        redis.pcall('HSET', companion, '', '0')
        empty[set] = false
    end
    return APPLIED
end

local results, taken, set, companion, marker = {}, 0, nil, nil, nil
for i = 3, #ARGV, 4 do
    local own = tonumber(ARGV[i + 3])
    if own > 0 then
        set, companion, marker = KEYS[taken + 1], own > 1 and KEYS[taken + 2],
                                 own > 2 and KEYS[taken + 3]
        taken = taken + own
    end
    results[#results + 1] = upsert(set, ARGV[i], ARGV[i + 1], companion, ARGV[i + 2], marker)
end
return results
