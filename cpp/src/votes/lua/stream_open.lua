-- Creates a stream and its group, or only the group if the stream exists.
-- KEYS[1] the stream   KEYS[2] keeps the life in which it was closed   KEYS[3] keeps the least id after
--         which its votes may begin
-- ARGV[1] group   ARGV[2] the id after which its votes begin, MILLISECONDS-NUMBER   ARGV[3] the life
--         (stream_life) in which it is created
-- RETURNS 1; or 0 if the call is late, because the stream was closed in this life or a later one
-- WHY a script: a vote that is added between XGROUP CREATE and XSETID could get an id below ARGV[2].
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
    -- Any other refusal, of a right or of memory, would also stop the XSETID below, after the
    -- stream was created.
    local tried = redis.pcall('XSETID', key, from)
    if not string.find(tried.err, 'no such key', 1, true) then return tried end
end
local made = redis.pcall('XGROUP', 'CREATE', key, ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
if not there then redis.call('XSETID', key, from) end
return 1
