-- Hits keys by the function step() of an algorithm, which stands before this text in one script:
-- step(rate, kept, now, cost, take, charge_denied) returns allowed, remaining, retry_after or -1,
-- reset_after and the new state, or nothing when `kept` is no state of it.
-- KEYS states: a string, with ';' between the states of several rates. That of a key that was
-- blocked has '!', until when in microseconds and '|' before them
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] 1 to take, 0 to look,
-- 2 to take as much of the cost as there is room for, 3 to block for the cost in microseconds
-- ARGV[3] 1 to charge denied hits   ARGV[4..] three numbers for each rate, then the cost for each key;
-- below 0 it gives hits back, no more than there are
-- RETURNS for each key its error, or {allowed, or with 2 how much was taken, or -1 when it is blocked,
-- remaining, retry_after or -1, reset_after} for each rate in a row; times in microseconds
-- WHY a script: a check before the hit lets two callers both take the last one.
-- Many keys in one script, each by itself and in order: a key of another type costs the others
-- nothing, and a key that comes twice finds what its first hit left. Of several rates all are taken
-- from or none.
local call, format, ceil, max, min = redis.pcall, string.format, math.ceil, math.max, math.min
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local take, what_fits, charge_denied = ARGV[2] ~= '0', ARGV[2] == '2', ARGV[3] == '1'
local last_number = #ARGV - #KEYS
local answers, from = {}, 1

-- Most calls: one rate, hits or looks, states that are plain. From the first that is not on, keys are
-- hit further down, because they are hit in order.
if last_number == 6 and not what_fits and ARGV[2] ~= '3' then
    local rate = {ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0}
    for index, key in ipairs(KEYS) do
        local text, cost = call('GET', key), ARGV[6 + index] + 0
        local allowed, remaining, retry_after, reset_after, state
        if type(text) ~= 'table' then
            allowed, remaining, retry_after, reset_after, state =
                step(rate, text, now, cost, take and (text or cost > 0), charge_denied)
        end
        local kept = allowed ~= nil and not (take and text)
        if state then
            kept = call('SET', key, state, 'PX', format('%d', max(ceil(reset_after / 1000), 1)))
        elseif not kept and allowed ~= nil then
            local left = call('PTTL', key)
            kept = type(left) == 'number' and left >= 0
        end
        if not kept then
            from = index
            break
        end
        if kept ~= true and kept.err then
            answers[index] = kept
        else
            answers[index] = {allowed and 1 or 0, remaining, retry_after, reset_after}
        end
    end
    if #answers == #KEYS then return answers end
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
    return type(wrote) == 'table' and wrote.err and wrote
end

-- Each returns the answer, the new state and for how long it counts; nothing when `text` is no state.
local function hit_at_one_rate(text, cost, taking)
    if taking and what_fits then
        local _, room = step(only_rate, text, now, 1)
        if not room then return nil end
        taking, cost = room > 0, max(min(cost, room), 1)
    end
    local allowed, remaining, retry_after, reset_after, state =
        step(only_rate, text, now, cost, taking, charge_denied)
    if allowed == nil then return nil end
    return {allowed and (what_fits and cost or 1) or 0, remaining, retry_after, reset_after},
        state, reset_after
end

local decide = hit_at_one_rate
if #rates > 1 then
    -- Whether all the rates are to be taken from, from a look at each; and the cost that is.
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
        return allowed or cost < 0 or (admissible and charge_denied), cost
    end

    decide = function(text, cost, taking)
        local kept, states, answer, longest, chosen = {}, {}, {}, 0, nil
        for state in string.gmatch(text or '', '[^;]+') do kept[#kept + 1] = state end
        if text and #kept ~= #rates then return nil end
        chosen, cost = look_at_all(kept, cost)
        if chosen == nil then return nil end
        for index, rate in ipairs(rates) do
            local allowed, remaining, retry_after, reset_after, state =
                step(rate, kept[index], now, cost, taking and chosen, charge_denied)
            local place = 4 * index
            answer[place - 3] = allowed and (what_fits and cost or 1) or 0
            answer[place - 2], answer[place - 1], answer[place] = remaining, retry_after, reset_after
            longest = max(longest, reset_after)
            if state then states[index] = state end
        end
        return answer, states[1] and table.concat(states, ';'), longest
    end
end

-- A key with a mark, or one that is to get it.
local function hit_marked(key, text, cost)
    local ends, rest = string.match(text or '', '^!(%d+)|(.*)$')
    if not ends and ARGV[2] ~= '3' then return NO_STATE end
    if ends then
        text = rest ~= '' and rest or nil
        ends = ends + 0
    end
    local blocks = ARGV[2] == '3'
    if blocks then ends, cost = now + cost, 1 end
    local blocked = ends > now
    -- Hits that are given back are so although the key is blocked.
    local answer, state, life = decide(text, cost, not blocks and take and (not blocked or cost < 0))
    if not answer then return NO_STATE end
    if blocked then
        local left = ends - now
        life = max(life, left)
        if blocks or state then state = format('!%d|%s', ends, state or text or '') end
        for place = 1, #answer, 4 do
            answer[place], answer[place + 2] = -1, left
            answer[place + 3] = max(answer[place + 3], left)
            if cost > 0 then answer[place + 1] = 0 end
        end
    end
    return keep(key, true, state, life) or answer
end

local function hit(key, cost)
    local text = call('GET', key)
    if type(text) == 'table' then return text end
    local answer, state, life = decide(text, cost, take and (text or cost > 0))
    if not answer then return hit_marked(key, text, cost) end
    return keep(key, text, state, life) or answer
end

if ARGV[2] == '3' then
    hit = function(key, cost)
        local text = call('GET', key)
        if type(text) == 'table' then return text end
        return hit_marked(key, text, cost)
    end
end

for index = from, #KEYS do
    answers[index] = hit(KEYS[index], ARGV[last_number + index] + 0)
end
return answers
