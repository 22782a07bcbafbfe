-- Ends a build without publishing it.
-- KEYS[1] build   KEYS[2] build's hash
-- ARGV[1] token of the builder
-- RETURNS 1 ended, 0 the lease was lost before
-- WHY a script: the build of another builder, who took over in between, must stay.
if (redis.call('HGET', KEYS[2], '') or ''):match('^%S+') ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1], KEYS[2])
return 1
