-- Carries versions of a set, some hundred at a time, into the hash of its build.
-- KEYS[1] companion (version hash)   KEYS[2] build   KEYS[3] build's hash
-- ARGV[1] token of the builder   ARGV[2] lease in ms   ARGV[3] cursor of HSCAN, '0' to begin
-- RETURNS the next cursor, '0' at the end; '' if the lease is lost, 'lost' if a key of the build is
-- WHY: the build's hash becomes the companion, and removed members have their versions there too.
-- Versions written to the companion meanwhile go to the build's hash as well. A step carries a few
-- hundred versions, because one step for all would block the server.
local companion, build, hash = KEYS[1], KEYS[2], KEYS[3]

-- True if version a is lower than b. As digits: Lua's numbers end at 2^53.
local function less(a, b)
    local negative_a, negative_b = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if negative_a ~= negative_b then return negative_a end
    if negative_a then a, b = b:sub(2), a:sub(2) end
    if #a ~= #b then return #a < #b end
    return a < b
end

local token, size = (redis.call('HGET', hash, '') or ''):match('^(%S+) (%d+)')
if token ~= ARGV[1] then return '' end
-- A companion without the token was lost, and upserts that name no build have bypassed this one.
local told = (redis.call('HGET', companion, '') or ''):match(' (%S+)$') == token
local lost = not told or redis.call('ZCARD', build) ~= tonumber(size)
local ask = redis.acl_check_cmd
local function refused(command, ...)
    if ask and not ask(command, ...) then
        return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
    end
end
local refusal = refused('HSET', hash, '', '') or refused('PEXPIRE', hash, ARGV[2]) or
                refused('PEXPIRE', build, ARGV[2]) or refused('UNLINK', build, hash)
if refusal then return refusal end
if lost then
    redis.call('UNLINK', build, hash)
    return 'lost'
end
local page = redis.call('HSCAN', companion, ARGV[3], 'COUNT', 300)
local versions, fields = page[2], {}
for i = 1, #versions, 2 do fields[#fields + 1] = versions[i] end
-- In parts: unpack() ends where the Lua stack does, and a small hash comes as a whole.
for first = 1, #fields, 500 do
    local till = math.min(first + 499, #fields)
    local written, noted = redis.call('HMGET', hash, unpack(fields, first, till)), {}
    for i = first, till do
        local known = fields[i] ~= '' and versions[2 * i]:match('^-?%d+')
        local text = written[i - first + 1] or ''
        local last = text:match('^-?%d+')
        if known and (not last or less(last, known)) then
            noted[#noted + 1] = fields[i]
            noted[#noted + 1] = known .. (text:match('[~!]') or '')
        end
    end
    if #noted > 0 then redis.call('HSET', hash, unpack(noted)) end
end
redis.call('PEXPIRE', hash, ARGV[2])
if tonumber(size) > 0 then redis.call('PEXPIRE', build, ARGV[2] + 1000) end
return page[1]
