-- Reads vote hashes without changing them. Times are by the server's clock.
-- KEYS    hashes
-- RETURNS per key nil, or its error, or {value, gen, version, saved_version, epoch,
--         milliseconds left of its retention, token}
-- WHY a script: one round trip and one reading of the clock for a page of keys.
local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entries = {}
for i, key in ipairs(KEYS) do
    local seen = redis.pcall('HMGET', key, 'value', 'gen', 'version', 'saved_version', 'epoch',
                             'expires_at', 'token')
    if failed(seen) then
        entries[i] = seen
    elseif not seen[1] and not seen[7] then
        entries[i] = false
    else
        seen[6] = seen[6] and tonumber(seen[6]) - now
        entries[i] = seen
    end
end
return entries
