-- Releases a worker's votes, so that other workers take them over at once.
-- KEYS[1] the stream
-- ARGV[1] group   ARGV[2] consumer   ARGV[3] milliseconds after which other workers take votes over
-- RETURNS how many votes it had
-- WHY a script: this worker would take back a vote that another worker claims between XPENDING and
-- XCLAIM.
local key, group, me = KEYS[1], ARGV[1], ARGV[2]
if redis.call('EXISTS', key) == 0 then return 0 end
-- In parts: unpack() passes at most about 8,000 arguments.
local most, had, from = 1000, 0, '-'
while true do
    local votes = redis.call('XPENDING', key, group, from, '+', most, me)
    local ids = {}
    for i, vote in ipairs(votes) do ids[i] = vote[1] end
    if #ids > 0 then
        local claim = {'XCLAIM', key, group, me, '0', unpack(ids)}
        for _, word in ipairs({'IDLE', ARGV[3], 'JUSTID'}) do claim[#claim + 1] = word end
        redis.call(unpack(claim))
    end
    had = had + #ids
    if #ids < most then return had end
    from = '(' .. ids[#ids]
end
