-- Reads copies of counts.
-- KEYS    hashes
-- RETURNS per key {n, rest, milliseconds since its fill began}; nil where it is not filled, or is
--         no copy
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local copies = {}
for i, key in ipairs(KEYS) do
    local seen = redis.pcall('HMGET', key, 'n', 'rest', 'at')
    if seen.err or not seen[1] or not seen[2] or not seen[3] then
        copies[i] = false
    else
        copies[i] = {seen[1], seen[2], now - seen[3]}
    end
end
return copies
