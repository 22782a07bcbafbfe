-- Fills hashes that have waited for it.
-- KEYS    hashes
-- ARGV[1] token that the hash was begun under   ARGV[2] milliseconds that it may live now
-- ARGV[3..] per key n and ver of cell 0, and the sum of the others
-- RETURNS per key 1 where it landed, else 0
-- WHY the token: a hash that ended, and was begun by another, must not get what this fill read
-- before. WHY ver: votes committed since are published already. Compared as digits: Lua's numbers
-- end at 2^53.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

-- What is refused is refused before the first change: a hash without its token takes no other fill.
local ask = redis.acl_check_cmd
local function refused(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; the key was left alone"}
    end
end

local landed = {}
for i, key in ipairs(KEYS) do
    local n, ver, rest = ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2]
    local seen = redis.pcall('HMGET', key, 'token', 'ver')
    landed[i] = 0
    if not seen.err and seen[1] == ARGV[1] then
        local refusal = refused('HDEL', key, 'token') or refused('PEXPIRE', key, ARGV[2])
        if refusal then return refusal end
        if not seen[2] or less(seen[2], ver) then
            redis.call('HSET', key, 'rest', rest, 'n', n, 'ver', ver)
        else
            redis.call('HSET', key, 'rest', rest)
        end
        redis.call('HDEL', key, 'token')
        redis.call('PEXPIRE', key, ARGV[2])
        landed[i] = 1
    end
end
return landed
