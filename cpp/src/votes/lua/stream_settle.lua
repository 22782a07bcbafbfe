-- Takes votes out that are in SQL, or that SQL refuses for good.
-- KEYS[1] the stream   KEYS[2] the stream of refused votes
-- ARGV[1] group   ARGV[2] most refused votes that are kept   ARGV[3] for how many seconds after the
--         last one   ARGV[4] number of ids   then the ids, and per refused vote six: its id, item, 'u'
--         or 'o', user or op_id, value, error
-- RETURNS how many were taken out
-- WHY a script: a vote that is acknowledged and not deleted would wait for ever, and a refused one is
-- kept before it is deleted, unless another worker has set it aside.
local key, group, ids = KEYS[1], ARGV[1], tonumber(ARGV[4])
-- Refused here, they have done nothing yet; nothing has the id 0-0.
redis.call('XDEL', key, '0-0')
redis.call('XACK', key, group, '0-0')
if #ARGV > 4 + ids then redis.call('EXPIRE', KEYS[2], ARGV[3]) end
for at = 5 + ids, #ARGV, 6 do
    if #redis.call('XRANGE', key, ARGV[at], ARGV[at]) > 0 then
        redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[2], '*', 'i', ARGV[at + 1], ARGV[at + 2],
                   ARGV[at + 3], 'v', ARGV[at + 4], 'e', ARGV[at + 5], 'id', ARGV[at])
        redis.call('EXPIRE', KEYS[2], ARGV[3])
    end
end
local taken = 0
-- In parts: unpack() passes at most about 8,000 arguments.
for first = 5, 4 + ids, 1000 do
    local last = math.min(first + 999, 4 + ids)
    taken = taken + redis.call('XDEL', key, unpack(ARGV, first, last))
    redis.call('XACK', key, group, unpack(ARGV, first, last))
end
return taken
