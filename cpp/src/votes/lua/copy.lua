-- Writes copies of counts: the one of the higher ver stands.
-- KEYS    copies, each the text "ver n"
-- ARGV[1] milliseconds that each lives from now   ARGV[2..] per key its ver and n
-- RETURNS per key 1 where it was written, else 0: a copy as new is there, or what is none of ours
-- WHY ver: a fold that was delayed, and a reader who fills a gap, come after a newer fold. Compared
-- as digits: Lua's numbers end at 2^53.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local written = {}
for i, key in ipairs(KEYS) do
    local ver, n = ARGV[2 * i], ARGV[2 * i + 1]
    local seen = redis.pcall('GET', key)
    written[i] = 0
    if type(seen) == 'table' then
        if not string.find(seen.err, 'WRONGTYPE') then return seen end
    else
        local there = seen and string.match(seen, '^(%d+) %-?%d+$')
        if not seen or (there and less(there, ver)) then
            redis.call('SET', key, ver .. ' ' .. n, 'PX', ARGV[1])
            written[i] = 1
        end
    end
end
return written
