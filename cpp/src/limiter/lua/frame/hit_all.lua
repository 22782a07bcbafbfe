-- Hits keys of several limiters, all or none. The algorithms' functions step() precede this text,
-- in the table `steps` by name; frame/hit_keys.lua has their parameters and results.
-- KEYS states, no two alike, as frame/hit_keys.lua keeps them
-- ARGV[1] now in microseconds, or '' for the server's clock   ARGV[2..] for each key the algorithm,
-- 1 for a shadow limiter (its refusal does not count), the cost, how many rates, and three numbers
-- for each rate
-- RETURNS for each key {allowed or -1 when it is blocked, remaining, retry_after or -1,
-- reset_after} for each rate in a row; times in microseconds. If one key's error prevented the
-- call, the error for that key and an empty answer for the others
-- WHY a script: with single hits other callers would see hits that are refunded a moment later.
-- Denied hits are not charged. Permissions to write are checked before the first write. If the
-- clock was set back, a state is written although its hit was refused.
local call, format, ceil, max, min = redis.call, string.format, math.ceil, math.max, math.min
local now = tonumber(ARGV[1])
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local NO_STATE = 'WRONGTYPE the key holds no state of a limiter'
local function nothing_done(at, why)
    local answers = {}
    for index = 1, #KEYS do answers[index] = {} end
    answers[at] = {err = why}
    return answers
end

-- Returns the answers of all rates of a key, whether all rates allow the hit, the new state and its
-- life; nil if `text` is no state.
local function decide(hit, text, taking)
    local kept, states, answer, life, all, changed = {}, {}, {}, 0, true, nil
    for state in string.gmatch(text or '', '[^;]+') do kept[#kept + 1] = state end
    if text and #kept ~= #hit.rates then return nil end
    for index, rate in ipairs(hit.rates) do
        local allowed, remaining, retry_after, reset_after, state =
            hit.step(rate, kept[index], now, hit.cost, taking, false)
        if allowed == nil then return nil end
        local place = 4 * index
        answer[place - 3], answer[place - 2] = allowed and 1 or 0, remaining
        answer[place - 1], answer[place] = retry_after, reset_after
        life = max(life, reset_after)
        states[index] = state or kept[index] or ''
        all, changed = all and allowed, changed or state
    end
    return answer, all, changed and table.concat(states, ';'), life
end

-- Reads a key's mark (frame/hit_keys.lua) and the state after it into `hit`. False without a mark.
local function read_mark(hit)
    local function end_of(ends, lasts)
        ends, lasts = ends + 0, tonumber(lasts)
        if not lasts or ends - now <= lasts + SKEW then return ends end
        hit.moved = true
        return now + lasts
    end
    local ends, block, list, rest = string.match(hit.text or '', '^!(%d+)( ?%d*)([^|]*)|(.*)$')
    if not ends then return false end
    hit.text, hit.block = rest ~= '' and rest or nil, block
    hit.blocked_for = max(end_of(ends, block) - now, 0)
    for n, lease_ends, id, lease in string.gmatch(list, ',(%d+) (%d+) ([^, ]+)( ?%d*)') do
        local one = {n = n + 0, ends = end_of(lease_ends, lease), id = id, lease = lease}
        if one.ends > now then
            hit.live[#hit.live + 1] = one
            hit.held, hit.lasts = hit.held + one.n, max(hit.lasts, one.ends)
        end
    end
    return true
end

-- As decide(), with reserved units counted as taken. The retry_after of a rate that refuses allows
-- for the ends of the leases.
local function decide_with_held(hit)
    local answer, _, state, life = decide(hit, hit.text, true)
    if not answer then return nil end
    local cost, held, ended, wait, look, all = hit.cost, hit.held, 0, {}, nil, nil
    table.sort(hit.live, function(a, b) return a.ends < b.ends end)
    for index = 0, #hit.live do
        if index > 0 then held, ended = held - hit.live[index].n, hit.live[index].ends - now end
        hit.cost = cost + held
        local after, admits = decide(hit, hit.text, false)
        if index == 0 then look, all = after, admits end
        for place = 3, #after, 4 do
            if after[place] ~= -1 then
                wait[place] = min(wait[place] or math.huge, max(after[place], ended))
            end
        end
        if all then break end
    end
    hit.cost = cost
    for place = 3, #look, 4 do look[place] = wait[place] or -1 end
    hit.refusal = look
    return answer, all, state, life
end

local hits, refused, argument = {}, false, 2
for index, key in ipairs(KEYS) do
    local hit = {
        key = key, step = steps[ARGV[argument]], shadow = ARGV[argument + 1] == '1',
        cost = ARGV[argument + 2] + 0, rates = {}, text = redis.pcall('GET', key),
        blocked_for = 0, held = 0, lasts = 0, live = {},
    }
    if type(hit.text) == 'table' then return nothing_done(index, hit.text.err) end
    local rates = ARGV[argument + 3] + 0
    argument = argument + 4
    for rate = 1, rates do
        hit.rates[rate] = {ARGV[argument] + 0, ARGV[argument + 1] + 0, ARGV[argument + 2] + 0}
        argument = argument + 3
    end
    hit.answer, hit.allowed, hit.state, hit.life = decide(hit, hit.text, true)
    if not hit.answer then
        if not read_mark(hit) then return nothing_done(index, NO_STATE) end
        hit.answer, hit.allowed, hit.state, hit.life = decide_with_held(hit)
        if not hit.answer then return nothing_done(index, NO_STATE) end
        hit.allowed = hit.allowed and hit.blocked_for == 0
    end
    refused = refused or not (hit.allowed or hit.shadow)
    hits[index] = hit
end

local ask = redis.acl_check_cmd
local answers = {}
for index, hit in ipairs(hits) do
    if refused or not hit.allowed then
        local answer, _, state, life = decide(hit, hit.text, false)
        hit.answer, hit.life, hit.may_fail = answer, life, true
        hit.state = state or (hit.moved and (hit.text or ''))
    elseif ask and not ask('SET', hit.key, hit.state, 'PX', '1') then
        return nothing_done(index, "NOPERM this user may not run 'SET' on it; nothing was done")
    end
    for place = 1, hit.held > 0 and #hit.answer or 0, 4 do
        local answer, refusal = hit.answer, hit.refusal
        if refusal[place] == 0 then
            answer[place], answer[place + 2] = 0, refusal[place + 2]
        end
        answer[place + 1] = max(answer[place + 1] - hit.held, 0)
        answer[place + 3] = max(answer[place + 3], hit.lasts - now)
    end
    for place = 1, hit.blocked_for > 0 and #hit.answer or 0, 4 do
        hit.answer[place], hit.answer[place + 1], hit.answer[place + 2] = -1, 0, hit.blocked_for
        hit.answer[place + 3] = max(hit.answer[place + 3], hit.blocked_for)
    end
    answers[index] = hit.answer
end
for _, hit in ipairs(hits) do
    if hit.state then
        if hit.held > 0 or hit.blocked_for > 0 then
            local blocked = hit.blocked_for > 0
            local parts = {blocked and format('!%d%s', now + hit.blocked_for, hit.block) or '!0'}
            for _, one in ipairs(hit.live) do
                parts[#parts + 1] = format(',%d %d %s%s', one.n, one.ends, one.id, one.lease)
            end
            hit.state = table.concat(parts) .. '|' .. hit.state
            hit.life = max(hit.life, hit.lasts - now, hit.blocked_for)
        end
        local call = hit.may_fail and redis.pcall or call
        call('SET', hit.key, hit.state, 'PX', format('%d', max(ceil(hit.life / 1000), 1)))
    end
end
return answers
