-- Hits keys by fixed windows: step_fixed_window of limiter/algorithms.cpp, in doubles.
-- KEYS states: the string "start used"
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] 1 to take, 0 to look
-- ARGV[3] 1 to charge denied hits   ARGV[4] limit   ARGV[5] period in microseconds
-- ARGV[6] 1 for windows that begin with the first hit, 0 for those aligned to the epoch
-- ARGV[7..] the cost for each key
-- RETURNS for each key {allowed, remaining, retry_after or -1, reset_after} or its error; times in
-- microseconds
-- WHY a script: a check before the hit lets two callers both take the last one.
-- Many keys in one script, each by itself: a key of another type costs the others nothing.
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local take, charge_denied = ARGV[2] == '1', ARGV[3] == '1'
local limit, period, from_first = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'

local function step(key, cost)
    local text = redis.pcall('GET', key)
    if type(text) == 'table' then return text end
    local start, used = from_first and now or now - now % period, 0
    if text then
        local kept_start, kept_used = string.match(text, '^(%d+) (%d+)$')
        if not kept_start then return {err = 'WRONGTYPE the key holds no state of a limiter'} end
        kept_start, kept_used = tonumber(kept_start), tonumber(kept_used)
        if now < kept_start + period then start, used = kept_start, kept_used end
    end
    local left = start + period - now
    local admissible = cost <= limit
    local allowed = admissible and used + cost <= limit
    local changed = take and (allowed or (admissible and charge_denied))
    if changed then used = math.min(used + cost, 2 * limit) end
    local life = math.max(math.ceil(left / 1000), 1)
    local wrote = true
    if changed then
        -- Formatted by hand: Lua would print a number this large with fewer digits.
        wrote = redis.pcall('SET', key, string.format('%.0f %.0f', start, used), 'PX', life)
    elseif take and text and redis.call('PTTL', key) < 0 then
        wrote = redis.pcall('PEXPIRE', key, life)
    end
    if type(wrote) == 'table' and wrote.err then return wrote end
    local retry_after = -1
    if allowed then
        retry_after = 0
    elseif admissible then
        retry_after = left
    end
    return {allowed and 1 or 0, math.max(limit - used, 0), retry_after, used > 0 and left or 0}
end

local answers = {}
for index, key in ipairs(KEYS) do answers[index] = step(key, tonumber(ARGV[6 + index])) end
return answers
