-- Raises cells to their writers' counts. Combinable: call i has KEYS[2i - 1], KEYS[2i] and
-- ARGV[4i - 3 .. 4i].
-- KEYS for each call the hash of a key's cells (writer -> "up down"), and the set of keys with cells
-- ARGV for each call the key, the writer, up, down
-- RETURNS for each call 1, or its error
-- WHY a script: between a read and a write another message of the same writer would be overwritten
-- by an older one. The key is in the set before it has a cell, so that a worker finds every cell.
-- The numbers are compared as digits: Lua rounds numbers above 2^53.
local DENIED = 'NOPERM this user may not run all that a cell takes: nothing was written'
local call, ask, answers = redis.pcall, redis.acl_check_cmd, {}

local function larger(a, b)
    if #a ~= #b then return #a > #b and a or b end
    return a > b and a or b
end

for index = 1, #KEYS / 2 do
    local cells, keys, at = KEYS[2 * index - 1], KEYS[2 * index], 4 * index
    local key, writer, up, down = ARGV[at - 3], ARGV[at - 2], ARGV[at - 1], ARGV[at]
    local answer, known = 1, call('HGET', cells, writer)
    if type(known) == 'table' then
        answer = known
    elseif known then
        local known_up, known_down = known:match('^(%d+) (%d+)$')
        if known_up then
            up, down = larger(up, known_up), larger(down, known_down)
        else
            answer = {err = 'WRONGTYPE the hash holds something that is no cell'}
        end
    else
        -- Permissions are checked first, so that no call is half done.
        if ask and not ask('HSET', cells, writer, '') then
            answer = {err = DENIED}
        else
            local made = call('SADD', keys, key)
            if type(made) == 'table' then answer = made end
        end
    end
    local value = up .. ' ' .. down
    if answer == 1 then
        local wrote
        if value ~= known then
            wrote = call('HSET', cells, writer, value)
        else
            -- Sent again, because it is not in SQL: perhaps the set has lost the key.
            wrote = call('SADD', keys, key)
        end
        if type(wrote) == 'table' then answer = wrote end
    end
    answers[index] = answer
end
return answers
