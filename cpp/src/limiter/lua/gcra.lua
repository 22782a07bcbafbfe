-- Hits keys by the generic cell rate algorithm: limiter/gcra.cpp in doubles.
-- KEYS states: the string "at debt"
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] 1 to take, 0 to look
-- ARGV[3] 1 to charge denied hits   ARGV[4] limit   ARGV[5] debt of one hit
-- ARGV[6] debt paid back in a microsecond   ARGV[7..] the cost for each key
-- RETURNS for each key {allowed, remaining, retry_after or -1, reset_after} or its error; times in
-- microseconds
-- WHY a script: a check before the hit lets two callers both take the last one.
-- Many keys in one script, each by itself and in order: a key of another type costs the others
-- nothing, and a key that comes twice finds what its first hit left.
local call, match, format = redis.pcall, string.match, string.format
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local take, charge_denied = ARGV[2] == '1', ARGV[3] == '1'
local limit, token, refill = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local capacity = limit * token

local function step(key, cost)
    local text = call('GET', key)
    local at, debt = now, 0
    if text then
        if type(text) == 'table' then return text end
        local kept_at, kept_debt = match(text, '^(%d+) (%d+)$')
        if not kept_at then return {err = 'WRONGTYPE the key holds no state of a limiter'} end
        kept_at, kept_debt = kept_at + 0, kept_debt + 0
        if kept_at > now then at = kept_at end
        local paid = (at - kept_at) * refill
        if paid < kept_debt then debt = kept_debt - paid end
    end
    local admissible = cost <= limit
    local price = admissible and cost * token or 0
    local allowed = admissible and debt + price <= capacity
    local changed = take and (allowed or (admissible and charge_denied))
    if changed then debt = min(debt + price, 2 * capacity) end
    local reset_after = debt > 0 and floor((debt + refill - 1) / refill) + at - now or 0
    local wrote
    if changed then
        -- %d: Lua would print a number this large with fewer digits.
        wrote = call('SET', key, format('%d %d', at, debt), 'PX',
                     format('%d', max(ceil(reset_after / 1000), 1)))
    elseif take and text then
        wrote = call('PTTL', key)
        if type(wrote) == 'number' and wrote < 0 then
            wrote = call('PEXPIRE', key, max(ceil(reset_after / 1000), 1))
        end
    end
    if type(wrote) == 'table' and wrote.err then return wrote end
    local retry_after = -1
    if allowed then
        retry_after = 0
    elseif admissible then
        retry_after = floor((debt + price - capacity + refill - 1) / refill) + at - now
    end
    return {allowed and 1 or 0, max(floor((capacity - debt) / token), 0), retry_after, reset_after}
end

local answers = {}
for index, key in ipairs(KEYS) do answers[index] = step(key, ARGV[6 + index] + 0) end
return answers
