-- Hits a list of callers: a window that begins with its first element and remembers all.
-- KEYS[1] the callers, a list   ARGV[1] limit   ARGV[2] period in milliseconds
-- ARGV[3] cost   ARGV[4] 1 to take, 0 to look, 2 to take as much as there is room for
-- ARGV[5] the caller
-- RETURNS {allowed, or with 2 how much was taken, remaining, retry_after or -1, reset_after}; times in
-- microseconds
-- WHY a script: LLEN and RPUSH as two commands let two callers both take the last place, and
-- EXISTS and RPUSHX let callers pass uncounted when the key expires in between.
-- PEXPIRE is asked for before the first RPUSH: a user who may not is refused before a caller is noted.
local key, limit, cost = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[3])
local take, what_fits = ARGV[4] ~= '0', ARGV[4] == '2'
local length = redis.call('LLEN', key)
if what_fits then cost = math.max(math.min(cost, limit - length), 1) end
local admissible = cost <= limit
local allowed = admissible and length + cost <= limit
local left = redis.call('PTTL', key)
if left > ARGV[2] + 100 then
    -- The clock was set back by more than kMostSkew (limiter/algorithm.hpp): the whole window is ahead.
    left = ARGV[2] + 0
    redis.pcall('PEXPIRE', key, ARGV[2])
end
if take and allowed then
    local ask = left < 0 and redis.acl_check_cmd
    if ask and not ask('PEXPIRE', key, ARGV[2]) then
        return {err = "NOPERM this user may not run 'PEXPIRE'; nothing was done"}
    end
    for _ = 1, cost do redis.call('RPUSH', key, ARGV[5]) end
    length = length + cost
end
if left < 0 and length > 0 then
    left = tonumber(ARGV[2])
    -- Also heals a key that lost its expiry.
    if take then redis.call('PEXPIRE', key, ARGV[2]) end
end
-- A key stands through the millisecond in which it expires, so it is gone after one more.
local left_us = length > 0 and (left + 1) * 1000 or 0
local retry_after = -1
if allowed then
    retry_after = 0
elseif admissible then
    retry_after = left_us
end
return {allowed and (what_fits and cost or 1) or 0, math.max(limit - length, 0), retry_after, left_us}
