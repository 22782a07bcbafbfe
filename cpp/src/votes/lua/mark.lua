-- Records in hashes which version SQL has saved.
-- KEYS    hashes
-- ARGV    per key two: the gen and version that were saved
-- RETURNS per key 1 noted, 0 not, or its error
-- WHY it compares the gen: a hash with another gen is not the one that was read. A version that has
-- increased since the save stays unsaved, because saved_version is lower.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local states = {}
for i, key in ipairs(KEYS) do
    local seen = redis.pcall('HMGET', key, 'gen', 'saved_version')
    states[i] = 0
    if seen.err then
        states[i] = seen
    elseif seen[1] == ARGV[2 * i - 1] and seen[2] and less(seen[2], ARGV[2 * i]) then
        local noted = redis.pcall('HSET', key, 'saved_version', ARGV[2 * i])
        states[i] = type(noted) == 'table' and noted or 1
    end
end
return states
