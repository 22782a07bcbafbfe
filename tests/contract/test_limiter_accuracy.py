"""The scripts' long-run rates, on a clock given to them.

tests/cpp/limiter/accuracy_test.cpp has the same for the core, at more rates.
"""

import math
import uuid

import hotcount
import pytest

from tests.support.limiters import SAFE
from tests.support.scripts import limiter_script

DAY = 86_400_000_000
# Hits come when they are told to, and some in between. In one script the server's clock stands
# still, so that no state expires while ours goes on.
RUN = """
local function run(KEYS, ARGV)
%s
end
local now, from, ends, cost = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local admitted = 0
local function hit(at)
    local words = {string.format('%%d', at), '1', '0', ARGV[5], ARGV[6], ARGV[7], ARGV[4]}
    return unpack(run(KEYS, words)[1])
end
while now < ends do
    local allowed, _, retry_after = hit(now)
    if allowed == 1 then
        if now >= from then admitted = admitted + cost end
    else
        if hit(now + math.floor(retry_after / 3)) == 1 then return -1 end
        now = now + retry_after
    end
end
return admitted
"""
RATES = [(1, DAY, 1), (4, 3_600_000_000, 1), (1_000_000, 1_000_000, 500)]


@pytest.mark.parametrize("algorithm", SAFE)
@pytest.mark.parametrize("rate", RATES, ids=["1/day", "4/hour", "1000000/second"])
def test_truncated_tokens_the_long_run_rate_is_the_configured_one(
    redis: hotcount.Redis, algorithm: str, rate: tuple[int, int, int]
) -> None:
    """Another library admits 75 % of a rate, because it keeps whole tokens only."""
    limit, period, cost = rate
    if algorithm == "sliding_log" and limit > 100_000:
        limit, period = limit // 10, period // 10
    divisor = math.gcd(limit, period)
    bucket = (limit, period // divisor, limit // divisor)
    numbers = {
        "gcra": bucket,
        "token_bucket": bucket,
        "leaky_bucket": bucket,
        "sliding_window": (limit, period, 1),
    }.get(algorithm, (limit, period, 0))
    periods = max(1200 * cost // limit, 1)
    begins = 1_800_000_000_123_457
    counted = begins + 2 * period
    script = RUN % limiter_script(algorithm)
    admitted = redis.execute(
        *("EVAL", script, 1, uuid.uuid4().hex, begins, counted, counted + periods * period),
        *(cost, *numbers),
    )
    assert admitted == pytest.approx(periods * limit, rel=0.001)
