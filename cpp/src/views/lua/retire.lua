-- Takes cells out that SQL has. Combinable: call i has KEYS[2i - 1], KEYS[2i] and
-- ARGV[3i - 2 .. 3i].
-- KEYS for each call the hash of a key's cells (writer -> "up down"), and the set of keys with cells
-- ARGV for each call the key, the writer and the cell as SQL has it; '' and '' for a key without one
-- RETURNS for each call 1 if the cell was taken out, 0 if it is another one by now, or the error
-- WHY a script: a cell that has grown since it was read must stay, and a key with cells must stay in
-- the set.
local DENIED = 'NOPERM this user may not run all that this takes: nothing was changed'
local call, ask, answers = redis.pcall, redis.acl_check_cmd, {}
for index = 1, #KEYS / 2 do
    local cells, keys, at = KEYS[2 * index - 1], KEYS[2 * index], 3 * index
    local key, writer, value = ARGV[at - 2], ARGV[at - 1], ARGV[at]
    local answer, known, left = 0, call('HGET', cells, writer), call('HLEN', cells)
    if type(known) == 'table' then
        answer = known
    elseif type(left) == 'table' then
        answer = left
    else
        local found, removed = known == value, 0
        -- The set first: a refusal then leaves all as it was.
        if found and ask and not ask('HDEL', cells, writer) then
            removed = {err = DENIED}
        elseif left == (found and 1 or 0) then
            removed = call('SREM', keys, key)
        end
        if type(removed) == 'table' then
            answer = removed
        elseif found then
            answer = call('HDEL', cells, writer)
        end
    end
    answers[index] = answer
end
return answers
