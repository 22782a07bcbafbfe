-- Hits a key once for each op_id. Before this text stands a limiter's script, as the function hit()
-- of its KEYS and ARGV.
-- KEYS[1] the state   KEYS[2] the decision that is remembered of the op_id, in the state's slot:
-- 'once', so that it is no limiter's state, and numbers
-- ARGV[1] how long it is remembered, in milliseconds   ARGV[2] when the op_id was made, in unix
-- milliseconds, or '' where it does not say   ARGV[3..] what the script takes for one key
-- RETURNS the script's answer for a key, now or when the op_id came first. -2 or -3 in the
-- first place when nothing was taken, because an op_id that is not remembered was made too long ago
-- for that to mean that it is new, or too far in the future to be remembered until then
-- WHY a script: record and hit in two steps take twice, or not at all, when the second is lost.
-- SET is asked for before the hit, and for want of memory a server refuses only the first write: so
-- what was taken is remembered.
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
        -- A commit. It may be another reservation's than the first one's, which holds no longer
        -- then: nothing is used of it. If that fails, its lease ends by itself.
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
