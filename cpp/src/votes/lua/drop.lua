-- Deletes hashes that are older than a recount, which has counted all of their votes.
-- KEYS    hashes
-- ARGV    per key the epoch that the recount has begun
-- RETURNS per key 1 deleted, 0 not, or its error
-- WHY a script: a vote from after the recount may have created the hash again.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local states = {}
for i, key in ipairs(KEYS) do
    local seen = redis.pcall('HGET', key, 'epoch')
    states[i] = 0
    if type(seen) == 'table' then
        states[i] = seen
    elseif seen and less(seen, ARGV[i]) then
        states[i] = redis.pcall('UNLINK', key)
    end
end
return states
