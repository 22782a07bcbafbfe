-- Makes a stream with its group, or only the group if that is missing.
-- KEYS[1] the stream   KEYS[2] the life in which it was closed   KEYS[3] the least id with which it may
--         be made
-- ARGV[1] group   ARGV[2] the id that its first vote comes after, MILLISECONDS-NUMBER   ARGV[3] the life
--         that it is made in
-- RETURNS 1, or 0 where it was closed in this life or a later one: the call was on its way for long
-- WHY a script: a vote that came before the stream knows where to begin could get an older id.
local key, from = KEYS[1], ARGV[2]

local function parse(id)
    local milliseconds, number = string.match(id, '^(%d+)-(%d+)$')
    return milliseconds + 0, number + 0
end

local there = redis.call('EXISTS', key) == 1
if not there then
    local closed = redis.call('GET', KEYS[2])
    if closed and closed + 0 >= ARGV[3] + 0 then return 0 end
    local least = redis.call('GET', KEYS[3])
    if least then
        local milliseconds, number = parse(from)
        local least_milliseconds, least_number = parse(least)
        if least_milliseconds > milliseconds
            or least_milliseconds == milliseconds and least_number > number then
            from = least
        end
    end
    -- Refused here for another reason, it would be refused below, with the stream made.
    local tried = redis.pcall('XSETID', key, from)
    if not string.find(tried.err, 'no such key', 1, true) then return tried end
end
local made = redis.pcall('XGROUP', 'CREATE', key, ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
if not there then redis.call('XSETID', key, from) end
return 1
