-- Takes a page of votes for a worker.
-- KEYS[1] the stream
-- ARGV[1] group   ARGV[2] consumer   ARGV[3] most votes   ARGV[4] milliseconds after which another
--         consumer's votes are taken over   ARGV[5] the id behind which its own votes are read
--         ARGV[6] milliseconds after which another consumer without votes is deleted
-- RETURNS {source, votes}, source: 1 its own of an earlier page, 2 another consumer's, 3 new ones. A
--         vote is {id, fields}; without fields the entry has been deleted
-- WHY a script: one trip instead of three; and a consumer is deleted only while it has no votes.
local key, group, me, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local OWN, CLAIMED, NEW = 1, 2, 3
if redis.call('EXISTS', key) == 0 then return {NEW, {}} end

local function read(from)
    local reply = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', most, 'STREAMS', key, from)
    return reply and reply[1] and reply[1][2] or {}
end

local own = read(ARGV[5])
if #own > 0 then return {OWN, own} end
local claimed = {}
local function claim(idle)
    local reply = redis.call('XAUTOCLAIM', key, group, me, idle, '0-0', 'COUNT', most)
    for _, vote in ipairs(reply[2]) do
        -- Redis 6.2 has a nil for one that was deleted.
        if vote then claimed[#claimed + 1] = vote end
    end
end
claim(ARGV[4])
if #claimed > 0 then return {CLAIMED, claimed} end
local new = read('>')
if #new > 0 then return {NEW, new} end

local function fields(list)
    local about = {}
    for i = 1, #list, 2 do about[list[i]] = list[i + 1] end
    return about
end

-- XAUTOCLAIM finds no idle time in entries whose delivery time is ahead of the clock, because the
-- clock was set back or is another server's: it would wait until the clock has caught up. All
-- pending entries are claimed in that case, also those of live workers: a vote that is written
-- twice changes nothing.
if redis.call('XPENDING', key, group)[1] > 0 then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local ahead = false
    for _, each in ipairs(fields(redis.call('XINFO', 'STREAM', key, 'FULL', 'COUNT', '1')).groups) do
        local about = fields(each)
        local oldest = about.name == group and about.pending[1]
        ahead = ahead or oldest and oldest[3] > now + 1000
    end
    if ahead then claim('0') end
    if #claimed > 0 then return {CLAIMED, claimed} end
end

for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
    local about = fields(consumer)
    if about.name ~= me and about.pending == 0 and about.idle > tonumber(ARGV[6]) then
        redis.call('XGROUP', 'DELCONSUMER', key, group, about.name)
    end
end
return {NEW, {}}
