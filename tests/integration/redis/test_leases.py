"""Limiter(lease=n): a process takes n hits of a key at once, and spends them without asking."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.postgres_votes import in_background
from tests.support.servers import Asked, RedisServer
from tests.support.together import in_child, together

pytestmark = pytest.mark.server
HUNDRED = "100/300 days"
PROCESSES = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Of these tests alone: they count what it was asked."""
    with RedisServer(tmp_path_factory.mktemp("leases")).started() as server:
        yield server


@pytest.fixture
def direct(server: RedisServer) -> Iterator[hotcount.Redis]:
    with server.redis(timeout=20) as direct:
        direct.execute("FLUSHALL")
        yield direct


@pytest.fixture
def store(server: RedisServer, direct: hotcount.Redis) -> Iterator[hotcount.Redis]:
    with server.redis(timeout=20) as store:
        yield store


@pytest.mark.parametrize("algorithm", ["gcra", "sliding_window", "sliding_log"])
def test_four_processes_admit_their_leases_above_the_limit_and_no_more(
    server: RedisServer, direct: hotcount.Redis, algorithm: Any
) -> None:
    lease = 10
    ready, is_ready = os.pipe()
    start, starts = os.pipe()

    def spend(_: int) -> int:
        def work() -> int:
            limiter = hotcount.Limiter(
                server.redis(timeout=20), HUNDRED, algorithm=algorithm, lease=lease
            )
            assert limiter.hit("k")  # It holds lease - 1 now.
            os.write(is_ready, b".")
            os.read(start, 1)
            admitted = 0
            while limiter.hit("k"):
                admitted += 1
            return admitted

        return in_child(work)

    spending = in_background(lambda: together(spend, PROCESSES))
    for _ in range(PROCESSES):
        os.read(ready, 1)
    others = hotcount.Limiter(direct, HUNDRED, algorithm=algorithm)
    assert others.peek("k").remaining == 100 - PROCESSES * lease, "counted when taken"
    # As when the period has passed: the store has a full limit again, and they hold theirs.
    others.reset("k")
    os.write(starts, b"." * PROCESSES)
    counts = spending()
    for end in (ready, is_ready, start, starts):
        os.close(end)
    assert sum(counts) == 100 + PROCESSES * (lease - 1)


@pytest.mark.long
def test_no_interval_admits_more_than_the_bound(
    server: RedisServer, direct: hotcount.Redis
) -> None:
    rate, burst, lease = 200, 20, 8

    def spend(seed: int) -> list[tuple[float, float]]:
        def work() -> list[tuple[float, float]]:
            draw = random.Random(seed)
            limiter = hotcount.Limiter(
                server.redis(timeout=20), f"{rate}/second burst {burst}", lease=lease
            )
            admitted = []
            until = time.monotonic() + 3
            while (began := time.monotonic()) < until:
                decision = limiter.hit("k")
                if decision:
                    admitted.append((began, time.monotonic()))
                # Now and then it keeps what it holds for a while.
                if not decision or draw.random() < 0.1:
                    time.sleep(draw.random() * 0.2)
            return admitted

        return in_child(work)

    hits = sorted(hit for one in together(spend, PROCESSES) for hit in one)
    assert len(hits) > rate
    for index, (began, _) in enumerate(hits):
        # All that began in an interval and ended in it; a hit more, because clocks are adjusted.
        ends = sorted(ended for _, ended in hits[index:])
        for count, ended in enumerate(ends, start=1):
            most = burst + rate * (ended - began) + PROCESSES * (lease - 1) + 1
            assert count <= most


def test_a_lease_is_one_question(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, HUNDRED, lease=10)
    others = hotcount.Limiter(direct, HUNDRED)
    limiter.hit("other")
    asked = Asked(direct)
    decisions = [limiter.hit("k") for _ in range(20)]
    assert asked.times == 2
    assert [one.remaining for one in decisions] == list(range(99, 79, -1))
    assert {(one.reason, one.violated, one.retry_after) for one in decisions} == {
        ("allowed", (), 0.0)
    }
    assert all(one.reset_after > 0 for one in decisions)
    assert others.peek("k").remaining == 80


async def test_tasks_and_threads_spend_one_lease(
    store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    limiter = aio.Limiter(store, HUNDRED, lease=10)
    asked = Asked(direct)
    for _ in range(10):
        assert await limiter.hit("k")
    assert all(await asyncio.gather(*map(limiter.hit, "kkk")))
    # Two of the three ask for themselves, while the first takes a lease; their hits share a script.
    assert asked.times <= 4
    assert hotcount.Limiter(direct, HUNDRED).peek("k").remaining == 100 - 10 - 10 - 2

    def until_refused(_: int) -> int:
        admitted = 0
        while shared.hit("t"):
            admitted += 1
        return admitted

    shared = hotcount.Limiter(store, HUNDRED, lease=7)
    assert sum(together(until_refused, 16)) == 100, "whoever takes a lease spends it"


async def test_a_call_that_is_cancelled_holds_up_no_lease(
    store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    limiter = aio.Limiter(store, HUNDRED, lease=10)
    withdrawn = limiter.hit("k")
    withdrawn.cancel()  # type: ignore[attr-defined]
    with pytest.raises(asyncio.CancelledError):
        await withdrawn
    await limiter.peek("other")  # What the loop had to send is sent.
    asked = Asked(direct)
    for _ in range(10):
        assert await limiter.hit("k")
    assert asked.times == 1
    # It has cost what one that was admitted costs.
    assert await limiter.at_most("k", 100) == 89


async def test_the_lease_of_a_hit_that_is_cancelled_is_kept(
    store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    limiter = aio.Limiter(store, HUNDRED, lease=10)
    for _ in range(5):
        hit = limiter.hit("k")
        await asyncio.sleep(0)  # It is sent.
        hit.cancel()  # type: ignore[attr-defined]
        await limiter.peek("other")  # It is answered.
        for _ in range(9):
            assert await limiter.hit("k")
    assert hotcount.Limiter(direct, HUNDRED).peek("k").remaining == 50


def test_hits_that_cost_more_than_is_held_take_the_rest_from_the_store(
    store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    limiter = hotcount.Limiter(store, "10/300 days", lease=4)
    others = hotcount.Limiter(direct, "10/300 days")
    assert limiter.hit("k", 3).remaining == 7  # It holds 1.
    assert others.peek("k").remaining == 6
    assert limiter.hit("k", 3).remaining == 4  # The 1, and 3 more: it holds 1 again.
    assert others.peek("k").remaining == 3
    assert limiter.hit("k", 6).allowed is False  # More than a lease: asked for itself.
    assert others.hit("k", 2)
    # The store gives the last one. That is not enough, and nothing of it is lost.
    denied = limiter.hit("k", 4)
    assert (denied.allowed, denied.reason, denied.remaining) == (False, "limited", 2)
    assert denied.retry_after is not None
    assert denied.retry_after > 0
    assert others.peek("k").remaining == 0
    assert [limiter.hit("k").allowed for _ in range(3)] == [True, True, False]
    assert limiter.hit("k", 11).reason == "cost_above_limit"


def test_other_calls_see_what_is_held(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, "10/300 days", lease=4)
    others = hotcount.Limiter(direct, "10/300 days")
    assert limiter.hit("k")  # It holds 3.
    assert others.hit("k", 5)
    looked = limiter.peek("k")
    assert (looked.allowed, looked.remaining) == (True, 4)
    assert [limiter.test("k", cost).allowed for cost in (3, 4, 5, 11)] == [True, True, False, False]
    assert others.hit("k")
    assert limiter.test("k", 3).remaining == 3
    assert list(limiter.hit_many(["k", "k", "x"]).allowed) == [True, True, True]
    assert others.peek("x").remaining == 9, "a batch takes no lease"
    assert limiter.refund("k", 2) == 2
    assert [limiter.at_most("k", 9) for _ in range(2)] == [3, 0]
    assert limiter.hit("once", op_id="a").remaining == 9
    assert hotcount.hit_all([(limiter, "k2", 1), (limiter, "k3", 2)]).remaining == 8


@pytest.mark.parametrize("loop", [False, True])
def test_reset_and_block_drop_what_this_object_holds(
    store: hotcount.Redis, direct: hotcount.Redis, loop: bool
) -> None:
    limiter: Any = (aio if loop else hotcount).Limiter(store, "10/300 days", lease=4)

    def call(name: str, *arguments: Any) -> Any:
        if not loop:
            return getattr(limiter, name)(*arguments)

        async def main() -> Any:
            return await getattr(limiter, name)(*arguments)

        return asyncio.run(main())

    assert call("hit", "k")
    call("block", "k", 3600)
    assert call("hit", "k").reason == "blocked"
    assert call("at_most", "k", 2) == 0
    assert call("peek", "k").reason == "blocked"
    call("reset", "k")
    assert call("hit", "k").remaining == 9
    call("reset", "k")
    assert hotcount.Limiter(direct, "10/300 days").peek("k").remaining == 10
    assert call("hit", "k").remaining == 9, "nothing was held"


def test_who_finds_the_key_blocked_by_another_drops_what_it_holds(
    store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    limiter = hotcount.Limiter(store, "10/300 days", lease=4)
    others = hotcount.Limiter(direct, "10/300 days")
    assert limiter.hit("k", 2)
    others.block("k", 3600)
    assert limiter.hit("k"), "what is held is spent without asking"
    assert limiter.hit("k", 2).reason == "blocked"
    others.reset("k")
    assert limiter.hit("k").remaining == 9


def test_what_is_held_ends_with_its_window(store: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(
        store, "100/300 ms", algorithm="fixed_window", align="first", lease=50
    )
    assert limiter.hit("k").remaining == 99
    eventually(lambda: store.execute("EXISTS", *store.execute("KEYS", "*")[:1] or ["-"]) == 0)
    # Of the window that has ended 49 would be left, and 98 remain.
    assert limiter.hit("k").remaining == 99


def test_a_forked_child_begins_with_nothing(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, HUNDRED, lease=10)
    assert limiter.hit("k")
    assert in_child(lambda: limiter.hit("k").remaining) == 89
    assert hotcount.Limiter(direct, HUNDRED).peek("k").remaining == 80
    assert limiter.hit("k").remaining == 98, "the parent's are the parent's"


def test_what_is_held_needs_no_server(own_redis: RedisServer) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=5), "10/300 days", lease=4)
    opened = hotcount.Limiter(
        own_redis.redis(timeout=5), "10/300 days", lease=4, on_error="open", name="open"
    )
    assert limiter.hit("k")
    assert opened.hit("k")
    own_redis.stop()
    assert [limiter.hit("k").allowed for _ in range(3)] == [True] * 3
    with pytest.raises((hotcount.UnavailableError, hotcount.OutcomeUnknownError)):
        limiter.hit("k")
    assert [opened.hit("k").reason for _ in range(5)] == ["allowed"] * 3 + ["open"] * 2


async def test_over_a_database_a_lease_is_one_transaction(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    limiter = hotcount.Limiter(url, HUNDRED, lease=10)
    limiter.create_table()
    others = hotcount.Limiter(url, HUNDRED)
    left = []
    for _ in range(11):
        assert limiter.hit("k")
        left.append(others.peek("k").remaining)
    assert left == [90] * 10 + [80]
    looping = aio.Limiter(url, HUNDRED, lease=10)
    assert [(await looping.hit("k")).remaining for _ in range(3)] == [79, 78, 77]
    assert others.peek("k").remaining == 70


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lease": -1}, "lease is -1; it takes 0 to 1000000"),
        ({"lease": 10**6 + 1}, "lease is 1000001"),
        ({"lease": 5, "charge_denied": True}, "lease is not for charge_denied"),
        ({"lease": 5, "shadow": True}, "lease is not for shadow"),
    ],
)
def test_options_that_it_does_not_go_with(options: dict[str, Any], says: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=says):
        hotcount.Limiter("memory://", "5/minute", **options)


def test_a_store_in_memory_takes_none() -> None:
    store = hotcount.Memory()
    limiter = hotcount.Limiter(store, "10/minute", lease=5)
    assert (limiter.lease, limiter.hit("k").remaining) == (5, 9)
    assert hotcount.Limiter(store, "10/minute").peek("k").remaining == 9


def test_a_hit_that_is_denied_beside_a_lease_spends_of_it(store: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, "10/300 days", lease=10, deny_cache=100)
    for turn in range(30):
        key = f"k{turn}"

        def hit(_: int, key: str = key) -> bool:
            return bool(limiter.hit(key))

        admitted = together(hit, 4)
        assert all(admitted), "there were ten, and one of the four took all"


def test_what_is_held_of_a_window_is_not_spent_in_the_next_one(
    server: RedisServer, store: hotcount.Redis
) -> None:
    rate = "4/2 seconds"
    for turn in range(5):  # Until the machine was quick enough for it.
        key = f"k{turn}"
        leasing = hotcount.Limiter(store, rate, algorithm="fixed_window", lease=4)
        other = hotcount.Limiter(store, rate, algorithm="fixed_window")
        while time.time() % 2 > 0.3:
            time.sleep(0.01)
        began = time.time() // 2
        assert leasing.hit(key)  # All four of the window are taken, three are held.
        time.sleep(1.7 - time.time() % 2)
        server.send_signal(signal.SIGSTOP)
        went_on = threading.Timer(0.6, server.send_signal, [signal.SIGCONT])
        went_on.start()
        asked = time.time() // 2
        answered = leasing.hit(key, 4)  # It is answered in the next window.
        went_on.join()
        more = leasing.at_most(key, 4) + other.at_most(key, 4)
        if answered and (asked, time.time() // 2) == (began, began + 1):
            assert more == 0, "four in this window are all"
            return
    pytest.fail("no turn met the edge of a window")


def test_a_reservation_of_the_key_lengthens_no_lease_of_a_window(store: hotcount.Redis) -> None:
    period = 2
    rate = f"100/{period} s"
    plain = hotcount.Limiter(store, rate, algorithm="fixed_window")
    leasing = hotcount.Limiter(store, rate, algorithm="fixed_window", lease=90)

    def now() -> float:
        seconds, microseconds = store.execute("TIME")
        return int(seconds) + int(microseconds) / 1e6

    def admitted(limiter: hotcount.Limiter) -> int:
        count = 0
        while limiter.hit("k"):
            count += 1
        return count

    while True:
        # Near the end of a window, then in the next one: again where a step took too long.
        plain.reset("k")
        assert plain.reserve("k", 1, lease=60)
        time.sleep((0.75 * period - now()) % period)
        before = now() // period
        assert leasing.hit("k")
        in_window = now() // period == before
        time.sleep(period - now() % period + 0.02)
        count = admitted(leasing) + admitted(plain)
        if in_window and now() // period == before + 1:
            break
    # One is reserved.
    assert count == 99
