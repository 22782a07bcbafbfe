-- Deletes refused votes up to a version. Combinable: call i has KEYS[i] and ARGV[i].
-- KEYS    streams of refused votes
-- ARGV    per stream the id of the last vote to delete, MILLISECONDS-NUMBER
-- RETURNS per stream how many were deleted; -1, with none deleted, if an entry lacks the vote's id; or
--         the stream's error
-- WHY a script: an entry's own id is the time of the refusal; the vote's id is a field of the
-- entry.
local function parse(id)
    local milliseconds, number = string.match(id, '^(%d+)-(%d+)$')
    return milliseconds + 0, number + 0
end

local results = {}
for i, key in ipairs(KEYS) do
    local milliseconds, number = parse(ARGV[i])
    local votes = redis.pcall('XRANGE', key, '-', '+')
    local gone = {}
    for _, vote in ipairs(votes) do
        local fields = vote[2]
        if fields[#fields - 1] ~= 'id' then
            gone = nil
            break
        end
        local its_milliseconds, its_number = parse(fields[#fields])
        if its_milliseconds < milliseconds
            or its_milliseconds == milliseconds and its_number <= number then
            gone[#gone + 1] = vote[1]
        end
    end
    -- A stream keeps at most 1,000, few enough for one XDEL.
    results[i] = votes.err and votes or not gone and -1 or #gone == 0 and 0
        or redis.pcall('XDEL', key, unpack(gone))
end
return results
