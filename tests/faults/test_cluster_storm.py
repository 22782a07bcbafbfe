"""Adds and limits on a cluster of six nodes to which everything happens, one thing after another:

    .venv/bin/python -m pytest -m long -s tests/faults/test_cluster_storm.py

It prints what each event cost.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import hotcount
import hotcount.aio
import pytest
from redis.crc import key_slot

from tests.support.cluster_storm import Event, Storm
from tests.support.eventually import BUSY
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import valkey_program

pytestmark = [pytest.mark.server, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(300)]

KEYS = [f"k{number}" for number in range(1000)]
# The counter of key i begins at i + 1 times this, so a reply tells whose it is.
BASE = 10**9
ADDS_A_SECOND = 20_000
ADDERS = 64
BURST = 10
HITTERS = 8
HITS_A_SECOND = 2_000
LIMITED = [f"u{number}" for number in range(50)]
LIMIT = 20
LATE = (hotcount.UnavailableError, hotcount.DeadlineError, hotcount.OutcomeUnknownError)


@dataclass
class Told:
    """What callers were told."""

    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    unknown: Counter[int] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    swapped: int = 0
    admitted: Counter[str] = field(default_factory=Counter)
    wrong: list[BaseException] = field(default_factory=list)


class Load:
    """Callers in an event loop of their own thread."""

    def __init__(self, store: hotcount.Redis) -> None:
        self.told = Told()
        self.seconds = 0.0
        self._stop = False
        self._store = store
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()

    async def _main(self) -> None:
        began = time.monotonic()
        callers = [self._add(seed) for seed in range(ADDERS)]
        callers += [self._hit(seed) for seed in range(HITTERS)]
        await asyncio.gather(*callers)
        self.seconds = time.monotonic() - began

    async def _add(self, seed: int) -> None:
        counter = hotcount.aio.Counter(self._store)
        draw, told = random.Random(seed), self.told
        due = time.monotonic()
        while not self._stop:
            for _ in range(BURST):
                key = draw.randrange(len(KEYS))
                try:
                    value = await counter.add(KEYS[key])
                except hotcount.OutcomeUnknownError:
                    told.unknown[key] += 1
                except LATE as error:
                    told.failed[type(error).__name__] += 1
                except hotcount.HotcountError as error:
                    told.wrong.append(error)
                else:
                    told.acknowledged.append((time.monotonic(), key))
                    told.swapped += value // BASE != key + 1
            # What it could not add meanwhile is not made up for.
            due = max(due + BURST * ADDERS / ADDS_A_SECOND, time.monotonic() - 0.1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _hit(self, seed: int) -> None:
        one = hotcount.aio.Limiter(self._store, f"{LIMIT}/second")
        other = hotcount.aio.Limiter(self._store, "1000000/second", name="all")
        draw, told = random.Random(seed), self.told
        while not self._stop:
            for _ in range(BURST):
                key = draw.choice(LIMITED)
                try:
                    if draw.random() < 0.1:
                        hits = [(one, key, 1), (other, draw.choice(LIMITED), 1)]
                        allowed = bool(await hotcount.aio.hit_all(hits))
                    else:
                        allowed = bool(await one.hit(key))
                except LATE as error:
                    told.failed[type(error).__name__] += 1
                except hotcount.HotcountError as error:
                    told.wrong.append(error)
                else:
                    told.admitted[key] += allowed
            await asyncio.sleep(BURST * HITTERS / HITS_A_SECOND)


def first_success(event: Event, told: Told) -> float | None:
    """Seconds from one server's taking over all writes to the first success of a struck key."""
    if event.served is None:
        return None
    since = max(event.served, event.refused or 0.0)
    return min((at - since for at, key in told.acknowledged if at > since and key in event.struck))


@pytest.mark.parametrize("engine", ["redis", "valkey"])
def test_a_storm_loses_swaps_and_doubles_nothing(tmp_path: Path, engine: str) -> None:
    program = valkey_program() if engine == "valkey" else None
    with RedisCluster(tmp_path, program=program, relayed=True).started() as cluster:
        slots = [key_slot(f"count:{key}".encode()) for key in KEYS]
        storm = Storm(cluster, slots, migrates=engine == "valkey")
        with hotcount.Redis(cluster.url, timeout=15) as store:
            counter = hotcount.Counter(store)
            counter.add_many(KEYS, [(number + 1) * BASE for number in range(len(KEYS))])
            with Load(store) as load:
                storm.rage()
                time.sleep(2)
            values = counter.get_many(KEYS).tolist()
    told = load.told
    acknowledged: Counter[int] = Counter(key for _, key in told.acknowledged)
    lost, may_lose = audit(storm.events, told, values)
    report = {
        "engine": engine,
        "seconds": round(load.seconds, 1),
        "acknowledged adds": acknowledged.total(),
        "unknown adds": told.unknown.total(),
        "failed calls": dict(told.failed),
        "admitted hits": told.admitted.total(),
        "lost adds": lost,
        "adds that may be lost": may_lose,
        "swapped replies": told.swapped,
        "wrong errors": len(told.wrong),
        "events": [
            {
                "what": event.what,
                "served after": event.served and round(event.served - event.began, 2),
                "refused after": event.refused and round(event.refused - event.began, 2),
                "first success": first and round(first, 3),
                "lasted": round(event.lasted, 2),
            }
            for event in storm.events
            for first in [first_success(event, told)]
        ],
    }
    print(json.dumps(report, indent=1))
    assert not told.wrong
    assert told.swapped == 0
    for event in storm.events:
        first = first_success(event, told)
        assert first is None or first < 0.3 + BUSY, event.what
    for key, admitted in told.admitted.items():
        # A new primary may admit again what its predecessor had not sent it.
        again = sum(
            LIMIT * (2 + max(0.0, event.lost_until - event.began))
            for event in storm.events
            if event.lost_until
        )
        assert admitted <= LIMIT * (load.seconds + 1) + again, key


def audit(events: list[Event], told: Told, values: list[int]) -> tuple[int, int]:
    """Each counter lies between what was acknowledged and that with what is unknown; less no more
    than what a primary acknowledged and could not send to its replica. Returns how many adds are
    missing, and how many may be."""
    known: Counter[int] = Counter(key for _, key in told.acknowledged)
    losable: Counter[int] = Counter(
        key for at, key in told.acknowledged if any(event.may_lose(at, key) for event in events)
    )
    lost = 0
    for key, value in enumerate(values):
        count = value - (key + 1) * BASE
        assert known[key] - losable[key] <= count <= known[key] + told.unknown[key], (
            KEYS[key],
            known[key],
            losable[key],
            told.unknown[key],
            count,
        )
        lost += max(0, known[key] - count)
    return lost, losable.total()
