-- Windows that begin with a first hit may stand as a plain integer: how much of the window is used. The
-- key's expiry is then the window's end. That is what INCREX counts. After this text stands a frame,
-- which reads and writes "start used" (limiter/lua/fixed_window.lua).
-- plain_windows(now, rates) returns what the frame takes for `redis`: its GET turns an integer into
-- that text, and its SET keeps an integer one, unless the text says what an integer cannot.
-- `now` in microseconds, or '' for the server's clock   `rates` a key's three numbers; those of other
-- keys are nil. With a 2 in the third place a new window begins as an integer
-- WHY here: a server without INCREX, or a call that INCREX does not serve, finds the same count.
local function plain_windows(given, rates)
    local format, match, ceil, max, min = string.format, string.match, math.ceil, math.max, math.min
    local time = redis.call('TIME')
    local now = tonumber(given) or time[1] * 1000000 + time[2]
    local found = {}

    local function get(call, key, rate)
        local text = call('GET', key)
        found[key] = nil
        if type(text) ~= 'string' or #text > 15 or not match(text, '^%d+$') then return text end
        local left = call('PTTL', key)
        if type(left) ~= 'number' then return left end
        local whole = ceil(rate[2] / 1000)
        if left > whole + 100 then
            -- The clock was set back by more than kMostSkew (limiter/algorithm.hpp): the whole window is
            -- ahead.
            left = whole
            local done = call('PEXPIRE', key, format('%d', whole))
            if type(done) ~= 'number' then return done end
        end
        -- A key lives through the millisecond in which it expires.
        local lasts = left >= 0 and min((left + 1) * 1000, rate[2]) or rate[2]
        local start = format('%d', now + lasts - rate[2])
        found[key] = {start = start, life = left >= 0 and max(left, 1) or whole}
        return format('%s %d', start, text + 0)
    end

    local function set(call, key, rate, state, ...)
        local start, used = match(state, '^(%d+) (%d+)$')
        local life
        if start and used + 0 <= rate[1] then
            if found[key] and found[key].start == start then
                life = found[key].life
            elseif rate[3] == 2 and used ~= '0' and start == format('%d', now) then
                life = ceil(rate[2] / 1000)
            end
        end
        if not life then return call('SET', key, state, ...) end
        if used == '0' then  -- An unused window is none: the next hit begins one.
            local gone = call('DEL', key)
            return type(gone) == 'table' and gone or {ok = 'OK'}
        end
        return call('SET', key, used, 'PX', format('%d', life))
    end

    local function over(call)
        return function(name, key, ...)
            if name == 'TIME' then return time end
            local rate = rates[key]
            if rate and name == 'GET' then return get(call, key, rate) end
            if rate and name == 'SET' then return set(call, key, rate, ...) end
            return call(name, key, ...)
        end
    end
    return {call = over(redis.call), pcall = over(redis.pcall), acl_check_cmd = redis.acl_check_cmd}
end

-- For the arguments of frame/hit_keys.lua.
local function plain_windows_of_keys(KEYS, ARGV)
    if #ARGV ~= #KEYS + 6 or ARGV[6] == '0' then return redis end
    local rate, rates = {ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0}, {}
    for _, key in ipairs(KEYS) do rates[key] = rate end
    return plain_windows(ARGV[1], rates)
end

-- For those of frame/hit_all.lua.
local function plain_windows_of_hits(KEYS, ARGV)
    local rates, at = {}, 2
    for _, key in ipairs(KEYS) do
        local several = ARGV[at + 3] + 0
        if ARGV[at] == 'fixed_window' and several == 1 and ARGV[at + 6] ~= '0' then
            rates[key] = {ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0}
        end
        at = at + 4 + 3 * several
    end
    return next(rates) and plain_windows(ARGV[1], rates) or redis
end
