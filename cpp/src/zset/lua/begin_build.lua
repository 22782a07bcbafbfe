-- Begins the build of a set: takes the lease and deletes what a dead builder left.
-- KEYS[1] set   KEYS[2] companion (version hash)   KEYS[3] build   KEYS[4] build's hash
-- ARGV[1] token of the builder   ARGV[2] lease in ms   ARGV[3] how long a companion outlives, in ms
-- RETURNS 1 begun, 0 another builder has the lease
-- The companion's field "" gets the token behind a space. By it upserts that name only the set and
-- the companion learn of the build. The token outlives the lease; a script that finds it without
-- the build's hash removes it.
-- The build's hash is the lease: it lives as long. Its field "" has the token, how many members the
-- build has and how many chunks were added; with them a lost key, and a lost chunk, are found out. A
-- member's field is the version of its last write; behind it "~" says that it was written with a
-- version since the build began, "!" without one. When the build is published, the hash becomes the
-- set's companion.
-- WHY a script: two builders between the look at the lease and its write would both have it.
local token, lease, keep = ARGV[1], ARGV[2], ARGV[3]
local function check(key, wanted)
    local kind = redis.call('TYPE', key).ok
    if kind == 'none' or kind == wanted then return nil end
    return {err = 'WRONGTYPE Operation against a key holding the wrong kind of value'}
end
local wrong = check(KEYS[1], 'zset') or check(KEYS[2], 'hash') or check(KEYS[3], 'zset') or
              check(KEYS[4], 'hash')
if wrong then return wrong end
local held = redis.call('HGET', KEYS[4], '')
if held then return held:match('^%S+') == token and 1 or 0 end
local life = string.format('%.0f', lease + keep)
local renew = redis.call('PTTL', KEYS[2]) < tonumber(life)
local life_without_members = (redis.call('HGET', KEYS[2], '') or '0'):match('^%d+') or '0'
local ask = redis.acl_check_cmd
local function refused(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
    end
end
local refusal = refused('HSET', KEYS[4], '', '0') or refused('UNLINK', KEYS[3], KEYS[4]) or
                refused('PEXPIRE', KEYS[4], lease) or
                refused('HSET', KEYS[2], '', '0') or
                (renew and refused('PEXPIRE', KEYS[2], life))
if refusal then return refusal end
-- The first, so that a server without memory refuses before anything has changed.
redis.call('HSET', KEYS[4], '', token .. ' 0 0')
redis.call('PEXPIRE', KEYS[4], lease)
redis.call('UNLINK', KEYS[3])
-- With a companion the set can be empty and live.
redis.call('HSET', KEYS[2], '', life_without_members .. ' ' .. token)
if renew then redis.call('PEXPIRE', KEYS[2], life) end
return 1
