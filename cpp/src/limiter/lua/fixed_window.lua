-- Hits keys by fixed windows: limiter/fixed_window.cpp in doubles.
-- KEYS states: the string "start used"
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] 1 to take, 0 to look
-- ARGV[3] 1 to charge denied hits   ARGV[4] limit   ARGV[5] period in microseconds
-- ARGV[6] 1 for windows that begin with the first hit, 0 for those aligned to the epoch
-- ARGV[7..] the cost for each key
-- RETURNS for each key {allowed, remaining, retry_after or -1, reset_after} or its error; times in
-- microseconds
-- WHY a script: a check before the hit lets two callers both take the last one.
-- Many keys in one script, each by itself and in order: a key of another type costs the others
-- nothing, and a key that comes twice finds what its first hit left.
local call, match, format = redis.pcall, string.match, string.format
local ceil, max, min = math.ceil, math.max, math.min
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local take, charge_denied = ARGV[2] == '1', ARGV[3] == '1'
local limit, period, from_first = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local fresh_start = from_first and now or now - now % period

local function step(key, cost)
    local text = call('GET', key)
    local start, used = fresh_start, 0
    if text then
        if type(text) == 'table' then return text end
        local kept_start, kept_used = match(text, '^(%d+) (%d+)$')
        if not kept_start then return {err = 'WRONGTYPE the key holds no state of a limiter'} end
        kept_start = kept_start + 0
        if now < kept_start + period then start, used = kept_start, kept_used + 0 end
    end
    local left = start + period - now
    local admissible = cost <= limit
    local allowed = admissible and used + cost <= limit
    local changed = take and (allowed or (admissible and charge_denied))
    if changed then used = min(used + cost, 2 * limit) end
    local wrote
    if changed then
        -- %d: Lua would print a number this large with fewer digits.
        wrote = call('SET', key, format('%d %d', start, used), 'PX',
                     format('%d', max(ceil(left / 1000), 1)))
    elseif take and text then
        wrote = call('PTTL', key)
        if type(wrote) == 'number' and wrote < 0 then
            wrote = call('PEXPIRE', key, max(ceil(left / 1000), 1))
        end
    end
    if type(wrote) == 'table' and wrote.err then return wrote end
    local retry_after = -1
    if allowed then
        retry_after = 0
    elseif admissible then
        retry_after = left
    end
    return {allowed and 1 or 0, max(limit - used, 0), retry_after, used > 0 and left or 0}
end

local answers = {}
for index, key in ipairs(KEYS) do answers[index] = step(key, ARGV[6 + index] + 0) end
return answers
