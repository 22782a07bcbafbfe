-- Removes a member and leaves its version behind as a tombstone.
-- KEYS[1] set   KEYS[2] companion (version hash)
-- ARGV[1] member   ARGV[2] version   ARGV[3] how long the companion outlives the set, in ms
-- RETURNS 1 applied, 2 absent (no such set), 3 stale, 5 no TTL
-- WHY a script: an upsert between the check of the version and ZREM would be removed too.
-- The tombstone is kept where the member was not there: its upsert may be the one that is late.
local function less(a, b)
    local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if negative_a ~= negative_b then return negative_a end
    if negative_a then a, b = b:sub(2), a:sub(2) end
    if #a ~= #b then return #a < #b end
    return a < b
end

-- ZCARD answers for another type with WRONGTYPE.
if redis.call('ZCARD', KEYS[1]) == 0 then return 2 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 5 end
local last = redis.call('HGET', KEYS[2], ARGV[1])
if last and not less(last, ARGV[2]) then return 3 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
if redis.call('PTTL', KEYS[2]) < left + ARGV[3] then
    redis.call('PEXPIRE', KEYS[2], left + ARGV[3])
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
