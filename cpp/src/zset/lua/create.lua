-- Makes a sorted set, or replaces it, together with its TTL and its companion.
-- KEYS[1] set   KEYS[2] companion (version hash), if the key can have one
-- ARGV[1] TTL in ms   ARGV[2] how long the companion outlives the set, in ms
-- ARGV[3..] score, member, ...
-- RETURNS the number of members
-- WHY a script: ZADD and PEXPIRE as two commands leave a set that never expires when the second is
-- lost, and readers between the two commands see half a set.
-- The companion is made even while no caller uses versions: with it the set can be empty and live. Its
-- field "" is '0': the set has members.
-- Permissions are checked before the first change: a refusal leaves the set as it was.
local function check(key, wanted)
    local kind = redis.call('TYPE', key).ok
    if kind == 'none' or kind == wanted then return nil end
    return {err = 'WRONGTYPE Operation against a key holding the wrong kind of value'}
end
local wrong = check(KEYS[1], 'zset') or (KEYS[2] and check(KEYS[2], 'hash'))
if wrong then return wrong end
local left = KEYS[2] and redis.call('PTTL', KEYS[2])
local ask = redis.acl_check_cmd
local function refused(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
    end
end
local refusal = refused('DEL', KEYS[1]) or refused('PEXPIRE', KEYS[1], ARGV[1]) or
                refused('ZADD', KEYS[1], '0', '')
if refusal then return refusal end
-- HSET is the first, and so may be refused itself: to this user, or for want of memory.
if KEYS[2] then
    -- Behind it stands the token of a build, which goes on.
    local token = (redis.call('HGET', KEYS[2], '') or ''):match(' .*') or ''
    redis.call('HSET', KEYS[2], '', '0' .. token)
    if left < ARGV[1] + ARGV[2] then redis.call('PEXPIRE', KEYS[2], ARGV[1] + ARGV[2]) end
end
redis.call('DEL', KEYS[1])
local size = 0
-- In parts: unpack() ends where the Lua stack does, at about 8,000.
for first = 3, #ARGV, 1000 do
    size = size + redis.call('ZADD', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return size
