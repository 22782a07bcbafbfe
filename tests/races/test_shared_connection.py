"""Threads that share a connection: at its limits, and with its buffers full, nobody is forgotten.

The rules by which they share it are proved by drawn schedules (lane_roles_test.cpp, in C++);
here they meet a real server.
"""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import hotcount
import pytest

from tests.support.servers import RedisServer
from tests.support.together import together


def one_after_the_other(work: Callable[[int], float], threads: int) -> list[float]:
    """As together(), but they begin as they are started: they find the connection in use."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


@pytest.mark.parametrize(
    ("threads", "calls", "size"), [(16, 2000, 0), (8, 12, 600_000)], ids=["small", "600 kB"]
)
def test_threads_are_all_answered(
    redis_server: RedisServer, threads: int, calls: int, size: int
) -> None:
    redis = redis_server.redis(timeout=20)
    value = bytes(size)

    def work(index: int) -> float:
        longest = 0.0
        for number in range(calls):
            started = time.monotonic()
            if size:
                assert redis.execute("SET", f"large:{index}", value) == b"OK"
            else:
                assert redis.execute("ECHO", f"{index}:{number}") == f"{index}:{number}".encode()
            longest = max(longest, time.monotonic() - started)
        return longest

    # Forgotten is for the whole deadline: 20 s.
    assert max(one_after_the_other(work, threads)) < 10
    assert redis.stats()["connects"] == 1


def test_threads_take_turns_on_connections_of_their_own(own_redis: RedisServer) -> None:
    redis = own_redis.redis(timeout=10)
    alone = ("CLIENT", "KILL", "ID", 1_000_000_000)  # It ends none, over a connection of its own.

    def work(_: int) -> None:
        for _ in range(4000):
            assert redis.execute(*alone) == 0

    def ask_in_vain(_: int) -> str:
        with pytest.raises(hotcount.HotcountError) as caught:
            redis.execute(*alone, timeout=0.5)
        return type(caught.value).__name__

    together(work, 24)
    assert redis.stats()["connects"] <= 9
    # There are 8, and each was given back once: 8 calls are sent at once, and a ninth is not.
    with own_redis.stopped():
        assert sorted(together(ask_in_vain, 9)) == ["DeadlineError"] + ["OutcomeUnknownError"] * 8


def test_large_commands_and_large_replies_pass_each_other(redis_server: RedisServer) -> None:
    """Both buffers are full at once: whoever writes must not keep the replies from being read."""
    redis = redis_server.redis(timeout=30)
    value = bytes(3_000_000)
    redis.execute("SET", "passing", value)

    def work(index: int) -> bool:
        for _ in range(4):
            if index % 2 == 0:
                assert redis.execute("GET", "passing") == value
            else:
                assert redis.execute("SET", f"passing:{index}", value) == b"OK"
        return True

    assert all(together(work, 8))


def test_callers_that_leave_early_leave_nobody_asleep(redis_server: RedisServer) -> None:
    """Deadlines that pass at any time: whoever leaves hands on what it was doing."""
    redis = redis_server.redis(timeout=20, prefix="leaving:")
    text = "x" * 200_000
    stop = threading.Event()

    def patient(index: int) -> float:
        longest = 0.0
        for number in range(150):
            started = time.monotonic()
            assert (
                redis.execute("ECHO", f"{text}{index}:{number}")[-1:] == str(number)[-1:].encode()
            )
            longest = max(longest, time.monotonic() - started)
        return longest

    def hasty(index: int) -> int:
        draw = random.Random(index)
        left = 0
        while not stop.is_set():
            try:
                redis.execute("ECHO", text, timeout=draw.uniform(0.0001, 0.003))
            except (hotcount.DeadlineError, hotcount.OutcomeUnknownError):
                left += 1
        return left

    def work(index: int) -> float:
        if index >= 4:
            return float(hasty(index))
        try:
            return patient(index)
        finally:
            if index == 0:
                stop.set()

    results = together(work, 10)
    assert max(results[:4]) < 10
    assert sum(results[4:]) > 0, "nobody left early: nothing was tried"
    assert redis.stats()["connects"] == 1
