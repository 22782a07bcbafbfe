-- Adds to a counter and sees to it that it expires.
-- KEYS[1] counter   ARGV[1] amount   ARGV[2] life in milliseconds
-- RETURNS the value after the add, as a string (Lua would round a number above 2^53)
-- WHY a script: INCRBY and PEXPIRE as two commands leave an immortal key when the second is lost.
-- The life starts with the first add; a key found without an expiry is healed.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return ARGV[1]
end
if left == -1 then
    -- The expiry first, and only for a counter: where an ACL refuses it nothing is counted.
    redis.call('INCRBY', KEYS[1], 0)
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('INCRBY', KEYS[1], ARGV[1])
return redis.call('GET', KEYS[1])
