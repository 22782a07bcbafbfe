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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import hotcount
import hotcount.aio
import pytest
from redis.crc import key_slot

from tests.support.eventually import BUSY, eventually
from tests.support.redis_cluster import ClusterNode, RedisCluster
from tests.support.servers import valkey_program

pytestmark = [
    pytest.mark.server,
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.timeout(300),
]

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
# An answer is in the socket for so long at most when its primary stops.
IN_SOCKETS = 0.1
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


@dataclass
class Event:
    """What happened, and the keys whose acknowledged adds it may lose, from when to when."""

    what: str
    copied: float
    began: float
    struck: set[int] = field(default_factory=set)
    lost_until: float = 0.0
    served: float | None = None
    refused: float | None = None
    lasted: float = 0.0

    def may_lose(self, at: float, key: int) -> bool:
        return key in self.struck and self.copied <= at <= self.lost_until


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


class Storm:
    def __init__(self, cluster: RedisCluster, *, migrates: bool) -> None:
        self.cluster = cluster
        self.migrates = migrates
        self.events: list[Event] = []
        self.slots = [key_slot(f"count:{key}".encode()) for key in KEYS]

    def _index(self, primary: int) -> int:
        """The node that is the primary of this pair now."""
        for index in (primary, primary + self.cluster.primaries):
            if self.cluster.nodes[index].client.info("replication")["role"] == "master":
                return index
        raise AssertionError("a pair has no primary")

    def _begin(self, what: str, index: int) -> Event:
        self.cluster.wait_ok()
        time.sleep(1)
        port = self.cluster.nodes[index].port
        owners = self.cluster.owners()
        struck = {key for key, slot in enumerate(self.slots) if owners[slot] == port}
        copied = self._copied()
        event = Event(what, copied, time.monotonic(), struck)
        self.events.append(event)
        return event

    def _copied(self) -> float:
        """A time; what was acknowledged before is on every replica."""
        asked = time.monotonic()
        offsets = {
            node: node.client.info("replication")["master_repl_offset"]
            for node in self.cluster.alive()
        }

        def has_all(node: ClusterNode) -> bool:
            info = node.client.info("replication")
            if info["role"] != "master":
                return bool(info["master_link_status"] == "up")
            copies = [info[f"slave{n}"]["offset"] for n in range(info["connected_slaves"])]
            return bool(copies) and all(offset >= offsets[node] for offset in copies)

        eventually(lambda: all(has_all(node) for node in offsets))
        return asked

    def _watch(self, event: Event, index: int, *, reaches: bool = False) -> None:
        """Until its replica serves; and, if clients reach it, until it refuses."""
        heir = self.cluster.nodes[(index + 3) % 6]
        old = self.cluster.nodes[index]

        def seen() -> bool:
            now = time.monotonic()
            if event.refused is None and (not reaches or not is_ok(old)):
                event.refused = now if reaches else event.began
            if event.served is None:
                is_primary = heir.client.info("replication")["role"] == "master"
                event.served = now if is_primary and is_ok(heir) else None
            return event.served is not None and event.refused is not None

        eventually(seen, 30)
        assert event.refused is not None
        event.lost_until = event.refused + IN_SOCKETS

    def reshard(self) -> None:
        source, target = self._index(0), self._index(1)
        own = [
            slot
            for slot, port in enumerate(self.cluster.owners())
            if port == self.cluster.nodes[source].port
        ]
        slots = range(own[0], own[0] + 1000)
        event = self._begin("reshard of 1,000 slots", source)
        move = self.cluster.migrate if self.migrates else self.cluster.reshard
        move(source, target, slots)
        event.lasted = time.monotonic() - event.began

    def kill(self) -> None:
        index = self._index(0)
        event = self._begin("primary killed", index)
        self.cluster.kill(index)
        self._watch(event, index)
        self.cluster.nodes[index].start()

    def pause(self) -> None:
        index = self._index(1)
        event = self._begin("primary paused for 10 s", index)
        self.cluster.pause(index)
        self._watch(event, index)
        time.sleep(max(0.0, event.began + 10 - time.monotonic()))
        self.cluster.resume(index)

    def fail_over(self) -> None:
        index = self._index(2)
        event = self._begin("planned failover", index)
        self.cluster.fail_over((index + 3) % 6)
        event.served = time.monotonic()

    def cut_off(self) -> None:
        index = self._index(2)
        event = self._begin("primary cut off for 8 s", index)
        self.cluster.cut_off(index)
        self._watch(event, index, reaches=True)
        time.sleep(max(0.0, event.began + 8 - time.monotonic()))
        self.cluster.let_back()


def is_ok(node: ClusterNode) -> bool:
    return "cluster_state:ok" in node.run("CLUSTER", "INFO")


def first_success(event: Event, told: Told) -> float | None:
    """Of the struck keys, after one server alone takes their writes."""
    if event.served is None:
        return None
    since = max(event.served, event.refused or 0.0)
    return min((at - since for at, key in told.acknowledged if at > since and key in event.struck))


@pytest.mark.parametrize("engine", ["redis", "valkey"])
def test_a_storm_loses_swaps_and_doubles_nothing(tmp_path: Path, engine: str) -> None:
    program = valkey_program() if engine == "valkey" else None
    with RedisCluster(tmp_path, program=program, relayed=True).started() as cluster:
        storm = Storm(cluster, migrates=engine == "valkey")
        happenings: list[Callable[[], None]] = [
            *(storm.reshard, storm.kill, storm.pause, storm.fail_over, storm.cut_off)
        ]
        with hotcount.Redis(cluster.url, timeout=15) as store:
            counter = hotcount.Counter(store)
            counter.add_many(KEYS, [(number + 1) * BASE for number in range(len(KEYS))])
            with Load(store) as load:
                for happening in happenings:
                    happening()
                cluster.wait_ok()
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
