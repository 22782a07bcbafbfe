-- Deletes those of the keys that are sorted sets without a TTL.
-- KEYS    candidates
-- RETURNS how many were deleted
-- WHY a script: between a look from outside and UNLINK a client may give the set its TTL, or put
-- another value there; a sweeper that trusts its own look deletes a good set.
local deleted = 0
for _, key in ipairs(KEYS) do
    if redis.call('TYPE', key).ok == 'zset' and redis.call('PTTL', key) == -1 then
        deleted = deleted + redis.call('UNLINK', key)
    end
end
return deleted
