-- Hits keys by the function step() of an algorithm, which stands before this text in one script,
-- behind names.lua: step(rate, kept, now, cost, take, charge_denied, ahead, back) returns allowed,
-- remaining, retry_after or -1, reset_after and the new state; or nothing if `kept` is no state of
-- the algorithm. `back`: how many hits are given back, at most as many as there are; the cost is 0
-- then. If the clock was set back there is a new state although nothing was taken: a look writes
-- it, if it may.
-- KEYS states: a string, with ';' between the states of several rates. The state of a key that was
-- blocked or has reservations begins with a mark: '!', the end of the block in microseconds or 0,
-- after a block ' ' and its length, for each reservation ',', how much it holds, ' ', the end of
-- its lease, ' ', its id, ' ' and the length of its lease, and then '|'
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] the mode (frame/names.lua)
-- ARGV[3] CHARGE_DENIED, or ADMIT_AHEAD, in how long is in retry_after   ARGV[4..] three numbers
-- for each rate, then for each key the arguments of the mode: LOOK, TAKE and TAKE_WHAT_FITS a cost;
-- REFUND how many hits; BLOCK its length in microseconds; RESERVE a cost, the lease in microseconds
-- and an id; COMMIT the used units, and the id of the reservation that it ends
-- RETURNS for each key its error, or {allowed, remaining, retry_after or -1, reset_after} for each
-- rate in a row; times in microseconds. In place of `allowed`: with TAKE_WHAT_FITS how much was
-- taken, for a blocked key -1. Several keys at one rate without an error come as one row: four
-- numbers a key
-- WHY a script: a check before the hit lets two callers both take the last one.
-- Each key is decided by itself and in order: a key of another type costs the others nothing, and a
-- key that comes twice finds the state after its first hit. Of several rates all are taken from or
-- none.
local call, format, ceil, max, min = redis.pcall, string.format, math.ceil, math.max, math.min
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local mode = ARGV[2]
local take, what_fits, refunds = mode ~= LOOK, mode == TAKE_WHAT_FITS, mode == REFUND
local charge_denied, ahead = ARGV[3] == CHARGE_DENIED, ARGV[3] == ADMIT_AHEAD
local each = mode == RESERVE and 3 or mode == COMMIT and 2 or 1
local last_number = #ARGV - each * #KEYS
local answers, from = {}, 1
-- With REFUND: how many hits the key gets back.
local back

-- Most calls: one rate, hits or looks, states that are plain. From the first that is not on, keys
-- are hit further down, because they are hit in order. A table for each answer would cost a tenth
-- of the script's time, and the text of each life another one.
if last_number == 6 and (mode == TAKE or mode == LOOK) then
    local KEYS, ARGV, type = KEYS, ARGV, type
    local rate = {ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0}
    local rows, last, lives = {}, 0, {}
    from = nil
    for index = 1, #KEYS do
        local key, cost = KEYS[index], ARGV[6 + index]
        local text = call('GET', key)
        cost = cost == '1' and 1 or cost + 0
        local allowed, remaining, retry_after, reset_after, state
        if type(text) ~= 'table' then
            allowed, remaining, retry_after, reset_after, state =
                step(rate, text, now, cost, take, charge_denied, ahead)
        end
        local kept = allowed ~= nil
        if state then
            local life = (reset_after + 999) / 1000
            life = life < 1 and 1 or life - life % 1
            local life_text = lives[life]
            if not life_text then
                life_text = format('%d', life)
                lives[life] = life_text
            end
            kept = not call('SET', key, state, 'PX', life_text).err
        elseif kept and take and text then
            local left = call('PTTL', key)
            kept = type(left) == 'number' and left >= 0
        end
        if not kept then
            from = index
            break
        end
        rows[last + 1], rows[last + 2] = allowed and 1 or 0, remaining
        rows[last + 3], rows[last + 4] = retry_after, reset_after
        last = last + 4
    end
    if not from and #KEYS > 1 then return rows end
    for place = 4, last, 4 do
        answers[place / 4] = {rows[place - 3], rows[place - 2], rows[place - 1], rows[place]}
    end
    if not from then return answers end
end

local rates = {}
for first = 4, last_number, 3 do
    rates[#rates + 1] = {ARGV[first] + 0, ARGV[first + 1] + 0, ARGV[first + 2] + 0}
end
local only_rate = rates[1]
local NO_STATE = {err = 'WRONGTYPE the key holds no state of a limiter'}

-- Writes a new state, or gives an expiry to one that lost it. Returns the error, if there is one.
local function keep(key, text, state, life)
    local wrote
    if state then
        wrote = call('SET', key, state, 'PX', format('%d', max(ceil(life / 1000), 1)))
    elseif take and text then
        wrote = call('PTTL', key)
        if type(wrote) == 'number' and wrote < 0 then
            wrote = call('PEXPIRE', key, format('%d', max(ceil(life / 1000), 1)))
        end
    end
    return take and type(wrote) == 'table' and wrote.err and wrote
end

-- Each returns the answer, the new state and for how long it counts; nothing when `text` is no
-- state.
local function hit_at_one_rate(text, cost, taking)
    if taking and what_fits then
        local _, room = step(only_rate, text, now, 1)
        if not room then return nil end
        taking, cost = room > 0, max(min(cost, room), 1)
    end
    local allowed, remaining, retry_after, reset_after, state =
        step(only_rate, text, now, cost, taking, charge_denied, ahead, back)
    if allowed == nil then return nil end
    return {allowed and (what_fits and cost or 1) or 0, remaining, retry_after, reset_after},
        state, reset_after
end

local decide = hit_at_one_rate
if #rates > 1 then
    -- Looks at each rate. Returns whether all are to take the hit, and at which cost.
    local function look_at_all(kept, cost)
        local allowed, admissible, room = true, true, cost
        for index, rate in ipairs(rates) do
            local one, remaining, retry_after = step(rate, kept[index], now, what_fits and 1 or cost)
            if one == nil then return nil end
            allowed = allowed and one
            admissible = admissible and retry_after ~= -1
            room = min(room, remaining)
        end
        if what_fits then return room > 0, max(room, 1) end
        return allowed or refunds or (admissible and charge_denied), cost
    end

    decide = function(text, cost, taking)
        local kept, states, answer, longest, chosen, changed = {}, {}, {}, 0, nil, nil
        for state in string.gmatch(text or '', '[^;]+') do kept[#kept + 1] = state end
        if text and #kept ~= #rates then return nil end
        chosen, cost = look_at_all(kept, cost)
        if chosen == nil then return nil end
        for index, rate in ipairs(rates) do
            local allowed, remaining, retry_after, reset_after, state =
                step(rate, kept[index], now, cost, taking and chosen, charge_denied, nil, back)
            local place = 4 * index
            answer[place - 3] = allowed and (what_fits and cost or 1) or 0
            answer[place - 2], answer[place - 1], answer[place] = remaining, retry_after, reset_after
            longest, changed = max(longest, reset_after), changed or state
            states[index] = state or kept[index]
        end
        return answer, changed and table.concat(states, ';'), longest
    end
end

-- These modes set the mark; they hit no key without a mark.
local marks = mode == BLOCK or mode == RESERVE or mode == COMMIT

-- Hits keys with a mark. Defined when the first such key comes, because most calls have none.
local function make_hit_marked()
    -- The most reservations of a key: each hit of it reads all of them.
    local MOST = 1000

    -- The end of a block or lease of the length `lasts`. If the clock was set back since, the whole
    -- length lies ahead.
    local function end_of(mark, ends, lasts)
        ends, lasts = ends + 0, tonumber(lasts)
        if not lasts or ends - now <= lasts + SKEW then return ends end
        mark.moved = true
        return now + lasts
    end

    -- The mark of a key and the state after it, without reservations whose lease has ended.
    local function read_mark(text)
        local mark = {ends = 0, block = '', held = 0, lasts = 0, live = {}}
        local ends, block, list, rest = string.match(text or '', '^!(%d+)( ?%d*)([^|]*)|(.*)$')
        if not ends then return mark, text end
        mark.ends, mark.block = end_of(mark, ends, block), block
        for n, lease_ends, id, lease in string.gmatch(list, ',(%d+) (%d+) ([^, ]+)( ?%d*)') do
            local one = {n = n + 0, ends = end_of(mark, lease_ends, lease), id = id, lease = lease}
            if one.ends > now then
                mark.live[#mark.live + 1] = one
                mark.held, mark.lasts = mark.held + one.n, max(mark.lasts, one.ends)
            end
        end
        return mark, rest ~= '' and rest or nil
    end

    -- The text that holds both, and its life.
    local function write_mark(mark, state, life)
        if mark.ends <= now and not mark.live[1] then
            -- A key without a state is to go: an empty mark expires at once.
            return state or '!0|', life
        end
        local parts = {'!', format('%d%s', mark.ends, mark.block)}
        for _, one in ipairs(mark.live) do
            parts[#parts + 1] = format(',%d %d %s%s', one.n, one.ends, one.id, one.lease)
        end
        parts[#parts + 1] = '|' .. (state or '')
        return table.concat(parts), max(life, mark.ends - now, mark.lasts - now)
    end

    -- When the hit would be admitted at each rate if no other hit came. Leases end one by one and
    -- free their units, so an admitted time stays admitted: a binary search finds it.
    local function retry_with(mark, text, cost)
        table.sort(mark.live, function(a, b) return a.ends < b.ends end)
        local held_after, held = {[0] = mark.held}, mark.held
        for index, one in ipairs(mark.live) do
            held = held - one.n
            held_after[index] = held
        end
        local retry = {}
        for rate = 1, #rates do
            local function wait_for(index)
                local after = decide(text, cost + held_after[index], false)[4 * rate - 1]
                return after >= 0 and after or math.huge
            end
            local low, high = 0, #mark.live
            while low < high do
                local middle = math.floor((low + high) / 2)
                if wait_for(middle) <= mark.live[middle + 1].ends - now then
                    high = middle
                else
                    low = middle + 1
                end
            end
            local ended = low > 0 and mark.live[low].ends - now or 0
            local wait = max(wait_for(low), ended)
            retry[rate] = wait < math.huge and wait or -1
        end
        return retry
    end

    -- As decide(), with reserved units counted as taken.
    local function decide_with_held(mark, text, cost, taking)
        local held, fitting = mark.held, what_fits
        if held == 0 or refunds then
            local answer, state, life = decide(text, cost, taking)
            for place = 2, answer and #answer or 0, 4 do
                answer[place] = max(answer[place] - held, 0)
                answer[place + 2] = max(answer[place + 2], mark.lasts - now)
            end
            return answer, state, life
        end
        what_fits = false
        if fitting then
            local look = decide(text, 1, false)
            for place = 2, look and #look or 0, 4 do cost = min(cost, look[place] - held) end
            cost = max(cost, 1)
        end
        local look = decide(text, cost + held, false)
        if not look then return nil end
        local admits = true
        for place = 1, #look, 4 do admits = admits and look[place] == 1 end
        local charges = charge_denied and not fitting
        local answer, state, life = decide(text, cost, taking and (admits or charges))
        local retry = not admits and retry_with(mark, state or text, cost)
        for index = 1, #rates do
            local place = 4 * index
            if look[place - 3] == 0 then
                answer[place - 3], answer[place - 1] = 0, retry[index]
            elseif fitting then
                answer[place - 3] = cost
            end
            answer[place - 2] = max(answer[place - 2] - held, 0)
            -- TAKE_WHAT_FITS serves leases (leases.cpp), which end with the window: they ask its end.
            if not fitting then answer[place] = max(answer[place], mark.lasts - now) end
        end
        what_fits = fitting
        return answer, state, life
    end

    -- Holds n for an id, unless there is no room for it.
    local function reserve(mark, text, n, lease, id)
        for _, one in ipairs(mark.live) do
            if one.id == id then  -- It comes once more.
                local answer, _, life = decide_with_held(mark, text, 1, false)
                for place = 1, answer and #answer or 0, 4 do answer[place], answer[place + 2] = 1, 0 end
                mark.again = true
                return answer, nil, life
            end
        end
        local answer, moved, life = decide_with_held(mark, text, n, false)
        if not answer then return nil end
        if mark.ends > now then return answer, moved, life end
        for place = 1, #answer, 4 do
            if answer[place] ~= 1 then return answer, moved, life end
        end
        if #mark.live == MOST then
            local first = math.huge
            for _, one in ipairs(mark.live) do first = min(first, one.ends - now) end
            answer[1], answer[3] = 0, first
            return answer, moved, life
        end
        local ends = now + lease
        mark.live[#mark.live + 1] = {n = n, ends = ends, id = id, lease = ' ' .. lease}
        mark.held, mark.lasts = mark.held + n, max(mark.lasts, ends)
        for place = 2, #answer, 4 do
            answer[place] = answer[place] - n
            answer[place + 2] = max(answer[place + 2], mark.lasts - now)
        end
        return answer, moved or text or '', life
    end

    -- Ends a reservation and takes what was used, as denied hits are charged: up to twice the
    -- limit.
    local function settle(mark, text, used, id)
        for index, one in ipairs(mark.live) do
            if one.id == id then
                table.remove(mark.live, index)
                mark.held = mark.held - one.n
                break
            end
        end
        mark.lasts = 0
        for _, one in ipairs(mark.live) do mark.lasts = max(mark.lasts, one.ends) end
        local kept, states, fits, life = {}, {}, {}, 0
        for state in string.gmatch(text or '', '[^;]+') do kept[#kept + 1] = state end
        for index, rate in ipairs(rates) do
            local left, state, allowed = used, kept[index], true
            for _ = 1, 2 do
                local cost = min(left, rate[1])
                if cost > 0 then
                    local one, _, _, after, changed = step(rate, state, now, cost, true, true)
                    if one == nil then return nil end
                    allowed, state = allowed and one, changed or state
                    left, life = left - cost, max(life, after)
                end
            end
            states[index], fits[index] = state, allowed and left == 0
        end
        local state = states[1] and table.concat(states, ';')
        local answer, _, looked = decide_with_held(mark, state, 1, false)
        if not answer then return nil end
        for index = 1, #rates do
            local place = 4 * index
            answer[place - 3] = fits[index] and 1 or 0
            if fits[index] then answer[place - 1] = 0 end
        end
        return answer, state or '', max(life, looked)
    end

    -- A key with a mark, or one that is to get it. `n`: the first argument of the mode; with REFUND
    -- 0.
    local function hit_marked(key, text, n, ...)
        local mark, rest = read_mark(text)
        if rest and rest == text and not marks then return NO_STATE end
        local answer, state, life
        if mode == BLOCK then
            local looked, moved, lasts = decide_with_held(mark, rest, 1, false)
            mark.ends, mark.block = now + n, format(' %d', n)
            answer, state, life = looked, moved or rest or '', lasts
        elseif mode == RESERVE then
            answer, state, life = reserve(mark, rest, n, ...)
        elseif mode == COMMIT then
            answer, state, life = settle(mark, rest, n, ...)
        else
            -- Hits are given back even while the key is blocked.
            local takes = take and mark.ends <= now
            if refunds then takes = rest end
            answer, state, life = decide_with_held(mark, rest, n, takes)
        end
        if not answer then return NO_STATE end
        if mark.ends > now and mode ~= COMMIT and not mark.again then
            for place = 1, #answer, 4 do
                answer[place], answer[place + 2] = -1, mark.ends - now
                answer[place + 3] = max(answer[place + 3], mark.ends - now)
                if not refunds then answer[place + 1] = 0 end
            end
        end
        if state or mark.moved then
            state = state or rest or ''
            state, life = write_mark(mark, state ~= '' and state or nil, life)
        else
            life = max(life, mark.ends - now, mark.lasts - now)
        end
        return keep(key, true, state, life) or answer
    end

    return hit_marked
end
local hit_marked

local function hit(key, cost)
    local text = call('GET', key)
    if type(text) == 'table' then return text end
    local answer, state, life = decide(text, cost, take and (text or not refunds))
    if not answer then
        hit_marked = hit_marked or make_hit_marked()
        return hit_marked(key, text, cost)
    end
    return keep(key, text, state, life) or answer
end

if marks then
    hit_marked = make_hit_marked()
    hit = function(key, n, ...)
        local text = call('GET', key)
        if type(text) == 'table' then return text end
        return hit_marked(key, text, n, ...)
    end
end

for index = from, #KEYS do
    local place = last_number + each * (index - 1)
    local n = ARGV[place + 1] + 0
    if refunds then n, back = 0, n end
    answers[index] = hit(KEYS[index], n, unpack(ARGV, place + 2, place + each))
end
return answers
