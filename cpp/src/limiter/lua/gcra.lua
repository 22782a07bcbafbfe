-- Decides by the generic cell rate algorithm: limiter/gcra.cpp in doubles.
-- rate {limit, debt of one hit, debt paid back in a microsecond}
-- kept the state "at debt", or nothing
-- Comparisons and x - x % 1 replace math.max and math.floor, which cost a call each.
local format, match = string.format, string.match
-- The last state that was made: keys that owed nothing before one call share its text.
local last_at, last_debt, last_state

local function step(rate, kept, now, cost, take, charge_denied, ahead, back)
    local limit, token, refill = rate[1], rate[2], rate[3]
    local capacity = limit * token
    local at, debt, moved = now, 0, nil
    if kept then
        local kept_at, kept_debt = match(kept, '^(%d+) (%d+)$')
        if not kept_at then return end
        kept_at, kept_debt = kept_at + 0, kept_debt + 0
        if kept_at > now then
            moved = kept_at - now > SKEW
            if moved then kept_at = now else at = kept_at end
        end
        local paid = (at - kept_at) * refill
        if paid < kept_debt then debt = kept_debt - paid end
    end
    local admissible = cost <= limit
    local price = admissible and cost * token or 0
    local early = debt + price - capacity
    local allowed = admissible and early <= 0
    if ahead and admissible and at == now and 2 * early <= price and early <= AHEAD * refill then
        allowed = true
    end
    local retry_after = -1
    local changed = take and (allowed or back or (admissible and charge_denied))
    if changed then
        debt = debt + price
        if debt > 2 * capacity then debt = 2 * capacity end
        if back then debt = debt > back * token and debt - back * token or 0 end
    end
    changed = changed or moved
    if allowed then
        retry_after = 0
        if early > 0 then
            retry_after = (early + refill - 1) / refill
            retry_after = retry_after - retry_after % 1
        end
    elseif admissible then
        local waits = (debt + price - capacity + refill - 1) / refill
        retry_after = waits - waits % 1 + at - now
    end
    local remaining, reset_after = 0, 0
    if debt < capacity then
        remaining = (capacity - debt) / token
        remaining = remaining - remaining % 1
    end
    if debt > 0 then
        reset_after = (debt + refill - 1) / refill
        reset_after = reset_after - reset_after % 1 + at - now
    end
    if changed and (debt ~= last_debt or at ~= last_at) then
        -- %d: Lua would print a number this large with fewer digits.
        last_at, last_debt, last_state = at, debt, format('%d %d', at, debt)
    end
    return allowed, remaining, retry_after, reset_after, changed and last_state
end
