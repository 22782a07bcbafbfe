-- Deletes hashes that SQL has in full, once they are past their retention.
-- KEYS    hashes
-- ARGV    per key two: the gen and version that were found
-- RETURNS per key 1 deleted, 0 not, or its error
-- WHY gen and version: a count can leave a value and come back to it, a version cannot.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local states = {}
for i, key in ipairs(KEYS) do
    local seen = redis.pcall('HMGET', key, 'gen', 'version', 'saved_version', 'expires_at')
    states[i] = 0
    if seen.err then
        states[i] = seen
    elseif seen[1] == ARGV[2 * i - 1] and seen[2] == ARGV[2 * i] and seen[3] == seen[2]
            and tonumber(seen[4] or '') and tonumber(seen[4]) <= now then
        states[i] = redis.pcall('UNLINK', key)
    end
end
return states
