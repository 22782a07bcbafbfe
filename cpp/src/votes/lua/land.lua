-- Writes the counts that a fill has read in SQL to their hashes.
-- KEYS    hashes
-- ARGV    per key four: the token that the hash had before SQL was read, the fill's gen, and the epoch
--         and the item.vote_count that were read with the gen
-- RETURNS per key 1 if it landed, 0 if there was nothing to do, or its error
-- WHY the token: a hash that was saved, deleted and created again since then has another token, and
-- the count that this fill read is too old. WHY the gen: SQL accepts saves of its highest gen only.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

local function land(key, of_token, of_gen, of_epoch, base)
    local seen = redis.pcall('HMGET', key, 'token', 'gen', 'epoch')
    if failed(seen) then return seen end
    local token, gen, epoch = seen[1], seen[2], seen[3]
    if token ~= of_token or less(of_epoch, epoch) then return 0 end
    if gen ~= '0' then
        -- Another fill has filled the hash: its count is right, and this fill's count is not used.
        if not less(gen, of_gen) or epoch ~= of_epoch then return 0 end
    elseif less(epoch, of_epoch) then
        -- The recount that began this epoch has counted all votes of this hash.
        local set = redis.pcall('HSET', key, 'value', base, 'epoch', of_epoch, 'gen', of_gen,
                                'saved_version', '0')
        return failed(set) and set or 1
    else
        -- A command that would be refused is found before the first change: a count without its gen
        -- would be added a second time.
        local ask = redis.acl_check_cmd
        if ask and not ask('HSET', key, 'gen', of_gen) then
            return {err = "NOPERM this user may not run 'HSET'; nothing was done"}
        end
        local added = redis.pcall('HINCRBY', key, 'value', base)
        if failed(added) then return added end
    end
    local set = redis.pcall('HSET', key, 'gen', of_gen, 'saved_version', '0')
    return failed(set) and set or 1
end

local states = {}
for i, key in ipairs(KEYS) do
    states[i] = land(key, ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i])
end
return states
