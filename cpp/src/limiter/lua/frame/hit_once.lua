-- Hits a key once for each op_id. A limiter's script precedes this text as the function
-- hit(KEYS, ARGV).
-- KEYS[1] the state   KEYS[2] the remembered decision of the op_id, in the state's slot: 'once',
-- which no limiter's state begins with, and numbers
-- ARGV[1] how long it is remembered, in milliseconds   ARGV[2] the time of the op_id in unix
-- milliseconds, or '' if it contains none   ARGV[3..] the script's arguments for one key
-- RETURNS the script's answer for a key, now or at the first hit of the op_id. Its first number is
-- -2 for an op_id that is not remembered and too old to be surely new, or -3 for one too far in the
-- future to be remembered until then: nothing was taken
-- WHY a script: record and hit in two steps take twice, or not at all, when the second is lost. The
-- right to SET is checked before the hit. A server that is out of memory refuses only the first
-- write of a script. So every taken hit is remembered.
local function words_of_hit()
    local words = {}
    for index = 3, #ARGV do words[#words + 1] = ARGV[index] end
    return words
end
local known = redis.call('GET', KEYS[2])
if known then
    if string.sub(known, 1, 5) ~= 'once ' then
        return {err = 'WRONGTYPE the key of the op_id holds something else'}
    end
    if ARGV[4] == COMMIT then
        -- The repeated commit may name another reservation than the first one: it is released.
        -- If the release fails, its lease ends by itself.
        local id = ARGV[#ARGV]
        local state = redis.pcall('GET', KEYS[1])
        if type(state) == 'string' and string.find(state, ' ' .. id, 1, true) then
            local words = words_of_hit()
            words[#words - 1] = '0'
            hit({KEYS[1]}, words)
        end
    end
    local answer = {}
    for number in string.gmatch(known, '%-?%d+') do answer[#answer + 1] = number + 0 end
    return answer
end
local keep = ARGV[1] + 0
if ARGV[2] ~= '' then
    local time = redis.call('TIME')
    local ahead = ARGV[2] - time[1] * 1000 - math.floor(time[2] / 1000)
    if ahead <= -keep then return {-2, 0, 0, 0} end
    if ahead > keep then return {-3, 0, 0, 0} end
    keep = keep + math.max(ahead, 0)
end
local life = string.format('%d', keep)
local ask = redis.acl_check_cmd
if ask and not ask('SET', KEYS[2], '', 'PX', life) then
    return {err = "NOPERM this user may not run 'SET' on what remembers the op_id; nothing was done"}
end
local answer = hit({KEYS[1]}, words_of_hit())[1]
if answer.err then return answer end
local text = {'once'}
-- %d: Lua would print a large number with fewer digits.
for _, number in ipairs(answer) do text[#text + 1] = string.format('%d', number) end
redis.call('SET', KEYS[2], table.concat(text, ' '), 'PX', life)
return answer
