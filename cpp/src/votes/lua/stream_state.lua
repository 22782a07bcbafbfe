-- Looks at streams.
-- KEYS    streams
-- RETURNS per stream {votes in it, id of the first one or '', last id that it gave}, or its error
-- WHY a script: XINFO is an error for a stream that is not there, and has another form in RESP3.
local states = {}
for i, key in ipairs(KEYS) do
    local there = redis.pcall('EXISTS', key)
    if type(there) == 'table' then
        states[i] = there
    elseif there == 0 then
        states[i] = {0, '', ''}
    else
        local info = redis.pcall('XINFO', 'STREAM', key)
        if info.err then
            states[i] = info
        else
            local about = {}
            for at = 1, #info, 2 do about[info[at]] = info[at + 1] end
            local first = about['first-entry']
            states[i] = {about.length, first and first[1] or '', about['last-generated-id']}
        end
    end
end
return states
