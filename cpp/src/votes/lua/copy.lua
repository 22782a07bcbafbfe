-- Writes copies of counts; of two copies of an item the one with the higher ver stays.
-- KEYS    copies, each the text "ver n"
-- ARGV[1] lifetime of each copy in milliseconds   ARGV[2..] per key its ver and n
-- RETURNS per key 1 written, 0 not: a copy at least as new is there, or a value that is no copy
-- WHY ver: a delayed fold, and a reader that fills a gap, may come after a newer fold. Compared as
-- digits, because Lua's numbers are exact only up to 2^53.
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
