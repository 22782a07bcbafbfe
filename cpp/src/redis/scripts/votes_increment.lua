-- Counts committed votes in their items' hashes.
-- KEYS    hashes
-- ARGV[1] retention in milliseconds   ARGV[2] token of the hashes born here
-- ARGV[3..] per key three: difference, number of votes, epoch
-- RETURNS per key 0 counted, 1 counted in a hash that was born for it, 2 outdated, or its error
-- WHY a script: look and add must be one step, or two callers make the hash and one is lost. What
-- is absent is born without the count that SQL has (gen 0): a fill in flight never carries votes,
-- so one that comes too late can be thrown away. Every vote raises version, and so is unsaved.
local COUNTED, BORN, OUTDATED = 0, 1, 2

-- True where a is less, both digits without a sign. Lua's numbers end at 2^53.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

local time = redis.call('TIME')
local expires_at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) +
                                         tonumber(ARGV[1]))

local function count(key, difference, votes, epoch)
    local seen = redis.pcall('HGET', key, 'epoch')
    if failed(seen) then return seen end
    if seen and less(epoch, seen) then return OUTDATED end
    local born = not seen or less(seen, epoch)
    if born then
        local made = redis.pcall('HSET', key, 'value', '0', 'gen', '0', 'version', '0',
                                 'saved_version', '0', 'epoch', epoch, 'token', ARGV[2])
        if failed(made) then return made end
    end
    local added = redis.pcall('HINCRBY', key, 'value', difference)
    if failed(added) then return added end
    redis.call('HINCRBY', key, 'version', votes)
    redis.call('HSET', key, 'expires_at', expires_at)
    return born and BORN or COUNTED
end

local states = {}
for i, key in ipairs(KEYS) do
    states[i] = count(key, ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2])
end
return states
