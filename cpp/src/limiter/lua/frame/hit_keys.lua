-- Hits keys by the function step() of an algorithm, which stands before this text in one script:
-- step(rate, kept, now, cost, take, charge_denied) returns allowed, remaining, retry_after or -1,
-- reset_after and the new state, or nothing when `kept` is no state of it.
-- KEYS states: a string, with ';' between the states of several rates
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2] 1 to take, 0 to look,
-- 2 to take as much of the cost as there is room for
-- ARGV[3] 1 to charge denied hits   ARGV[4..] three numbers for each rate, then the cost for each key
-- RETURNS for each key its error, or {allowed, or with 2 how much was taken, remaining, retry_after or
-- -1, reset_after} for each rate in a row; times in microseconds
-- WHY a script: a check before the hit lets two callers both take the last one.
-- Many keys in one script, each by itself and in order: a key of another type costs the others
-- nothing, and a key that comes twice finds what its first hit left. Of several rates all are taken
-- from or none.
local call = redis.pcall
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local take, what_fits, charge_denied = ARGV[2] ~= '0', ARGV[2] == '2', ARGV[3] == '1'
local last_number = #ARGV - #KEYS
local rates = {}
for first = 4, last_number, 3 do
    rates[#rates + 1] = {ARGV[first] + 0, ARGV[first + 1] + 0, ARGV[first + 2] + 0}
end
local NO_STATE = {err = 'WRONGTYPE the key holds no state of a limiter'}

-- Whether all the rates take the hit, from a look at each.
local function all_take(kept, cost)
    local allowed, admissible = true, true
    for index, rate in ipairs(rates) do
        local one, _, retry_after = step(rate, kept[index], now, cost)
        allowed = allowed and one
        admissible = admissible and retry_after ~= -1
    end
    return allowed or (admissible and charge_denied)
end

local function hit(key, cost)
    local text = call('GET', key)
    if type(text) == 'table' then return text end
    local kept, states, answer = {text or nil}, {}, {}
    if #rates > 1 then
        kept = {}
        for state in string.gmatch(text or '', '[^;]+') do kept[#kept + 1] = state end
        if text and #kept ~= #rates then return NO_STATE end
    end
    local taking
    if what_fits then
        for index, rate in ipairs(rates) do
            local _, room = step(rate, kept[index], now, 1)
            if not room then return NO_STATE end
            cost = math.min(cost, room)
        end
        taking, cost = cost > 0, math.max(cost, 1)
    else
        taking = take and (#rates == 1 or all_take(kept, cost))
    end
    local longest = 0
    for index, rate in ipairs(rates) do
        local allowed, remaining, retry_after, reset_after, state =
            step(rate, kept[index], now, cost, taking, charge_denied)
        if allowed == nil then return NO_STATE end
        local place = #answer
        answer[place + 1] = allowed and (what_fits and cost or 1) or 0
        answer[place + 2] = remaining
        answer[place + 3], answer[place + 4] = retry_after, reset_after
        if reset_after > longest then longest = reset_after end
        if state then states[index] = state end
    end
    local wrote
    local life = string.format('%d', math.max(math.ceil(longest / 1000), 1))
    if #states > 0 then
        wrote = call('SET', key, table.concat(states, ';'), 'PX', life)
    elseif take and text then
        wrote = call('PTTL', key)
        if type(wrote) == 'number' and wrote < 0 then wrote = call('PEXPIRE', key, life) end
    end
    if type(wrote) == 'table' and wrote.err then return wrote end
    return answer
end

local answers = {}
for index, key in ipairs(KEYS) do answers[index] = hit(key, ARGV[last_number + index] + 0) end
return answers
