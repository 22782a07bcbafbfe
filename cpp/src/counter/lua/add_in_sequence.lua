-- Adds to counters, once for each sequence number of a writer. Combinable: call i has its keys and
-- ARGV[5i - 3 .. 5i + 1].
-- KEYS for each call the counter, the record of its writer, and with a TTL the counter's window;
-- all in one slot
-- ARGV[1] '1' if the counters have a TTL, 'period' if each is the number of a period, else ''
-- ARGV[2..] for each call the amount, the sequence number, when the counter ends, when it was
-- accepted, and until when its number is remembered, in unix milliseconds of this server, with a '-'
-- for a call that is under way. Accepted is 'old' for a call that is not to be counted any more; else
--   without a TTL   '' and ''
--   with a TTL      the TTL in milliseconds, and unix milliseconds of this server, with a '-' for a call
--                   that is under way and accepted until then
--   of a period     'begin end gone' in unix seconds (gone: the number is not kept any more), and
--                   'present' for a call under way whose period the present must be in, 'at' for
--                   another one under way, 'waits' for one that was accepted before
-- RETURNS for each call the value after its add (a string of digits when Lua would round it),
-- 'counted' when that was done before, 'expired' when it is counted nowhere, 'late' when a call was
-- under way for too long and nothing was done, or its error; of a period also 'elsewhere TIME' when the
-- present is in another one, 'gone' and 'ahead' (by more than 100 years): nothing was done
-- WHY a script: to remember and to add in two steps counts twice, or not at all, when the second is
-- lost.
-- A writer sends the adds of one key in order, so a number that is not above the last was counted.
-- The number is written first: if it is refused nothing was done; if the add is refused it is put back.
-- It is remembered for REMEMBERED_LONGER after its add is too old by this server's clock. So an add that
-- may have been forgotten is not counted, whoever sends it and whatever other clocks say.
-- The window is 'begin end end_of_the_one_before' in unix milliseconds. An add belongs to the window
-- that was open when it was accepted. If none was open, one began then, and later adds are in it.
local call, exact = redis.pcall, 2 ^ 53
local expires, has_period = ARGV[1] == '1', ARGV[1] == 'period'
local each = expires and 3 or 2
-- The most by which PTTL and TIME can differ while a script runs, in milliseconds.
local SLACK = 100
-- In milliseconds, as in the client.
local REMEMBERED_LONGER = 600000
-- 100 years in seconds: how far ahead a period may begin.
local MOST_AHEAD = 36525 * 86400
local now

local function failed(reply) return type(reply) == 'table' and reply.err end

local function time()
    if not now then
        local clock = call('TIME')
        if failed(clock) then return nil, clock end
        now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    end
    return now
end

-- The error if an ACL refuses the command; nil from a server that cannot say.
local function denied(command, key, word)
    local ask = redis.acl_check_cmd
    if not ask or ask(command, key, word) then return nil end
    return {err = "NOPERM this user may not run '" .. command .. "'; nothing was done"}
end

local function whole(number) return string.format('%.0f', number) end

-- The window that stands now: an error, whether the key exists, begin and end of the window (nil if none
-- stands), the end of the one before, whether the key would live for ever, whether all this is written.
local function standing(key, window, ttl)
    local left = call('PTTL', key)
    if failed(left) then return left end
    local record = call('GET', window)
    if failed(record) then return record end
    local from, to, before = 0, 0, 0
    if record then
        from, to, before = record:match('^(%d+) (%d+) (%d+)$')
        from, to, before = tonumber(from or 0), tonumber(to or 0), tonumber(before or 0)
    end
    local exists = left ~= -2
    if left < 0 then
        -- No key, or a key without an expiry: the recorded window counts.
        if to > now then return nil, exists, from, to, before, exists, true end
        if exists then return nil, true, 0, now + ttl, to, true, false end
        return nil, false, nil, nil, to, false, false
    end
    if math.abs(now + left - to) <= SLACK then return nil, true, from, to, before, false, true end
    -- The key was made by a client that writes no window.
    local began = now + left - ttl
    return nil, true, began, now + left, math.min(to, began), false, false
end

local function take_back(key, amount)
    if amount == '-9223372036854775808' then
        -- Its negative does not fit: two steps, neither of which leaves 64 bits.
        call('INCRBY', key, '9223372036854775807')
        amount = '-1'
    end
    call('INCRBY', key, amount:sub(1, 1) == '-' and amount:sub(2) or '-' .. amount)
end

local function increase(key, amount)
    local value = call('INCRBY', key, amount)
    if type(value) == 'number' and math.abs(value) >= exact then
        value = call('GET', key)
        if failed(value) then take_back(key, amount) end
    end
    return value
end

-- An error, 'late', 'expired' or a function that makes the add.
local function prepare(key, window, amount, ttl, accepted)
    local clock, refused = time()
    if not clock then return refused end
    accepted = tonumber(accepted)
    local under_way = accepted < 0
    if under_way and now > -accepted then return 'late' end
    local error, exists, from, to, before, immortal, written = standing(key, window, ttl)
    if error then return error end
    local at = under_way and now or math.min(accepted, now)
    local shorter = false
    if not from or at < from then
        local own = at + ttl
        if at < before or own <= now then return 'expired' end
        shorter = from ~= nil and own < to
        from, to, written = at, from and math.min(to, own) or own, false
    end
    local life = whole(math.max(to - now, 1))
    local ends_anew = exists and (immortal or shorter)
    if ends_anew and denied('PEXPIRE', key, life) then return denied('PEXPIRE', key, life) end
    return function()
        if ends_anew then
            local set = call('PEXPIRE', key, life)
            if failed(set) then return set end
        end
        -- One TTL after a window's end, no add of it or of an earlier one is counted any more.
        if not written then
            local wrote = call('SET', window, table.concat({whole(from), whole(to), whole(before)}, ' '),
                               'PX', whole(to - now + ttl))
            if failed(wrote) then return wrote end
        end
        if not exists then
            local wrote = call('SET', key, amount, 'PX', life)
            return failed(wrote) and wrote or amount
        end
        return increase(key, amount)
    end
end

-- The same for the number of a period. If the number has no expiry, or an earlier one (of a counter
-- that keeps less), it gets this period's expiry before the add.
local function prepare_in_period(key, amount, period, accepted)
    local clock, refused = time()
    if not clock then return refused end
    local begins, ends, gone = period:match('^(-?%d+) (-?%d+) (-?%d+)$')
    begins, ends, gone = tonumber(begins), tonumber(ends), tonumber(gone)
    local seconds = math.floor(now / 1000)
    if accepted == 'present' and (seconds < begins or seconds >= ends) then
        return 'elsewhere ' .. whole(seconds)
    end
    if seconds >= gone then return accepted == 'waits' and 'expired' or 'gone' end
    if begins - seconds > MOST_AHEAD then return 'ahead' end
    local left = call('PTTL', key)
    if failed(left) then return left end
    local at = whole(gone * 1000)
    local ends_anew = left ~= -2 and left < gone * 1000 - now
    if ends_anew and denied('PEXPIREAT', key, at) then return denied('PEXPIREAT', key, at) end
    return function()
        if left == -2 then
            local wrote = call('SET', key, amount, 'PXAT', at)
            return failed(wrote) and wrote or amount
        end
        if ends_anew then
            local set = call('PEXPIREAT', key, at)
            if failed(set) then return set end
        end
        return increase(key, amount)
    end
end

-- The error that an add would end with after its number or its window had been written.
local function refusal(key, amount)
    if denied('INCRBY', key, amount) then return denied('INCRBY', key, amount) end
    local value = call('GET', key)
    if failed(value) then return value end
    if not value then return denied('SET', key, amount) end
    if not value:find('^%-?%d+$') then return {err = 'ERR value is not an integer or out of range'} end
end

local function add(key, writer, window, amount, sequence, life, accepted, forgotten)
    local last = call('GET', writer)
    if failed(last) then return last end
    if last and tonumber(sequence) <= (tonumber(last) or 0) then return 'counted' end
    if forgotten:byte() == 45 then
        forgotten = forgotten:sub(2)
    else
        local clock, no_time = time()
        if not clock then return no_time end
        if now > tonumber(forgotten) - REMEMBERED_LONGER then accepted = 'old' end
        local left = last and call('PTTL', writer) or 0
        if failed(left) then return left end
        forgotten = whole(math.max(tonumber(forgotten), now + left))
    end
    if (expires or has_period or not last) and accepted ~= 'old' then
        local refused = refusal(key, amount)
        if refused then return refused end
    end
    local make
    if expires and accepted ~= 'old' then
        make = prepare(key, window, amount, tonumber(life), accepted)
    elseif has_period and accepted ~= 'old' then
        make = prepare_in_period(key, amount, life, accepted)
    end
    -- An error, or a word for which nothing is done.
    if failed(make) or (type(make) == 'string' and make ~= 'expired') then return make end
    local wrote = call('SET', writer, sequence, 'PXAT', forgotten)
    if failed(wrote) then return wrote end
    if accepted == 'old' or make == 'expired' then return 'expired' end
    local value
    if make then value = make() else value = increase(key, amount) end
    if failed(value) then call('SET', writer, last or '0', 'PXAT', forgotten) end
    return value
end

-- An add that fails for now may be sent again. Later ones of its key must not overtake it.
local stuck, answers = {}, {}
for index = 1, #KEYS / each do
    local k, a = each * (index - 1), 5 * index - 3
    local key = KEYS[k + 1]
    local answer = stuck[key]
    if not answer then
        answer = add(key, KEYS[k + 2], expires and KEYS[k + 3], ARGV[a], ARGV[a + 1], ARGV[a + 2],
                     ARGV[a + 3], ARGV[a + 4])
        local refused = failed(answer)
        if refused and not (refused:find('overflow', 1, true) or
                            refused:find('WRONGTYPE', 1, true) or
                            refused:find('not an integer', 1, true)) then
            stuck[key] = answer
        end
    end
    answers[index] = answer
end
return answers
