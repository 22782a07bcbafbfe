-- Adds votes to the streams of their items' shards.
-- KEYS    per vote its stream
-- ARGV[1] most votes that wait in a stream   ARGV[2..] per vote four: item, 'u' or 'o', user or op_id,
--         value
-- RETURNS per vote 1 added, 0 the stream is full, -1 there is no such stream, or its error
-- WHY a script: XADD drops old entries at a bound and cannot refuse the new one. The script never
-- creates a stream: if the clock was set back, the ids of a new stream would be below the versions in
-- SQL, and SQL would ignore its votes.
local ADDED, FULL, UNBORN = 1, 0, -1
local most = tonumber(ARGV[1])
local results = {}
for i, key in ipairs(KEYS) do
    local at = 4 * i - 2
    local length = redis.pcall('XLEN', key)
    if type(length) == 'table' then
        results[i] = length
    elseif length >= most then
        results[i] = FULL
    else
        local id = redis.pcall('XADD', key, 'NOMKSTREAM', '*', 'i', ARGV[at], ARGV[at + 1],
                               ARGV[at + 2], 'v', ARGV[at + 3])
        if type(id) == 'table' then
            results[i] = id
        elseif not id then
            results[i] = UNBORN
        else
            results[i] = ADDED
        end
    end
end
return results
