-- The clock of the node that owns a key's slot.
-- KEYS[1] the key, which is not read
-- RETURNS the reply of TIME
-- WHY a script: TIME has no key, so a cluster client could not route it to a key's node.
return redis.call('TIME')
