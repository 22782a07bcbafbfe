-- Hits keys by logs of admitted hits: limiter/sliding_log.cpp in doubles. One log serves
-- several rates: it reaches back as far as the longest period, and all of them take a hit or none.
-- KEYS logs: lists of "at total cost", where total is the sum of all costs up to this one. The log
-- of a key that was blocked ends with '!', the end of the block, ' ' and its length, in
-- microseconds
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] the mode (frame/names.lua)
-- ARGV[3] not used here   ARGV[4..] limit, period in microseconds and 0 for each rate, then for
-- each key a cost; with BLOCK its length in microseconds, with REFUND how many of the newest hits
-- are given back, at most as many as there are
-- RETURNS for each key its error, or {allowed, remaining, retry_after or -1, reset_after} for each
-- rate in a row; times in microseconds. In place of `allowed`: with TAKE_WHAT_FITS how much was
-- taken, for a blocked key -1
-- WHY a script: a check before the hit lets two callers both take the last one.
-- Each key is decided by itself and in order. The commands that write are checked before the first
-- write: a user who may not run all of them is refused before anything is done.
local call = redis.call
local ceil, floor, format, max, min = math.ceil, math.floor, string.format, math.max, math.min
-- Where totals begin again: far above any limit, and exact.
local WRAP = 1000000000000000
local now = tonumber(ARGV[1])
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local mode = ARGV[2]
local take, what_fits, blocks, refunds =
    mode ~= LOOK, mode == TAKE_WHAT_FITS, mode == BLOCK, mode == REFUND
local last_number = #ARGV - #KEYS
local rates = {}
for first = 4, last_number, 3 do
    rates[#rates + 1] = {limit = ARGV[first] + 0, period = ARGV[first + 1] + 0}
end

local function milliseconds(life) return format('%d', max(ceil(life / 1000), 1)) end

local function refuse_what_is_denied(key, life, ...)
    local ask = redis.acl_check_cmd
    if not ask then return end
    for _, words in ipairs({{'PEXPIRE', key, life}, {'LTRIM', key, '0', '-1'}, ...}) do
        if not ask(unpack(words)) then
            error({err = "NOPERM this user may not run '" .. words[1] .. "'; nothing was done"})
        end
    end
end

-- Subtracted from a log's times: it lies ahead by this, and could not be rewritten.
local moved = 0

local function refuse_before_move(key)
    refuse_what_is_denied(key, '1', {'RPUSH', key, ''}, {'PTTL', key}, {'LSET', key, '0', ''})
end

local function parse(entry)
    local at, total, cost = string.match(entry, '^(%d+) (%d+) (%d+)$')
    if at then return at + 0, total + 0, cost + 0 end
end

local function read(key, index)
    local at, total, cost = parse(call('LINDEX', key, index))
    if not at then error({err = 'WRONGTYPE the key holds no state of a limiter'}) end
    return at - moved, total, cost
end

-- The clock was set back: rewrites the log with earlier times. Returns its length and last cost. Of
-- more than 1,000 entries, neighbours become one with the last one's time, so that no log keeps the
-- server busy for long.
local function move_back(key, length, last_cost, by, mark)
    refuse_before_move(key)
    moved = by
    local log, each = {}, ceil(length / 1000)
    local _, first_total, first_cost = read(key, 0)
    local before, cost = (first_total - first_cost) % WRAP, nil
    for index = (length - 1) % each, length - 1, each do
        local at, total = read(key, index)
        cost, before = (total - before) % WRAP, total
        log[#log + 1] = format('%d %d %d', at, total, cost)
    end
    local moved_length = #log
    log[moved_length + 1] = mark
    local call = take and call or redis.pcall
    if type(call('RPUSH', key, unpack(log))) == 'table' then return length, last_cost end
    call('LTRIM', key, mark and length + 1 or length, -1)
    moved = 0
    return moved_length, cost
end

-- The end of a key's block, from the log's last element, and that element. If the clock was set
-- back since, the whole block lies ahead.
local function end_of_block(key)
    local mark = call('LINDEX', key, -1)
    local ends, lasts = string.match(mark, '^!(%d+)( ?%d*)$')
    if not ends then error({err = 'WRONGTYPE the key holds no state of a limiter'}) end
    local block = tonumber(lasts)
    if block and ends - now > block + SKEW then
        ends, mark = now + block, format('!%d %d', now + block, block)
        refuse_before_move(key)
        call('LSET', key, -1, mark)
    end
    return ends + 0, mark
end

-- `n`: a cost, a number of hits to give back, or the length of a block, as the mode says.
local function hit(key, n)
    local cost, back, block_for = n, 0, 0
    if refunds then cost, back = 0, n elseif blocks then cost, block_for = 1, n end
    moved = 0
    local length = call('LLEN', key)
    local at, last_at, last_total, last_cost, ends, mark = now, now, 0, 0, nil, nil
    if length > 0 then
        last_at, last_total, last_cost = parse(call('LINDEX', key, -1))
        if not last_at then
            ends, mark = end_of_block(key)
            length, last_at, last_total, last_cost = length - 1, now, 0, 0
            if length > 0 then last_at, last_total, last_cost = read(key, length - 1) end
        end
        if last_at - now > SKEW then
            length, last_cost = move_back(key, length, last_cost, last_at - now, mark)
            last_at = now
        end
        at = max(now, last_at)
    end
    -- The first entry from `low` on of which `holds` is true.
    local function first_where(low, holds)
        local high = length
        while low < high do
            local middle = floor((low + high) / 2)
            if holds(read(key, middle)) then high = middle else low = middle + 1 end
        end
        return low
    end

    local gone, most_held, most_before, held_in = length, 0, last_total, {}
    for index, rate in ipairs(rates) do
        local period = rate.period
        local kept = first_where(0, function(entry_at) return entry_at + period > at end)
        local before, held = last_total, 0
        if kept < length then
            local _, total, first_cost = read(key, kept)
            before = (total - first_cost) % WRAP
            held = (last_total - before) % WRAP
        end
        if kept <= gone then gone, most_held, most_before = kept, held, before end
        held_in[index] = {kept, before, held}
        if what_fits then cost = max(min(cost, rate.limit - held), 1) end
    end
    back = min(back, most_held)

    local all, longest, answer = true, 1, {}
    for index, rate in ipairs(rates) do
        local limit, period = rate.limit, rate.period
        local kept, before, held = unpack(held_in[index])
        local admissible = cost <= limit
        local allowed = admissible and held + cost <= limit
        all = all and allowed
        local retry_after = -1
        if allowed then
            retry_after = 0
        elseif admissible then
            local leaving = first_where(kept, function(_, total)
                return (total - before) % WRAP >= held + cost - limit
            end)
            retry_after = read(key, leaving) + period - now
        end
        local place = #answer
        answer[place + 1] = allowed and (what_fits and cost or 1) or 0
        answer[place + 2] = limit - held
        answer[place + 3], answer[place + 4] = retry_after, held > 0 and last_at + period - now or 0
        longest = max(longest, answer[place + 4])
    end

    -- Takes the newest hits back.
    local function give_back()
        refuse_what_is_denied(key, '1')
        local left = most_held - back
        local last = first_where(gone, function(_, total)
            return (total - most_before) % WRAP >= left
        end)
        if left > 0 then
            local entry_at, total, entry_cost = read(key, last)
            local excess = (total - most_before) % WRAP - left
            call('LSET', key, last,
                 format('%d %d %d', entry_at, (total - excess) % WRAP, entry_cost - excess))
        else
            last = gone - 1
        end
        if ends then
            call('LSET', key, last + 1, mark)
            last = last + 1
        end
        if last < gone then call('LTRIM', key, 1, 0) else call('LTRIM', key, gone, last) end
        for index, rate in ipairs(rates) do
            local held = max(held_in[index][3] - back, 0)
            answer[4 * index - 2] = rate.limit - held
            if held == 0 then answer[4 * index] = 0 end
        end
    end

    local blocked = blocks or (ends and ends > now)
    if blocked then
        local left = blocks and block_for or ends - now
        if back > 0 then
            give_back()
        elseif blocks then
            local life = milliseconds(max(longest, left))
            refuse_what_is_denied(key, life)
            mark = format('!%d %d', now + left, left)
            if ends then call('LSET', key, -1, mark) else call('RPUSH', key, mark) end
            call('PEXPIRE', key, life)
        elseif take and call('PTTL', key) < 0 then
            call('PEXPIRE', key, milliseconds(max(longest, left)))
        end
        for place = 1, #answer, 4 do
            answer[place], answer[place + 2] = -1, left
            answer[place + 3] = max(answer[place + 3], left)
            if not refunds then answer[place + 1] = 0 end
        end
    elseif back > 0 then
        give_back()
    elseif take and all and cost > 0 then
        for index, rate in ipairs(rates) do
            local place = 4 * index
            answer[place - 2] = answer[place - 2] - cost
            answer[place] = at + rate.period - now
            longest = max(longest, answer[place])
        end
        local life = milliseconds(longest)
        refuse_what_is_denied(key, life)
        local total = (last_total + cost) % WRAP
        -- %d: Lua would print a number this large with fewer digits.
        if ends then
            -- In the place of the element of the key's block.
            call('LSET', key, -1, format('%d %d %d', at, total, cost))
        elseif length > 0 and last_at == at then
            call('LSET', key, -1, format('%d %d %d', at, total, last_cost + cost))
        else
            call('RPUSH', key, format('%d %d %d', at, total, cost))
        end
        call('PEXPIRE', key, life)
        if gone > 0 then call('LTRIM', key, gone, -1) end
    elseif take and length > 0 and call('PTTL', key) < 0 then
        call('PEXPIRE', key, milliseconds(longest))
    end
    return answer
end

local answers = {}
for index, key in ipairs(KEYS) do
    local done, answer = pcall(hit, key, ARGV[last_number + index] + 0)
    -- Before Redis 7 an error is a text.
    if not done and type(answer) ~= 'table' then answer = {err = answer} end
    answers[index] = answer
end
return answers
