-- Moves the last id of streams to the present, so that later votes get higher ids. Combinable.
-- KEYS    per stream two: the stream, the key that keeps the least id after which its votes may begin
-- ARGV[1] for how many seconds that key lives
-- ARGV[2..] per stream an id that it is moved beyond in any case, MILLISECONDS-NUMBER
-- RETURNS per stream {the last id that a vote in it may have by now, 1 if it exists or 0}, or its
--         error. For a missing stream this id is kept, because a call that creates it may be on its way
-- WHY a script: a vote may be added between TIME and XSETID, which would also set an empty stream
-- back.
local LAST_NUMBER = 1048575 -- Of a millisecond; VoteStream has 20 bits.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function parse(id)
    local milliseconds, number = string.match(id, '^(%d+)-(%d+)$')
    return milliseconds + 0, number + 0
end

-- The next id, or the first id of this millisecond if that is higher.
local function after(milliseconds, number)
    if milliseconds < now then return now, 0 end
    if number < LAST_NUMBER then return milliseconds, number + 1 end
    return milliseconds + 1, 0
end

-- An error, or nothing.
local function keep(key, milliseconds, number)
    local kept = redis.pcall('GET', key)
    if type(kept) == 'table' then return kept end
    if kept then
        local kept_milliseconds, kept_number = parse(kept)
        if kept_milliseconds > milliseconds
            or kept_milliseconds == milliseconds and kept_number >= number then
            return nil
        end
    end
    local id = string.format('%.0f-%.0f', milliseconds, number)
    local done = redis.pcall('SET', key, id, 'EX', ARGV[1])
    return done.err and done
end

local results = {}
for i = 1, #KEYS / 2 do
    local key = KEYS[2 * i - 1]
    local milliseconds, number = parse(ARGV[i + 1])
    local there = redis.pcall('EXISTS', key)
    if type(there) == 'table' then
        results[i] = there
    elseif there == 0 then
        if milliseconds < now then
            milliseconds, number = now - 1, LAST_NUMBER
        else
            milliseconds, number = after(milliseconds, number)
        end
        results[i] = keep(KEYS[2 * i], milliseconds, number)
            or {string.format('%.0f-%.0f', milliseconds, number), 0}
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
            results[i] = moved.err and moved or {last, 1}
        end
    end
end
return results
