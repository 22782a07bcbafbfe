-- Moves the last id of streams to the present, so that later votes get higher ids. Combinable: call i has
-- KEYS[i] and ARGV[i].
-- KEYS    streams
-- ARGV    for each the id that it is moved beyond in any case, MILLISECONDS-NUMBER
-- RETURNS per stream the last id that a vote of it may have by now, or its error. One that is not there
--         may be made at once: its ids are not before this millisecond
-- WHY a script: a vote may come between the look at the clock and XSETID.
local LAST_NUMBER = 1048575 -- Of a millisecond; VoteStream has 20 bits.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function parse(id)
    local milliseconds, number = string.match(id, '^(%d+)-(%d+)$')
    return milliseconds + 0, number + 0
end

-- The next id; and no earlier than this millisecond.
local function after(milliseconds, number)
    if milliseconds < now then return now, 0 end
    if number < LAST_NUMBER then return milliseconds, number + 1 end
    return milliseconds + 1, 0
end

local results = {}
for i, key in ipairs(KEYS) do
    local milliseconds, number = parse(ARGV[i])
    local there = redis.pcall('EXISTS', key)
    if type(there) == 'table' then
        results[i] = there
    elseif there == 0 then
        if milliseconds < now then
            milliseconds, number = now - 1, LAST_NUMBER
        else
            milliseconds, number = after(milliseconds, number)
        end
        results[i] = string.format('%.0f-%.0f', milliseconds, number)
    else
        local info = redis.pcall('XINFO', 'STREAM', key)
        if info.err then
            results[i] = info
        else
            local about = {}
            for at = 1, #info, 2 do about[info[at]] = info[at + 1] end
            local last_milliseconds, last_number = parse(about['last-generated-id'])
            if last_milliseconds > milliseconds
                or last_milliseconds == milliseconds and last_number > number then
                milliseconds, number = last_milliseconds, last_number
            end
            local last = string.format('%.0f-%.0f', after(milliseconds, number))
            local moved = redis.pcall('XSETID', key, last)
            results[i] = moved.err and moved or last
        end
    end
end
return results
