-- Counts committed votes in their items' hashes.
-- KEYS    hashes, and last the key that holds this cache's name
-- ARGV[1] retention in milliseconds   ARGV[2] token for hashes that this call creates
-- ARGV[3..] per key three: difference, number of votes, epoch; and last 'counts' if they are asked for
-- RETURNS per hash 0 counted, 1 counted in a hash that it created, 2 outdated, or its error; if
--         counts are asked for, and the hash has been filled, its count as text instead of 0; and
--         the name: '' if no hash was created, or the cache has no name yet
-- WHY a script: check and add must be one step, or two callers create the hash and one vote is
-- lost. A missing hash is created without SQL's count (gen 0): a fill in flight never carries
-- votes, so a late fill can be discarded. Every vote raises version, so the hash is unsaved.
local COUNTED, BORN, OUTDATED = 0, 1, 2
local format = string.format

-- True where a is less, both digits without a sign. Lua's numbers end at 2^53.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

local time = redis.call('TIME')
local expires_at = format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) +
                                         tonumber(ARGV[1]))

local fields = {'epoch', 'value', 'version', 'expires_at'}
if ARGV[3 * #KEYS] == 'counts' then fields[5] = 'gen' end

-- One command writes all fields, so that a refusal leaves the hash as it was.
local function count(key, difference, votes, epoch)
    local seen = redis.pcall('HMGET', key, unpack(fields))
    if failed(seen) then return seen end
    if seen[1] and less(epoch, seen[1]) then return OUTDATED end
    if not seen[1] or less(seen[1], epoch) then
        local made = redis.pcall('HSET', key, 'value', difference, 'gen', '0', 'version', votes,
                                 'saved_version', '0', 'epoch', epoch, 'token', ARGV[2],
                                 'expires_at', expires_at)
        return failed(made) and made or BORN
    end
    local value, version = tonumber(seen[2] or ''), tonumber(seen[3] or '')
    if value and version then
        value, version = value + difference, version + votes
        if #difference < 16 and value < 2 ^ 52 and value > -2 ^ 52 and version < 2 ^ 52 then
            local added = redis.pcall('HSET', key, 'value', format('%d', value),
                                      'version', format('%d', version), 'expires_at', expires_at)
            if failed(added) then return added end
            return less('0', seen[5] or '0') and format('%d', value) or COUNTED
        end
    end
    -- The sum exceeds Lua's exact numbers, so the server adds. HINCRBY by 0 changes nothing, and is
    -- refused if a field is no number or the user lacks the right. The first HSET comes next, so
    -- that the later commands are not refused.
    for _, field in ipairs({'value', 'version'}) do
        local tried = redis.pcall('HINCRBY', key, field, '0')
        if failed(tried) then return tried end
    end
    local set = redis.pcall('HSET', key, 'expires_at', expires_at)
    if failed(set) then return set end
    local added = redis.pcall('HINCRBY', key, 'value', difference)
    if failed(added) then
        -- Would leave 64 bits.
        redis.pcall('HSET', key, 'expires_at', seen[4] or '0')
        return added
    end
    redis.pcall('HINCRBY', key, 'version', votes)
    return COUNTED
end

local states, born = {}, false
for i = 1, #KEYS - 1 do
    states[i] = count(KEYS[i], ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2])
    born = born or states[i] == BORN
end
-- For the fill. Asked for later, it could be that of a cache which has lost the hash.
local name = born and redis.pcall('GET', KEYS[#KEYS])
states[#KEYS] = type(name) == 'string' and name or ''
return states
