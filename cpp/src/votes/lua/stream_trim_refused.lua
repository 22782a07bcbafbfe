-- Deletes refused votes up to a version. Combinable: call i has KEYS[i] and ARGV[i].
-- KEYS    streams of refused votes
-- ARGV    for each the id of the last vote that goes, MILLISECONDS-NUMBER
-- RETURNS per stream how many went, or its error
-- WHY a script: their own ids are of when they were refused; entries hold the votes' ids.
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
        local id = vote[1]
        for at = 1, #vote[2], 2 do
            if vote[2][at] == 'id' then id = vote[2][at + 1] end
        end
        local its_milliseconds, its_number = parse(id)
        if its_milliseconds < milliseconds
            or its_milliseconds == milliseconds and its_number <= number then
            gone[#gone + 1] = vote[1]
        end
    end
    -- At most 1,000 are kept, so XDEL takes them all.
    results[i] = votes.err and votes or #gone == 0 and 0
        or redis.pcall('XDEL', key, unpack(gone))
end
return results
