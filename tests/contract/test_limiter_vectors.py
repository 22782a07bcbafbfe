"""The scripts' arithmetic: the shared vectors, and an independent model in fractions.

limiter_vectors.json holds hits and their answers, and as "script" the numbers that the algorithm's
script takes, three for each rate. tests/cpp/limiter/vectors_test.cpp runs the same through the C++
core. Here the scripts run on a clock given to them.
"""

import json
import random
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Redis

from tests.support.limiter_models import Answer, Hit, merge, model
from tests.support.scripts import answers_of

HOUR = 3_600_000_000
ROOT = Path(__file__).resolve().parents[2]
VECTORS: list[dict[str, Any]] = json.loads(
    (ROOT / "tests/contract/limiter_vectors.json").read_text()
)


def run_script(redis: hotcount.Redis, case: dict[str, Any], hits: list[Hit]) -> list[Answer]:
    return list(map(merge, answers_of(redis, case, [(now, "1", cost) for now, cost in hits])))


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_the_script_answers_as_the_vectors_say(redis: hotcount.Redis, case: dict[str, Any]) -> None:
    hits = [(now, cost) for now, cost, *_ in case["hits"]]
    assert run_script(redis, case, hits) == [expected for _, _, *expected in case["hits"]]


# What a clock may be set by, in microseconds.
STEPS = [-HOUR, HOUR, -150_000, 150_000, -100_001, -100_000, -50_000, -1000, -1, 1000]


def test_a_long_log_that_is_moved_admits_no_more(redis: hotcount.Redis) -> None:
    limit, begin = 2500, 1_800_000_000_000_000
    case = {"algorithm": "sliding_log", "charge_denied": False, "script": [limit, 60_000_000, 0]}
    hits = [(begin + index, 1) for index in range(limit)]
    back = begin + limit - 1 - HOUR
    looks = [back, back + 60_000_000 - 2000, back + 60_000_000 - 1, back + 60_000_000]
    answers = run_script(redis, case, hits + [(now, limit + 1) for now in looks])
    # Each 3 of them leave when the last one does: 500 and 2499 would have left.
    assert [remaining for _, remaining, *_ in answers[limit:]] == [0, 499, 2497, limit]


def random_hits(case: dict[str, Any], seed: int, count: int, *, steps: bool) -> list[Hit]:
    chance = random.Random(seed)
    now = 1_800_000_000_000_000 + chance.randrange(10**9)
    most = case["burst"]
    hits = []
    for _ in range(count):
        now += chance.choice([0, 1, chance.randrange(2 * case["period"] // most + 2)])
        if steps and chance.random() < 0.1:
            now += chance.choice(STEPS)
        hits.append((now, chance.choice([1, 1, chance.randint(1, most), most, most + 1])))
    return hits


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [False, True], ids=["steady", "set"])
@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_random_hits_fit_models(redis: Redis, case: dict[str, Any], steps: bool, seed: int) -> None:
    hits = random_hits(case, seed, 60, steps=steps)
    assert run_script(redis, case, hits) == model(case, hits)
