-- The transaction of the Redis documentation's first rate limiter. WRONG as a limiter: the check
-- stands outside of it.
-- KEYS[1] the counter of one caller's second
-- RETURNS nothing
-- WHY a script: MULTI changes the state of a connection that all callers share. As there, a user who
-- may not run one of the commands runs none.
local ask = redis.acl_check_cmd
if ask and not ask('EXPIRE', KEYS[1], '10') then
    return {err = "NOPERM this user may not run 'EXPIRE'; nothing was done"}
end
redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], 10)
