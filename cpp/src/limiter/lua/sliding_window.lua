-- Decides by the count of the clock's window and a share of the count of the window before:
-- limiter/sliding_window.cpp in doubles.
-- rate {limit, period and tick in microseconds}   kept the state "start used before", or nothing
local floor, format, match, max, min = math.floor, string.format, string.match, math.max, math.min

local function next_chance(rate, ticks, slack, start, used, before, cost)
    local limit, period, tick = rate[1], rate[2], rate[3]
    if before > 0 and used + cost <= limit then
        local fitting = floor(((limit - used - cost) * ticks + slack) / before)
        if fitting > 0 then return start + (ticks - min(fitting, ticks)) * tick end
    end
    local fitting = ticks
    if used > 0 then fitting = min(floor(((limit - cost) * ticks + slack) / used), ticks) end
    return start + period + (fitting > 0 and (ticks - fitting) * tick or period)
end

local function step(rate, kept, now, cost, take, charge_denied, _, back)
    local limit, period, tick = rate[1], rate[2], rate[3]
    local ticks = floor((period + tick - 1) / tick)
    local start, used, before, moved = now - now % period, 0, 0, nil
    if kept then
        local kept_start, kept_used, kept_before = match(kept, '^(%d+) (%d+) (%d+)$')
        if not kept_start then return end
        kept_start = kept_start + 0
        if now < kept_start + period then
            -- After the clock was set back, the counts move to the present window.
            used, before, moved = kept_used + 0, kept_before + 0, kept_start - now > SKEW
            if not moved then start = kept_start end
        elseif now < kept_start + 2 * period then
            start, before = kept_start + period, kept_used + 0
        end
    end
    -- The share of the window before counts as the nearest whole number of hits.
    local slack = floor((ticks - 1) / 2)
    local capacity = limit * ticks + slack
    local left = ticks - floor(max(now - start, 0) / tick)
    local admissible = cost <= limit
    local allowed = admissible and before * left + (used + cost) * ticks <= capacity
    local changed = take and (allowed or back or (admissible and charge_denied))
    if changed then
        used = min(used + cost, 2 * limit) - (back or 0)
        -- A refund beyond this window's hits is taken from the window before.
        if used < 0 then used, before = 0, max(before + used, 0) end
    end
    local retry_after = -1
    if allowed then
        retry_after = 0
    elseif admissible then
        retry_after = next_chance(rate, ticks, slack, start, used, before, cost) - now
    end
    local weight = before * left + used * ticks
    local remaining = weight < capacity and floor((capacity - weight) / ticks) or 0
    local reset_after = 0
    if used > 0 then
        reset_after = start + 2 * period - now
    elseif before > 0 then
        reset_after = start + period - now
    end
    -- %d: Lua would print a number this large with fewer digits.
    local state = (changed or moved) and format('%d %d %d', start, used, before)
    return allowed, remaining, retry_after, reset_after, state
end
