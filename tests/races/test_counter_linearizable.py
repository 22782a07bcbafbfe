"""Every caller gets its own value, and in an order that real time allows, while its adds travel
combined with those of others."""

import random
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate

import hotcount
import pytest

from tests.support.servers import RedisServer
from tests.support.together import together

THREADS = 64
ADDS = 150
LARGEST = 2**63 - 1

WRONG_TYPE = "a list"
FULL = "full"


@dataclass
class Add:
    began: float
    ended: float
    n: int
    value: int


def drive(
    server: RedisServer, keys: list[str], weights: list[float], ttl: float | None
) -> tuple[dict[str, list[Add]], dict[str, list[BaseException]], int]:
    """The answers of 64 threads by key, what failed by key, and how many adds were combined."""
    with server.redis(timeout=20) as store:
        counter = hotcount.Counter(store, prefix="c", ttl=ttl)
        store.execute("RPUSH", "c:" + WRONG_TYPE, "x")
        store.execute("SET", "c:" + FULL, str(LARGEST - 3))

        def work(index: int) -> tuple[list[tuple[str, Add]], list[tuple[str, BaseException]]]:
            draw = random.Random(index)
            answered: list[tuple[str, Add]] = []
            failed: list[tuple[str, BaseException]] = []
            for key in draw.choices(keys, weights, k=ADDS):
                n = draw.choice((1, 1, 1, 2, 5))
                began = time.perf_counter()
                try:
                    value = counter.add(key, n)
                except hotcount.HotcountError as error:
                    failed.append((key, error))
                else:
                    answered.append((key, Add(began, time.perf_counter(), n, value)))
            return answered, failed

        answers: dict[str, list[Add]] = defaultdict(list)
        failures: dict[str, list[BaseException]] = defaultdict(list)
        for answered, failed in together(work, THREADS):
            for key, add in answered:
                answers[key].append(add)
            for key, error in failed:
                failures[key].append(error)
        values = dict(zip(answers, counter.get_many(list(answers))))
        for key, adds in answers.items():
            first = LARGEST - 3 if key == FULL else 0
            assert values[key] == first + sum(add.n for add in adds)
        return answers, failures, int(store.stats()["combined"])


def check(answers: dict[str, list[Add]]) -> None:
    for key, adds in answers.items():
        adds.sort(key=lambda add: add.value)
        first = LARGEST - 3 if key == FULL else 0
        # One after the other: no value twice, none left out.
        assert [add.value for add in adds] == list(
            accumulate((add.n for add in adds), initial=first)
        )[1:]
        # What ended before another began has the smaller value.
        latest_began = float("-inf")
        for add in adds:
            assert add.ended >= latest_began, f"{key}: a later add got a smaller value"
            latest_began = max(latest_began, add.began)


@pytest.mark.parametrize("ttl", [None, 300.0], ids=["for-ever", "ttl"])
@pytest.mark.parametrize("count", [1, 1000], ids=["one-key", "zipf-1000"])
def test_values_fit_an_order_in_time(own_redis: RedisServer, count: int, ttl: float | None) -> None:
    keys = [f"k{rank}" for rank in range(count)]
    answers, failures, combined = drive(
        own_redis, keys, [1 / (rank + 1) for rank in range(count)], ttl
    )
    assert not failures
    assert sum(map(len, answers.values())) == THREADS * ADDS
    assert combined > 0, "void: nothing travelled together"
    check(answers)


@pytest.mark.parametrize("ttl", [None, 300.0], ids=["for-ever", "ttl"])
def test_only_the_callers_of_a_bad_key_fail(own_redis: RedisServer, ttl: float | None) -> None:
    keys = [f"k{rank}" for rank in range(1000)] + [WRONG_TYPE, FULL]
    weights = [1 / (rank + 1) for rank in range(1000)] + [1.0, 1.0]
    answers, failures, combined = drive(own_redis, keys, weights, ttl)
    assert combined > 0, "void: nothing travelled together"
    check(answers)
    assert set(failures) == {WRONG_TYPE, FULL}
    assert all(isinstance(error, hotcount.WrongTypeError) for error in failures[WRONG_TYPE])
    assert all(isinstance(error, hotcount.CounterOverflowError) for error in failures[FULL])
    assert WRONG_TYPE not in answers
    assert sum(add.n for add in answers[FULL]) <= 3
