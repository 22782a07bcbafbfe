-- Takes a place of a key for a holder, or says that all are held. One that holds a place already
-- keeps it, and its lease is renewed.
-- KEYS[1] the holders: a sorted set of their ids, each with ' ' and its lease in microseconds
-- behind it, by when their leases end, in microseconds since the epoch
-- ARGV[1] how many may hold a place   ARGV[2] the lease in microseconds   ARGV[3] the holder's id
-- and lease
-- RETURNS {1, places held, 0, time until the last lease ends}; if all places are held {0, places
-- held, time until a place is free, time until the last lease ends}; times in microseconds
-- WHY a script: a count before the place is taken lets two holders both take the last one.
-- The reads come before a place is taken: a user who may not read takes none.
local call, format, ceil, max = redis.call, string.format, math.ceil, math.max
local key, id = KEYS[1], ARGV[3]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local score = call('ZSCORE', key, id)
local holds = score and score + 0 > now
local held = call('ZCOUNT', key, format('(%d', now), '+inf')
local last = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2]

if not holds and held >= ARGV[1] + 0 then
    -- More than one lease must end where a limit of the same name lets more in.
    local over = format('%d', held - ARGV[1])
    local function first_to_end()
        return call('ZRANGEBYSCORE', key, format('(%d', now), '+inf', 'WITHSCORES', 'LIMIT', over, '1')
    end
    local live = first_to_end()
    if call('PTTL', key) == -1 then
        call('PEXPIRE', key, format('%d', ceil((last - now) / 1000)))
    end
    if last - now > ARGV[2] + SKEW then
        -- Another limit's lease is longer, or the clock was set back: then each whole lease lies
        -- ahead. A user who may not write waits for the clock.
        local all = call('ZRANGE', key, '0', '-1', 'WITHSCORES')
        for place = 1, #all, 2 do
            local lease = string.match(all[place], ' (%d+)$')
            if lease and all[place + 1] - now > lease + SKEW then
                redis.pcall('ZADD', key, format('%d', now + lease), all[place])
            end
        end
        live, last = first_to_end(), call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2]
    end
    return {0, held, live[2] - now, last - now}
end

local ends = now + ARGV[2]
last = max(last and last + 0 or 0, ends)
local ask = redis.acl_check_cmd
if ask and not (ask('PEXPIRE', key, '1') and ask('ZREMRANGEBYSCORE', key, '0', '1')) then
    return {err = 'NOPERM this user may not give the key an expiry or remove from it; nothing was done'}
end
-- The first write: for want of memory or of rights a server refuses it, and no later one.
call('ZADD', key, format('%d', ends), id)
call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
call('PEXPIRE', key, format('%d', ceil((last - now) / 1000)))
return {1, holds and held or held + 1, 0, last - now}
