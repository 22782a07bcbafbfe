-- Publishes a build: it becomes the set, and its hash the set's companion.
-- KEYS[1] set   KEYS[2] companion (version hash)   KEYS[3] marker: the set has had versions
-- KEYS[4] build   KEYS[5] build's hash
-- ARGV[1] token of the builder   ARGV[2] how many chunks it has added   ARGV[3] TTL of the set in ms
-- ARGV[4] how long the companion outlives the set, in ms
-- RETURNS 1 published, 0 the lease is lost, 2 a key of the build is lost: the build ends
-- WHY a script: between the look at the lease and RENAME another builder may have begun, and an upsert
-- between the two RENAMEs would find the members of one set beside the versions of the other.
local set, companion, marker, build, hash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, size, chunks = (redis.call('HGET', hash, '') or ''):match('^(%S+) (%d+) (%d+)$')
if token ~= ARGV[1] then return 0 end
local kind = redis.call('TYPE', set).ok
if kind ~= 'none' and kind ~= 'zset' then
    return {err = 'WRONGTYPE Operation against a key holding the wrong kind of value'}
end
local companion_left = redis.call('PTTL', companion)
local members = redis.call('ZCARD', build)
-- A companion without the token was lost, and upserts that name no build have bypassed this one.
local told = redis.call('TYPE', companion).ok == 'hash' and
             (redis.call('HGET', companion, '') or ''):match(' (%S+)$') == token
local lost = not told or members ~= tonumber(size) or chunks ~= ARGV[2]
-- Versions that were kept for a longer-lived set are kept as long.
local life = string.format('%.0f', math.max(companion_left, ARGV[3] + ARGV[4]))
local marked = redis.call('HLEN', hash) > 1
local state = '0'
if members == 0 then
    local time = redis.call('TIME')
    state = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3])
end
local ask = redis.acl_check_cmd
local function refused(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
    end
end
local refusal = refused('HSET', hash, '', state) or refused('PEXPIRE', hash, life) or
                (marked and refused('SET', marker, '', 'PX', life)) or
                refused('PEXPIRE', build, ARGV[3]) or refused('UNLINK', set, companion) or
                refused('UNLINK', build, hash) or refused('RENAME', build, set) or
                refused('RENAME', hash, companion)
if refusal then return refusal end
if lost then
    redis.call('UNLINK', build, hash)
    return 2
end
redis.call('HSET', hash, '', state)
redis.call('PEXPIRE', hash, life)
if marked then redis.call('SET', marker, '', 'PX', life) end
-- UNLINK first: RENAME would free the old keys member by member, while others wait.
redis.call('UNLINK', set, companion)
if members > 0 then
    redis.call('PEXPIRE', build, ARGV[3])
    redis.call('RENAME', build, set)
end
redis.call('RENAME', hash, companion)
return 1
