-- Moves copies to what a committed transaction has read.
-- KEYS    hashes
-- ARGV    per key n and ver of cell 0
-- RETURNS per key 1 where it was moved, else 0
-- WHY only what is there: a hash that a publish made would have no other cells, and no end.
local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
end

local moved = {}
for i, key in ipairs(KEYS) do
    local n, ver = ARGV[2 * i - 1], ARGV[2 * i]
    local seen = redis.pcall('HMGET', key, 'at', 'ver')
    moved[i] = 0
    if not seen.err and seen[1] and (not seen[2] or less(seen[2], ver)) then
        redis.call('HSET', key, 'n', n, 'ver', ver)
        moved[i] = 1
    end
end
return moved
