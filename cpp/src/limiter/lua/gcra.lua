-- Decides by the generic cell rate algorithm: limiter/gcra.cpp in doubles.
-- rate {limit, debt of one hit, debt paid back in a microsecond}   kept the state "at debt", or nothing
local floor, format, match, max, min = math.floor, string.format, string.match, math.max, math.min

local function step(rate, kept, now, cost, take, charge_denied)
    local limit, token, refill = rate[1], rate[2], rate[3]
    local capacity = limit * token
    local at, debt = now, 0
    if kept then
        local kept_at, kept_debt = match(kept, '^(%d+) (%d+)$')
        if not kept_at then return end
        kept_at, kept_debt = kept_at + 0, kept_debt + 0
        if kept_at > now then at = kept_at end
        local paid = (at - kept_at) * refill
        if paid < kept_debt then debt = kept_debt - paid end
    end
    local admissible = cost <= limit
    local price = admissible and cost * token or 0
    local allowed = admissible and debt + price <= capacity
    local changed = take and (allowed or cost < 0 or (admissible and charge_denied))
    if changed then debt = max(min(debt + price, 2 * capacity), 0) end
    local retry_after = -1
    if allowed then
        retry_after = 0
    elseif admissible then
        retry_after = floor((debt + price - capacity + refill - 1) / refill) + at - now
    end
    local reset_after = debt > 0 and floor((debt + refill - 1) / refill) + at - now or 0
    -- %d: Lua would print a number this large with fewer digits.
    local state = changed and format('%d %d', at, debt)
    return allowed, max(floor((capacity - debt) / token), 0), retry_after, reset_after, state
end
