"""A limiter's script for several keys answers as the script for each of them does."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.support.scripts import limiter_script
from tests.support.servers import RedisServer

NOW = 1_800_000_000_123_457
MINUTE = 60_000_000
NUMBERS = {"gcra": (100, 600_000, 1), "fixed_window": (100, MINUTE, 0)}
# What a key may hold: nothing, a state, a full one, a blocked one, one without an expiry, no state.
STATES = {
    "gcra": {
        "live": f"{NOW - 5} 1200000",
        "full": f"{NOW} {MINUTE}",
        "blocked": f"!{NOW + 7_000_000}|{NOW} 600000",
    },
    "fixed_window": {
        "live": f"{NOW - NOW % MINUTE} 2",
        "full": f"{NOW - NOW % MINUTE} 100",
        "blocked": f"!{NOW + 7_000_000}|{NOW - NOW % MINUTE} 1",
    },
}
PLAIN = ("fresh", "live", "full", "fresh 2", "immortal")
OTHERS = ("blocked", "list", "text")


def fill(redis: Any, algorithm: str, prefix: str, kinds: tuple[str, ...]) -> list[str]:
    """Makes a key of each kind and returns their names."""
    states = STATES[algorithm]
    for kind in kinds:
        key = f"{prefix}:{kind}"
        if kind == "list":
            redis.execute("RPUSH", key, "x")
        elif kind == "text":
            redis.execute("SET", key, "hello", "PX", 60_000)
        elif kind == "immortal":
            redis.execute("SET", key, states["live"])
        elif kind in states:
            redis.execute("SET", key, states[kind], "PX", 60_000)
    return [f"{prefix}:{kind}" for kind in kinds]


def hit(
    redis: Any, algorithm: str, keys: list[str], costs: list[int], take: int = 1
) -> list[object]:
    """What the script answers to each key: its numbers, or its error's first word."""
    answers = redis.execute(
        *("EVAL", limiter_script(algorithm), len(keys), *keys, NOW, take, 0),
        *(*NUMBERS[algorithm], *costs),
    )
    if len(keys) > 1 and all(isinstance(number, int) for number in answers):
        assert len(answers) == 4 * len(keys)
        return [answers[place : place + 4] for place in range(0, len(answers), 4)]
    return [
        list(answer) if isinstance(answer, (list, tuple)) else str(answer).split()[0]
        for answer in answers
    ]


def kept(redis: Any, keys: list[str]) -> list[object]:
    """What stands at the keys, and whether each expires."""
    return [(redis.execute("DUMP", key), redis.execute("PTTL", key) > 0) for key in keys]


@pytest.mark.parametrize("take", [0, 1])
@pytest.mark.parametrize("algorithm", sorted(NUMBERS))
def test_keys_of_one_script_are_answered_as_alone(
    redis_server: RedisServer, algorithm: str, take: int
) -> None:
    with redis_server.redis() as redis:
        for kinds in (PLAIN, ("fresh", *OTHERS, "live"), ("full", "list"), (*PLAIN, *OTHERS)):
            costs = [1 + index % 3 for index in range(len(kinds))]
            name = uuid.uuid4().hex
            alone = fill(redis, algorithm, f"{name}a", kinds)
            together = fill(redis, algorithm, f"{name}b", kinds)
            expected = [
                hit(redis, algorithm, [key], [cost], take)[0]
                for key, cost in zip(alone, costs, strict=True)
            ]
            assert hit(redis, algorithm, together, costs, take) == expected
            assert kept(redis, together) == kept(redis, alone)


@pytest.mark.parametrize("algorithm", sorted(NUMBERS))
def test_a_key_that_comes_twice_finds_what_its_first_hit_left(
    redis_server: RedisServer, algorithm: str
) -> None:
    with redis_server.redis() as redis:
        key, other = uuid.uuid4().hex, uuid.uuid4().hex
        answers = hit(redis, algorithm, [key, other, key, key], [60, 1, 40, 1])
    assert [answer[:2] for answer in answers] == [[1, 40], [1, 99], [1, 0], [0, 0]]  # type: ignore[index]
