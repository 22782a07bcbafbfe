-- Upserts into sorted sets, each only if its set exists and will outlive the gate.
-- KEYS    of each element: the set; its companion (version hash), if it can have one; if the caller
--         knows of a build, that and its hash (see begin_build.lua); and the marker if the element is
--         written with a version
-- ARGV[1] gate in milliseconds   ARGV[2] how long a companion outlives its set, in milliseconds
-- ARGV[3..] per element: member, score, and how many keys are its own; '0': it has the keys of the
--           element before it. If it has a marker, its version follows.
-- RETURNS per element 1 applied, 2 absent, 3 stale, 4 expiring, 5 no TTL, or its error; 6 nothing was
--         done, because the set is being built: the element is to come again with the build's keys
-- WHY a script: between EXISTS or PTTL and ZADD as two commands the set can expire, and ZADD then
-- makes one of a single member that never expires. pcall: one bad key must not end the batch.
-- Before the first change, permissions for all keys that will be written are checked: a refusal
-- leaves set, companion and marker as they were.
-- A companion's field "" is '0', or the server's time in ms until which the set lives although
-- remove() took its last member; behind it the token of a build, if one has begun.
-- If the set is being built, the build gets what the set gets, also when the set does not take it
-- because it is absent, expiring or without a TTL. The answer is the set's.
local APPLIED, ABSENT, STALE, EXPIRING, NO_TTL, BUILDING = 1, 2, 3, 4, 5, 6
local gate, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
local pcall, type = redis.pcall, type

local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

-- How long a set that has no members lives on, in milliseconds; 0 if it does not. `state` is the
-- companion's field "".
local function life_without_members(state)
    local till = state and state:match('^%d+')
    if not till or till == '0' then return 0 end
    local time = pcall('TIME')
    if failed(time) then return 0, time end
    return till - (time[1] * 1000 + math.floor(time[2] / 1000))
end

-- For a set whose TTL `left` does not outlive the gate: the result of an upsert into it, the life of
-- a set without members, and whether it is one.
local function look_at(set, left, beside)
    if type(left) ~= 'number' then return left end
    if left == -2 then
        local unknown
        left, unknown = life_without_members(beside)
        if unknown then return unknown end
        if left <= 0 then return ABSENT end
        return left <= gate and EXPIRING or APPLIED, left, true
    end
    local kind = pcall('TYPE', set)
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

-- The element's keys, how many they are, the companion's field "", and what look_at() and
-- look_at_build() say of the set.
local set, companion, build, hash, marker, declared
local beside, state, left, empty, token, size, chunks, dead

local upsert_with_companion, look_at_build, upsert_both

-- Defines these three functions. Most calls need none of them, and defining them in each call would
-- cost a call of one element a twelfth of its time.
local function define()
    -- True if version a is lower than b. As digits: Lua's numbers end at 2^53.
    local function less(a, b)
        local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
        if negative_a ~= negative_b then return negative_a end
        if negative_a then a, b = b:sub(2), a:sub(2) end
        if #a ~= #b then return #a < #b end
        return a < b
    end

    -- Into a set that lives: with a version, or without one into a set that has no members.
    upsert_with_companion = function(member, score, version)
        local life, mark, renew
        if version then
            local last = pcall('HGET', companion, member)
            if failed(last) then return last end
            last = last and last:match('^-?%d+')
            if last and not less(last, version) then return STALE end
            -- If the companion is lost with its versions, an old version looks like a new one.
            -- A set without a marker never had versions: it is others', and has them from now on.
            local companion_left = pcall('PTTL', companion)
            if failed(companion_left) then return companion_left end
            local marker_left = pcall('PTTL', marker)
            if failed(marker_left) then return marker_left end
            if companion_left == -2 and marker_left ~= -2 then return ABSENT end
            life = left + keep
            mark, renew = marker_left < life, companion_left < life
            local refusal = refused('ZADD', set, score, member) or
                            refused('HSET', companion, member, version) or
                            (mark and refused('SET', marker, '', 'PX', life)) or
                            (renew and refused('PEXPIRE', companion, life))
            if refusal then return refusal end
        end
        if empty then
            local refusal = refused('PEXPIRE', set, left) or refused('HSET', companion, '', '0')
            if refusal then return refusal end
        end
        -- The member first: for want of memory a server refuses only the first change.
        local added = pcall('ZADD', set, score, member)
        if failed(added) then return added end
        if version then
            if mark then pcall('SET', marker, '', 'PX', life) end
            pcall('HSET', companion, member, version)
            if renew then pcall('PEXPIRE', companion, life) end
        end
        if empty then
            -- A set that ZADD has made never expires otherwise.
            pcall('PEXPIRE', set, left)
            beside, empty = '0' .. (beside:match(' .*') or ''), false
            pcall('HSET', companion, '', beside)
        end
        return APPLIED
    end

    -- Finds the builder of the set, if there is one. Returns nil, or the error of the look.
    look_at_build = function()
        local text = pcall('HGET', hash, '')
        if failed(text) then return text end
        if text then token, size, chunks = text:match('^(%S+) (%d+) (%d+)$') end
        dead = not text and beside and beside:find(' ', 1, true)
    end

    -- Adds to the build alone. `note` is the text of the member's field in the hash.
    local function add_to_build(member, score, note)
        local added = pcall('ZADD', build, score, member)
        if failed(added) then return added end
        size = size + added
        pcall('HSET', hash, member, note, '', string.format('%s %.0f %s', token, size, chunks))
        -- The first member makes the key. It lives longer than the hash, which knows its members.
        if pcall('PTTL', build) < 0 then pcall('PEXPIRE', build, pcall('PTTL', hash) + 1000) end
    end

    -- Into a set that is being built.
    upsert_both = function(member, score, version)
        if failed(state) then return state end
        local text = pcall('HGET', hash, member)
        if failed(text) then return text end
        local last = text and text:match('^-?%d+')
        local note = version and version .. '~' or (last or '') .. '!'
        if version and last and not less(last, version) then note = nil end
        local refusal = refused('ZADD', build, score, member) or
                        refused('HSET', hash, member, '') or
                        refused('PEXPIRE', build, '1')
        if refusal then return refusal end
        if state == APPLIED then
            local result = upsert_with_companion(member, score, version)
            if result == APPLIED and note then add_to_build(member, score, note) end
            return result
        end
        local known = version and pcall('HGET', companion, member)
        if failed(known) then return known end
        known = known and known:match('^-?%d+')
        if not note or (known and not less(known, version)) then return state end
        return add_to_build(member, score, note) or state
    end
end

local results, count, taken, at, last = {}, 0, 0, 3, #ARGV
while at < last do
    local member, score, own = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    if own ~= '0' and (own ~= declared or KEYS[taken + 1] ~= set) then
        set, companion, beside = KEYS[taken + 1], nil, nil
        if own ~= '1' then
            companion = KEYS[taken + 2]
            beside = pcall('HGET', companion, '')
            -- A key of another type is no companion, and without one there is no build.
            if failed(beside) then beside = nil end
        end
        -- A script stands outside of time: within it no key expires, so what is seen here holds for
        -- the next elements too. A key of another type that passes is refused by ZADD.
        left, empty = pcall('PTTL', set), false
        if type(left) == 'number' and left > gate then
            state = APPLIED
        else
            state, left, empty = look_at(set, left, beside)
        end
        token, dead, marker, declared = nil, nil, nil, own
        if own == '3' or own == '5' then marker = KEYS[taken + own] end
        if own == '4' or own == '5' then
            build, hash = KEYS[taken + 3], KEYS[taken + 4]
            if not look_at_build then define() end
            state = look_at_build() or state
        elseif beside and beside ~= '0' and beside:find(' ', 1, true) then
            state = BUILDING
        end
    end
    taken = taken + own
    local version
    if marker then
        version = ARGV[at]
        at = at + 1
    end
    local result = state
    if token then
        result = upsert_both(member, score, version)
    elseif state == APPLIED then
        if version or empty then
            if not upsert_with_companion then define() end
            result = upsert_with_companion(member, score, version)
        else
            result = pcall('ZADD', set, score, member)
            if type(result) == 'number' then result = APPLIED end
        end
    end
    if dead and type(result) == 'number' and not refused('HSET', companion, '', '0') then
        -- The builder is gone with its lease: from now on the build's keys are not asked for.
        beside, dead = beside:match('^%d+'), nil
        pcall('HSET', companion, '', beside)
    end
    count = count + 1
    results[count] = result
end
return results
