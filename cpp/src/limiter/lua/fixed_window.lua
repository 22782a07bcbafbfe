-- Decides by fixed windows: limiter/fixed_window.cpp in doubles.
-- rate {limit, period in microseconds, 0 for windows aligned to the epoch, 1 for those that begin
-- with the first hit}   kept the state "start used", or nothing
local format, match, max, min = string.format, string.match, math.max, math.min
-- The last state that was made: keys of one window with the same use share its text.
local last_start, last_used, last_state

local function step(rate, kept, now, cost, take, charge_denied, _, back)
    local limit, period = rate[1], rate[2]
    local start, used, moved = rate[3] > 0 and now or now - now % period, 0, nil
    if kept then
        local kept_start, kept_used = match(kept, '^(%d+) (%d+)$')
        if not kept_start then return end
        kept_start = kept_start + 0
        -- A window whose hits were all given back is none: the next hit begins one.
        if kept_used ~= '0' and now < kept_start + period then
            -- After a clock step back, `used` counts for the window of the present time.
            used, moved = kept_used + 0, kept_start - now > SKEW
            if not moved then start = kept_start end
        end
    end
    local left = start + period - now
    local admissible = cost <= limit
    local allowed = admissible and used + cost <= limit
    local changed = take and (allowed or back or (admissible and charge_denied))
    if changed then used = max(min(used + cost, 2 * limit) - (back or 0), 0) end
    changed = changed or moved
    if changed then
        if used ~= last_used or start ~= last_start then
            -- %d: Lua would print a number this large with fewer digits.
            last_start, last_used, last_state = start, used, format('%d %d', start, used)
        end
    end
    local retry_after = -1
    if allowed then
        retry_after = 0
    elseif admissible then
        retry_after = left
    end
    return allowed, max(limit - used, 0), retry_after, used > 0 and left or 0, changed and last_state
end
