-- Gives a hash what a fill read in SQL.
-- KEYS[1] hash
-- ARGV[1] token that the hash had before SQL was read   ARGV[2] gen that SQL gave the fill
-- ARGV[3] epoch   ARGV[4] item.vote_count as read with them
-- RETURNS {1} if it landed, {0} if there was nothing to do
-- WHY the token: a hash that was saved, deleted and born again meanwhile has another, and the
-- count that this fill read is then too old. WHY the gen: SQL takes saves of its highest only.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local seen = redis.call('HMGET', KEYS[1], 'token', 'gen', 'epoch')
local token, gen, epoch = seen[1], seen[2], seen[3]
if token ~= ARGV[1] or less(ARGV[3], epoch) then return {0} end
if gen ~= '0' then
    -- Filled by another: its count is right, whatever this fill has read.
    if not less(gen, ARGV[2]) or epoch ~= ARGV[3] then return {0} end
elseif less(epoch, ARGV[3]) then
    -- The recount that began this epoch has all that was counted here.
    redis.call('HSET', KEYS[1], 'value', ARGV[4], 'epoch', ARGV[3], 'gen', ARGV[2],
               'saved_version', '0')
    return {1}
else
    -- What is refused is refused before the first change: a count without its gen would be landed
    -- again.
    local ask = redis.acl_check_cmd
    if ask and not ask('HSET', KEYS[1], 'gen', ARGV[2]) then
        return {err = "NOPERM this user may not run 'HSET'; nothing was done"}
    end
    redis.call('HINCRBY', KEYS[1], 'value', ARGV[4])
end
redis.call('HSET', KEYS[1], 'gen', ARGV[2], 'saved_version', '0')
return {1}
