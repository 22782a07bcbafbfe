-- Makes hashes where there are none, for the caller to fill.
-- KEYS    hashes
-- ARGV[1] token   ARGV[2] milliseconds that an unfilled hash lives
-- RETURNS per key 1 where it was made, else 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- What is refused is refused before the first change: a hash must not be left without an end.
local ask = redis.acl_check_cmd
local begun = {}
for i, key in ipairs(KEYS) do
    begun[i] = 0
    if redis.call('EXISTS', key) == 0 then
        if ask and not ask('PEXPIRE', key, ARGV[2]) then
            return {err = "NOPERM this user may not run 'PEXPIRE'; the key was left alone"}
        end
        redis.call('HSET', key, 'token', ARGV[1], 'at', now)
        redis.call('PEXPIRE', key, ARGV[2])
        begun[i] = 1
    end
end
return begun
