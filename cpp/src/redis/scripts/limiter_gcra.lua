-- Hits keys by the generic cell rate algorithm: step_gcra of limiter/algorithms.cpp, in doubles.
-- KEYS states: the string "at debt"
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] 1 to take, 0 to look
-- ARGV[3] 1 to charge denied hits   ARGV[4] limit   ARGV[5] debt of one hit
-- ARGV[6] debt paid back in a microsecond   ARGV[7..] the cost for each key
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
local limit, token, refill = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local capacity = limit * token

local function divide_up(a, b) return math.floor((a + b - 1) / b) end

local function step(key, cost)
    local text = redis.pcall('GET', key)
    if type(text) == 'table' then return text end
    local at, debt = now, 0
    if text then
        local kept_at, kept_debt = string.match(text, '^(%d+) (%d+)$')
        if not kept_at then return {err = 'WRONGTYPE the key holds no state of a limiter'} end
        kept_at, kept_debt = tonumber(kept_at), tonumber(kept_debt)
        at = math.max(now, kept_at)
        local elapsed = at - kept_at
        if elapsed < divide_up(kept_debt, refill) then debt = kept_debt - elapsed * refill end
    end
    local admissible = cost <= limit
    local price = admissible and cost * token or 0
    local allowed = admissible and debt + price <= capacity
    local changed = take and (allowed or (admissible and charge_denied))
    if changed then debt = math.min(debt + price, 2 * capacity) end
    local reset_after = debt > 0 and divide_up(debt, refill) + at - now or 0
    local life = math.max(math.ceil(reset_after / 1000), 1)
    local wrote = true
    if changed then
        -- Formatted by hand: Lua would print a number this large with fewer digits.
        wrote = redis.pcall('SET', key, string.format('%.0f %.0f', at, debt), 'PX', life)
    elseif take and text and redis.call('PTTL', key) < 0 then
        wrote = redis.pcall('PEXPIRE', key, life)
    end
    if type(wrote) == 'table' and wrote.err then return wrote end
    local retry_after = -1
    if allowed then
        retry_after = 0
    elseif admissible then
        retry_after = divide_up(debt + price - capacity, refill) + at - now
    end
    return {allowed and 1 or 0, math.max(math.floor((capacity - debt) / token), 0), retry_after,
            reset_after}
end

local answers = {}
for index, key in ipairs(KEYS) do answers[index] = step(key, tonumber(ARGV[6 + index])) end
return answers
