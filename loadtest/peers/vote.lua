-- wrk's script for http_votes.py: each request a vote for item 1 by another user; the figures as
-- one line of JSON. Each of wrk's threads has a Lua state of its own: they are told apart by number.
local threads = 0

function setup(thread)
    threads = threads + 1
    thread:set("number", threads)
end

function init(args)
    math.randomseed(tonumber(args[1]) * 64 + number)
end

function request()
    -- 2^52: what a double holds exactly.
    return wrk.format("GET", string.format("/?item=1&user=%.0f", math.random(0, 4503599627370495)))
end

function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        '\n{"requests": %d, "us": %d, "p50_us": %d, "p99_us": %d, "refused": %d, "broken": %d}\n',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
