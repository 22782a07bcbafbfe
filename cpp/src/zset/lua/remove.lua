-- Removes a member; with a version leaves that behind as a tombstone.
-- KEYS[1] set   KEYS[2] companion (version hash)   KEYS[3] marker: the set has had versions
-- KEYS[4] build of the set   KEYS[5] build's hash (see begin_build.lua)
-- ARGV[1] member   ARGV[2] version, or ''   ARGV[3] how long the companion outlives the set, in ms
-- RETURNS 1 applied, 2 absent (no such set or, without a version, member), 3 stale, 5 no TTL
-- WHY a script: an upsert between the check of the version and ZREM would be removed too, and one
-- between ZREM and the note that the set lives on without members would be answered absent.
-- The tombstone is kept if the member was not there: its upsert may be the one that is late.
-- If the set is being built, the member is removed from the build too, also if the set is absent or
-- does not have it: the answer is the set's.
-- All reads and all checks of permissions come before the first change.
local APPLIED, ABSENT, STALE, NO_TTL = 1, 2, 3, 5
local set, companion, member, version, keep = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local build, hash = KEYS[4], KEYS[5]

local function less(a, b)
    local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if negative_a ~= negative_b then return negative_a end
    if negative_a then a, b = b:sub(2), a:sub(2) end
    if #a ~= #b then return #a < #b end
    return a < b
end

local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- ZCARD answers for another type with WRONGTYPE.
local members = redis.call('ZCARD', set)
local beside = redis.call('TYPE', companion).ok
local left = redis.call('PTTL', set)
local token, size, chunks = (redis.call('HGET', hash, '') or ''):match('^(%S+) (%d+) (%d+)$')
local building = token ~= nil
local now, last
-- The answer for the set, or nil if the set changes.
local function look()
    if version == '' then return members == 0 and ABSENT or nil end
    -- The companion was lost with its versions. Without a marker there never was one.
    if beside == 'none' and (members == 0 or redis.call('EXISTS', KEYS[3]) == 1) then
        return ABSENT
    end
    -- For another type HGET answers with WRONGTYPE.
    last = (redis.call('HGET', companion, member) or ''):match('^-?%d+')
    if members == 0 then
        left = ((redis.call('HGET', companion, '') or ''):match('^%d+') or 0) - now_ms()
    end
    if members == 0 and left <= 0 then return ABSENT end
    if left < 0 then return NO_TTL end
    if last and not less(last, version) then return STALE end
    beside = 'hash'
end
local answer = look()
if answer and not building then return answer end

local ask = redis.acl_check_cmd
local function denied(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
    end
end
-- The next text of the member's field in the build's hash; nil if the build knows a higher version.
local note
if building then
    local known = (redis.call('HGET', hash, member) or ''):match('^-?%d+')
    redis.call('ZCARD', build)  -- Another type is refused here.
    if version == '' then
        note = (known or '') .. '!'
    elseif not (known and not less(known, version)) and not (last and not less(last, version)) then
        note = version .. '~'
    end
    local refusal = denied('ZREM', build, member) or denied('HSET', hash, member, '')
    if refusal then return refusal end
end
local may_empty = not answer and members == 1 and left > 0 and beside == 'hash'
-- Behind the companion's field "" stands the token of a build.
local told = may_empty and (redis.call('HGET', companion, '') or ''):match(' .*') or ''
local renew, mark, life
if not answer and (version ~= '' or may_empty) then
    renew = redis.call('PTTL', companion) < left + keep
    mark = version ~= '' and redis.call('PTTL', KEYS[3]) < left + keep
    if renew or mark then life = string.format('%.0f', left + keep) end
    if may_empty then now = now_ms() end
    local refusal = denied('ZREM', set, member) or denied('HSET', companion, '', '0') or
                    (renew and denied('PEXPIRE', companion, life)) or
                    (mark and denied('SET', KEYS[3], '', 'PX', life))
    if refusal then return refusal end
end

local function remove_from_set()
    if mark then redis.call('SET', KEYS[3], '', 'PX', life) end
    if version ~= '' then redis.call('HSET', companion, member, version) end
    local removed = redis.call('ZREM', set, member)
    -- Redis drops a set without members. If it has a companion, the set lives on, empty.
    if removed == 1 and may_empty then
        redis.call('HSET', companion, '', string.format('%.0f', now + left) .. told)
    end
    if renew and (version ~= '' or (removed == 1 and may_empty)) then
        redis.call('PEXPIRE', companion, life)
    end
    return (version ~= '' or removed == 1) and APPLIED or ABSENT
end
-- The build comes first, because a server out of memory refuses its note.
if note then
    redis.call('HSET', hash, member, note)
    local removed = redis.call('ZREM', build, member)
    redis.call('HSET', hash, '', string.format('%s %.0f %s', token, size - removed, chunks))
end
return answer or remove_from_set()
