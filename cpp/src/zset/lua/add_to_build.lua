-- Adds a chunk of members to a build and renews its lease.
-- KEYS[1] set   KEYS[2] companion (version hash)   KEYS[3] build   KEYS[4] build's hash
-- ARGV[1] token of the builder   ARGV[2] the chunk's number, from 1; one that was added already is
-- not added again   ARGV[3] lease in ms   ARGV[4] how long a companion outlives its set, in ms
-- ARGV[5..] per member three: member, score, version or ''
-- RETURNS 1 done, 0 the lease is lost, 2 a key of the build is lost: the build ends
-- WHY a script: an upsert between the read of the member's note and ZADD would be lost, and a chunk
-- that comes after the end of the lease would make a build that no lease guards.
-- A write since the build began wins over an add, unless both have versions: then the higher wins.
-- An add with a lower version than the set had for the member gets the set's own score.
local set, companion, build, hash = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, keep = tonumber(ARGV[3]), tonumber(ARGV[4])

-- True if version a is lower than b. As digits: Lua's numbers end at 2^53.
local function less(a, b)
    local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if negative_a ~= negative_b then return negative_a end
    if negative_a then a, b = b:sub(2), a:sub(2) end
    if #a ~= #b then return #a < #b end
    return a < b
end

local token, size, chunks = (redis.call('HGET', hash, '') or ''):match('^(%S+) (%d+) (%d+)$')
if token ~= ARGV[1] then return 0 end
size, chunks = tonumber(size), tonumber(chunks)
local companion_left = redis.call('PTTL', companion)
-- A companion without the token was lost, and upserts that name no build have bypassed this one.
local told = (redis.call('HGET', companion, '') or ''):match(' (%S+)$') == token
local lost = not told or redis.call('ZCARD', build) ~= size

local ask = redis.acl_check_cmd
local function refused(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
    end
end
local refusal = refused('UNLINK', build, hash) or refused('PEXPIRE', hash, lease) or
                refused('PEXPIRE', build, lease) or refused('PEXPIRE', companion, lease) or
                refused('ZADD', build, '0', '') or refused('HSET', hash, '', '')
if refusal then return refusal end
if lost then
    redis.call('UNLINK', build, hash)
    return 2
end

local scored, noted = {}, {}
if tonumber(ARGV[2]) == chunks + 1 then
    local members, versioned = {}, false
    for i = 5, #ARGV, 3 do
        members[#members + 1] = ARGV[i]
        versioned = versioned or ARGV[i + 2] ~= ''
    end
    local written = redis.call('HMGET', hash, unpack(members))
    local before = versioned and redis.call('HMGET', companion, unpack(members))
    local state, last = {}, {}
    for i, member in ipairs(members) do
        local text = written[i] or ''
        state[member] = text:match('[~!]') or ''
        last[member] = text:match('^-?%d+')
    end
    for i, member in ipairs(members) do
        local score, version = ARGV[3 * i + 3], ARGV[3 * i + 4]
        local known = version ~= '' and before[i] and before[i]:match('^-?%d+')
        if version == '' then
            if state[member] ~= '' then score = nil end
        elseif state[member] == '!' or (last[member] and less(version, last[member])) or
               (state[member] == '~' and last[member] == version) then
            score = nil
        else
            if known and less(version, known) then
                version, score = known, redis.call('ZSCORE', set, member)
            end
            last[member] = version
            noted[#noted + 1] = member
            noted[#noted + 1] = version .. state[member]
        end
        if score then
            scored[#scored + 1] = score
            scored[#scored + 1] = member
        end
    end
    chunks = chunks + 1
    if #scored > 0 then size = size + redis.call('ZADD', build, unpack(scored)) end
    noted[#noted + 1] = ''
    noted[#noted + 1] = string.format('%s %.0f %.0f', token, size, chunks)
    redis.call('HSET', hash, unpack(noted))
end
redis.call('PEXPIRE', hash, lease)
-- Longer, so that the hash, which says how many members there are, is never there without them.
if size > 0 then redis.call('PEXPIRE', build, lease + 1000) end
if companion_left < lease + keep then redis.call('PEXPIRE', companion, lease + keep) end
return 1
