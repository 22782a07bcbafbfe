-- The script of the Redis documentation's INCR page, with the period for its 1 second. WRONG: it
-- answers nothing, checks nothing, and a key without an expiry never gets one.
-- KEYS[1] counter   ARGV[1] period in seconds
-- RETURNS nothing
-- WHY: to compare with; tests/races/test_limiter_holes.py forces its holes.
local current
current = redis.call("incr",KEYS[1])
if tonumber(current) == 1 then
    redis.call("expire",KEYS[1],ARGV[1])
end
