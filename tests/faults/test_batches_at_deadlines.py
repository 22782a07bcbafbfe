"""Batches whose deadline passes because the server does not answer: each element has an error, and
elements whose errors say the same share one, so that the call returns soon after its deadline."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.redis_cluster import RedisCluster
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

SIZE = 40_000
TIMEOUT = 0.5
KEYS = [f"user:{number}" for number in range(SIZE)]
ROWS = [(key, "member", 1.0) for key in KEYS]
# With the classes of hotcount or of hotcount.aio.
CALLS: dict[str, Callable[[Any, hotcount.Redis], Callable[..., Any]]] = {
    "add_many": lambda of, store: of.Counter(store).add_many,
    "add_many with a ttl": lambda of, store: of.Counter(store, ttl=600).add_many,
    "get_many": lambda of, store: of.Counter(store).get_many,
    "add_many of a period": lambda of, store: of.PeriodCounter(store).add_many,
    "hit_many": lambda of, store: of.Limiter(store, "9/day").hit_many,
    "upsert_many": lambda of, store: of.LiveSets(store).upsert_many,
}


def call(name: str, store: hotcount.Redis, *, is_awaited: bool) -> tuple[Any, float]:
    """The batch, and how many seconds after its deadline it came."""
    rows = ROWS if name == "upsert_many" else KEYS

    async def awaited() -> tuple[Any, float]:
        began = time.monotonic()
        batch = await CALLS[name](aio, store)(rows, errors="return", timeout=TIMEOUT)
        return batch, time.monotonic() - began - TIMEOUT

    if is_awaited:
        return asyncio.run(awaited())
    began = time.monotonic()
    batch = CALLS[name](hotcount, store)(rows, errors="return", timeout=TIMEOUT)
    return batch, time.monotonic() - began - TIMEOUT


def check(batch: Any, late: float, *, most: int) -> None:
    errors = list(batch.errors.values())
    # Exceptions of their own would take longer than the timeout.
    assert len({id(error) for error in errors}) <= most
    for error in {id(error): error for error in errors}.values():
        assert isinstance(
            error, (hotcount.DeadlineError, hotcount.OutcomeUnknownError, hotcount.UnavailableError)
        )
        assert error.timeout == TIMEOUT
        assert error.server
    assert late < 5, "0.1 s, and what a busy machine adds"


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_batch_shares_its_errors(own_redis: RedisServer, name: str, is_awaited: bool) -> None:
    with own_redis.redis(timeout=20) as store:
        store.ping()
        with own_redis.stopped():
            batch, late = call(name, store, is_awaited=is_awaited)
    assert len(batch.errors) == SIZE
    check(batch, late, most=8)


def test_a_batch_of_a_primary_that_stands_still_shares_its_errors(tmp_path: Path) -> None:
    # Nobody takes its place, however long a busy machine makes the pauses.
    patient = ("--cluster-node-timeout", "60000")
    with (
        RedisCluster(tmp_path, replicas=False, config=patient).started() as cluster,
        hotcount.Redis(cluster.url, timeout=20, max_queue=SIZE) as store,
    ):
        hotcount.Counter(store).add_many(KEYS[:100])
        for name in CALLS:
            for is_awaited in (False, True):
                cluster.pause(0)
                batch, late = call(name, store, is_awaited=is_awaited)
                cluster.resume(0)
                assert SIZE // 10 < len(batch.errors) <= SIZE, name
                check(batch, late, most=16)
