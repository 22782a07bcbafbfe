-- Removes a counter.
-- KEYS[1] the counter
-- RETURNS its last value as a string (Lua would round a number above 2^53); nil if it was absent
-- WHY a script: GETDEL also removes a string that is no number, and then the caller is told that
-- nothing was done.
local value = redis.pcall('GET', KEYS[1])
if not value or type(value) == 'table' then return value end
-- Refused for a value that is no integer, or if an ACL denies it.
local same = redis.pcall('INCRBY', KEYS[1], '0')
if type(same) == 'table' then return same end
redis.call('DEL', KEYS[1])
return value
