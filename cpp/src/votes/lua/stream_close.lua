-- Deletes a stream in which no vote waits.
-- KEYS[1] the stream   KEYS[2] keeps the life (stream_life) in which it was closed
-- ARGV[1] this life   ARGV[2] for how many seconds KEYS[2] is kept
-- RETURNS 1 if there is no stream any more, 0 if votes wait in it
-- WHY a script: a vote may be added between XLEN and the deletion.
local there = redis.call('EXISTS', KEYS[1]) == 1
if there and redis.call('XLEN', KEYS[1]) > 0 then return 0 end
local ask = redis.acl_check_cmd
if there and ask and not ask('DEL', KEYS[1]) then
    return {err = "NOPERM this user may not run 'DEL' on the stream; nothing was done"}
end
local closed = redis.call('GET', KEYS[2])
if not closed or closed + 0 < ARGV[1] + 0 then redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2]) end
if there then redis.call('DEL', KEYS[1]) end
return 1
