-- Moves the last id of streams to the present, so that later votes get higher ids.
-- KEYS    streams
-- RETURNS per stream {whether it is there, the last id that a vote of it may have by now}, or its
--         error. One that is not there may be made at once: its ids are not before this millisecond
-- WHY a script: a vote may come between the look at the clock and XSETID.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local results = {}
for i, key in ipairs(KEYS) do
    local there = redis.pcall('EXISTS', key)
    if type(there) == 'table' then
        results[i] = there
    elseif there == 0 then
        results[i] = {0, string.format('%.0f-1048575', now - 1)}
    else
        local info = redis.pcall('XINFO', 'STREAM', key)
        if info.err then
            results[i] = info
        else
            local about = {}
            for at = 1, #info, 2 do about[info[at]] = info[at + 1] end
            local last = about['last-generated-id']
            local refused
            if tonumber(string.match(last, '^(%d+)-')) < now then
                last = string.format('%.0f-0', now)
                local moved = redis.pcall('XSETID', key, last)
                if moved.err then refused = moved end
            end
            results[i] = refused or {1, last}
        end
    end
end
return results
