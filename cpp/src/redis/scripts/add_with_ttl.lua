-- Adds to a counter and sees to it that it expires.
-- KEYS[1] counter   ARGV[1] amount   ARGV[2] life in milliseconds
-- RETURNS the value after the add, as a string (Lua would round a number above 2^53)
-- WHY a script: INCRBY and PEXPIRE as two commands leave an immortal key when the second is lost.
-- The life starts with the first add; a key found without an expiry is healed.
redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.call('GET', KEYS[1])
