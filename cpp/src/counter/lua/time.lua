-- The clock of the node that has a key.
-- KEYS[1] the key, which is not looked at
-- RETURNS what TIME does
-- WHY a script: TIME names no key, so that in a cluster nobody could say which node is asked.
return redis.call('TIME')
