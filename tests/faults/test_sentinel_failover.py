"""A primary that Sentinels replace, under adds and votes: what was acknowledged is kept, nothing is
counted twice, and calls wait within their deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.eventually import eventually
from tests.support.redis_sentinel import SentinelTrio
from tests.support.servers import redis_program, valkey_program

pytestmark = pytest.mark.server

KEY = "adds"
# More than a failover takes.
PATIENT = 30


@pytest.fixture(params=["redis", pytest.param("valkey", marks=pytest.mark.long)])
def trio(request: pytest.FixtureRequest) -> Iterator[SentinelTrio]:
    program = {"redis": redis_program, "valkey": valkey_program}[request.param]()
    with SentinelTrio(program=program).started() as trio:
        yield trio


@dataclass
class Audit:
    """What callers were told of their adds of 1."""

    acknowledged: int = 0
    unknown: int = 0
    refused: list[str] = field(default_factory=list)
    longest_gap: float = 0.0
    _last: float = field(default_factory=time.monotonic)
    _lock: Any = field(default_factory=threading.Lock)

    def note(self, outcome: BaseException | int) -> None:
        with self._lock:
            if isinstance(outcome, int):
                self.acknowledged += 1
                now = time.monotonic()
                self.longest_gap = max(self.longest_gap, now - self._last)
                self._last = now
            elif isinstance(outcome, hotcount.OutcomeUnknownError):
                self.unknown += 1
            else:
                self.refused.append(str(outcome))

    def check(self, trio: SentinelTrio, primary: int) -> None:
        stored = int(trio.direct(primary).get(f"count:{KEY}") or 0)
        print(
            f"{self.acknowledged} acknowledged, {self.unknown} unknown, {stored} stored, "
            f"{len(self.refused)} refused, {self.longest_gap:.2f} s without a success"
        )
        assert self.acknowledged <= stored <= self.acknowledged + self.unknown, self.refused[:3]


class Adders:
    """Threads that add for the block."""

    def __init__(self, redis: hotcount.Redis, audit: Audit, threads: int = 8) -> None:
        self._counter = hotcount.Counter(redis)
        self._audit = audit
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._add) for _ in range(threads)]

    def _add(self) -> None:
        while not self._stop.is_set():
            try:
                self._audit.note(self._counter.add(KEY))
            except hotcount.HotcountError as error:
                self._audit.note(error)
            time.sleep(0.002)

    def __enter__(self) -> Adders:
        for thread in self._threads:
            thread.start()
        self.await_more(100)
        return self

    def await_more(self, count: int = 100) -> None:
        """Waits until more than `count` further adds are acknowledged."""
        goal = self._audit.acknowledged + count
        eventually(lambda: self._audit.acknowledged > goal, 40)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def plan(trio: SentinelTrio) -> None:
    trio.fail_over()


def kill(trio: SentinelTrio) -> None:
    trio.servers[0].kill()


@pytest.mark.parametrize("end", [plan, kill])
def test_adds_go_on_at_the_new_primary(
    trio: SentinelTrio, end: Callable[[SentinelTrio], None]
) -> None:
    audit = Audit()
    with hotcount.Redis(trio.url, timeout=PATIENT) as redis, Adders(redis, audit) as adders:
        end(trio)
        trio.await_primary(1)
        adders.await_more()
        assert redis.ready()
    audit.check(trio, 1)
    # Each thread may have had one on its way.
    assert audit.unknown <= 8
    assert audit.refused == [], "they wait within their deadlines"


def test_a_primary_that_was_paused_and_goes_on_acknowledges_nothing(trio: SentinelTrio) -> None:
    audit = Audit()
    with hotcount.Redis(trio.url, timeout=5) as redis, Adders(redis, audit) as adders:
        trio.servers[0].send_signal(signal.SIGSTOP)
        trio.await_primary(1)
        adders.await_more()
        trio.servers[0].send_signal(signal.SIGCONT)
        adders.await_more()
        # It calls itself a primary until the Sentinels make it a replica.
        time.sleep(1)
        adders.await_more()
        eventually(lambda: trio.role(0) == "slave", 40)
        adders.await_more()
    audit.check(trio, 1)


def test_what_lies_in_the_sockets_of_a_replaced_primary_is_no_acknowledgement() -> None:
    """It answers before anybody finds it silent: only the Sentinels' word tells."""
    audit = Audit()
    with (
        SentinelTrio(down_after=300).started() as trio,
        hotcount.Redis(trio.url, timeout=PATIENT, silence_limit=60) as redis,
    ):
        with Adders(redis, audit) as adders:
            trio.servers[0].send_signal(signal.SIGSTOP)
            eventually(lambda: trio.role(1) == "master", 20)
            trio.servers[0].send_signal(signal.SIGCONT)
            adders.await_more()
            # It has run what it was sent.
            assert trio.role(0) == "master"
        audit.check(trio, 1)
        assert audit.unknown > 0


async def test_tasks_of_a_loop_go_on_at_the_new_primary(trio: SentinelTrio) -> None:
    audit = Audit()
    stop = asyncio.Event()
    async with hotcount.aio.Redis(trio.url, timeout=PATIENT) as redis:
        counter = hotcount.aio.Counter(redis)

        async def add() -> None:
            while not stop.is_set():
                try:
                    audit.note(await counter.add(KEY))
                except hotcount.HotcountError as error:
                    audit.note(error)
                await asyncio.sleep(0.002)

        tasks = [asyncio.ensure_future(add()) for _ in range(32)]
        while audit.acknowledged < 100:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(trio.servers[0].kill)
        await asyncio.to_thread(trio.await_primary, 1)
        goal = audit.acknowledged + 100
        while audit.acknowledged < goal:
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*tasks)
    audit.check(trio, 1)
    assert audit.refused == []


def test_a_forked_child_finds_the_new_primary_by_itself(trio: SentinelTrio) -> None:
    with hotcount.Redis(trio.url, timeout=PATIENT) as redis:
        counter = hotcount.Counter(redis)
        assert counter.add(KEY) == 1
        eventually(lambda: int(trio.direct(1).get(f"count:{KEY}") or 0) == 1)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if counter.add(KEY) == 2 else 2
                eventually(lambda: int(trio.direct(1).get(f"count:{KEY}") or 0) == 2)
                trio.fail_over()
                trio.await_primary(1)
                code = 0 if counter.add(KEY) == 3 and code == 0 else 3
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert counter.add(KEY) == 4
        assert trio.direct(1).get(f"count:{KEY}") == b"4"


@pytest.mark.parametrize("strategy", ["cached", "write_behind"])
def test_votes_are_exact_afterwards(trio: SentinelTrio, tmp_path: Path, strategy: Any) -> None:
    with (
        hotcount.Database(f"sqlite:///{tmp_path}/votes.db", timeout=PATIENT) as database,
        hotcount.Redis(trio.url, timeout=PATIENT) as cache,
        hotcount.Votes(database, cache=cache, strategy=strategy) as votes,
    ):
        votes.create_tables()
        votes.add_items([1])
        for user in range(400):
            if user == 100:
                trio.fail_over()
            # Casting again is safe after any failure.
            while True:
                try:
                    votes.cast(1, user, timeout=PATIENT)
                    break
                except hotcount.OutcomeUnknownError:
                    continue
        trio.await_primary(1)
        if strategy == "write_behind":
            eventually(lambda: votes.flush(timeout=PATIENT).pending == 0, 40)
        assert int(votes.count(1, consistency="exact")) == 400


@contextlib.contextmanager
def no_majority(trio: SentinelTrio) -> Iterator[None]:
    """Two Sentinels stand still for the block."""
    for sentinel in trio.sentinels[1:]:
        sentinel.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for sentinel in trio.sentinels[1:]:
            sentinel.send_signal(signal.SIGCONT)


# In this time the client notices, asks and goes on without the Sentinels.
NOTICED = 4


def test_calls_keep_their_timeouts_without_a_majority(trio: SentinelTrio) -> None:
    longest = 0.0
    with hotcount.Redis(trio.url, timeout=0.3) as redis:
        counter = hotcount.Counter(redis)
        counter.add(KEY, timeout=PATIENT)
        with no_majority(trio):
            until = time.monotonic() + NOTICED
            while time.monotonic() < until:
                began = time.monotonic()
                counter.add(KEY)
                longest = max(longest, time.monotonic() - began)
                time.sleep(0.01)
    # Asking the Sentinels takes a second.
    assert longest < 0.7


async def test_a_loop_goes_on_without_a_majority(trio: SentinelTrio) -> None:
    longest = 0.0
    async with hotcount.aio.Redis(trio.url, timeout=5) as redis:
        counter = hotcount.aio.Counter(redis)
        await counter.add(KEY)
        with no_majority(trio):
            until = last = time.monotonic()
            until += NOTICED
            adds = 0
            while last < until:
                adding = asyncio.ensure_future(counter.add(KEY))
                await asyncio.sleep(0.01)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
                await adding
                adds += 1
    # Asking the Sentinels takes a second.
    assert longest < 0.7
    assert adds > 10
