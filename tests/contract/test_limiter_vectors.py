"""The scripts' arithmetic: the shared vectors, and an independent model in fractions.

limiter_vectors.json holds hits and their answers, and as "script" the numbers of the rate that the
algorithm's script takes (ARGV[4] to ARGV[6]). tests/cpp/limiter/vectors_test.cpp runs the same
through the C++ core. Here the scripts run on a clock given to them.
"""

from __future__ import annotations

import json
import math
import random
import uuid
from fractions import Fraction
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]
VECTORS: list[dict[str, Any]] = json.loads(
    (ROOT / "tests/contract/limiter_vectors.json").read_text()
)
# Those that model() below knows.
MODELLED = [
    case
    for case in VECTORS
    if case["algorithm"] in ("gcra", "fixed_window") and not case["charge_denied"]
]
Answer = list[int]  # allowed, remaining, retry_after or -1, reset_after


# In one script the server's clock stands still, so that no state expires while ours goes on.
RUN = """
local function run(KEYS, ARGV)
%s
end
local answers = {}
for i = 6, #ARGV, 2 do
    local hit = {ARGV[i], '1', ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[i + 1]}
    answers[#answers + 1] = run(KEYS, hit)[1]
end
return answers
"""


def run_script(
    redis: hotcount.Redis, case: dict[str, Any], hits: list[tuple[int, int]]
) -> list[Answer]:
    text = (ROOT / f"cpp/src/limiter/lua/{case['algorithm']}.lua").read_text()
    charge = int(case["charge_denied"])
    flat = [number for hit in hits for number in hit]
    answers: list[Answer] = redis.execute(
        "EVAL", RUN.replace("%s", text), 1, uuid.uuid4().hex, charge, *case["script"], "", *flat
    )
    return answers


def model(case: dict[str, Any], hits: list[tuple[int, int]]) -> list[Answer]:
    """The same without charge_denied, from the definitions, in exact fractions."""
    limit, period, burst = case["limit"], case["period"], case["burst"]
    answers = []
    level, at = Fraction(0), 0  # gcra: what is in the bucket, at a time.
    start: int | None = None
    used = 0
    for now, cost in hits:
        if case["algorithm"] == "gcra":
            level = max(Fraction(0), level - Fraction((now - at) * limit, period))
            at = now
            allowed = level + cost <= burst
            level += cost if allowed else 0
            wait = math.ceil((level + cost - burst) * period / limit)
            retry = 0 if allowed else -1 if cost > burst else wait
            reset = math.ceil(level * period / limit)
            answers.append([int(allowed), math.floor(burst - level), retry, reset])
            continue
        if start is None or now >= start + period:
            start, used = now if case["first"] else now - now % period, 0
        left = start + period - now
        allowed = used + cost <= limit
        used += cost if allowed else 0
        if used == 0:
            start = None
        retry = 0 if allowed else -1 if cost > limit else left
        answers.append([int(allowed), limit - used, retry, left if used else 0])
    return answers


@pytest.fixture
def redis(redis_server: RedisServer) -> hotcount.Redis:
    return redis_server.redis(timeout=20)


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_the_script_answers_as_the_vectors_say(redis: hotcount.Redis, case: dict[str, Any]) -> None:
    hits = [(now, cost) for now, cost, *_ in case["hits"]]
    assert run_script(redis, case, hits) == [expected for _, _, *expected in case["hits"]]


def random_hits(case: dict[str, Any], seed: int, count: int) -> list[tuple[int, int]]:
    chance = random.Random(seed)
    now = 1_800_000_000_000_000 + chance.randrange(10**9)
    most = case["burst"]
    hits = []
    for _ in range(count):
        now += chance.choice([0, 1, chance.randrange(2 * case["period"] // most + 2)])
        hits.append((now, chance.choice([1, 1, chance.randint(1, most), most, most + 1])))
    return hits


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", MODELLED, ids=[case["name"] for case in MODELLED])
def test_random_hits_are_answered_as_the_definitions_say(
    redis: hotcount.Redis, case: dict[str, Any], seed: int
) -> None:
    hits = random_hits(case, seed, 60)
    assert run_script(redis, case, hits) == model(case, hits)
