-- The transaction of the Redis documentation's first rate limiter. WRONG as a limiter: the check
-- stands outside of it.
-- KEYS[1] the counter of one caller's second
-- RETURNS nothing
-- WHY a script: MULTI changes the state of a connection that all callers share.
redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], 10)
