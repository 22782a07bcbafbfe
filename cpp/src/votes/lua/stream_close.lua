-- Deletes a stream in which no vote waits.
-- KEYS[1] the stream
-- RETURNS 1 if it is gone, 0 if votes wait in it
-- WHY a script: a vote may come between a look and the deletion.
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
if redis.call('XLEN', KEYS[1]) > 0 then return 0 end
return redis.call('DEL', KEYS[1])
