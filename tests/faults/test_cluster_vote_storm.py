"""Votes that are counted or wait in a cluster of six nodes to which everything happens:

    .venv/bin/python -m pytest -m long -s tests/faults/test_cluster_vote_storm.py

It prints what the storm cost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import hotcount
import hotcount.aio
import psycopg
import pytest
from redis.crc import key_slot

from tests.support.cluster_storm import Storm
from tests.support.eventually import eventually
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import PostgresServer, valkey_program
from tests.support.together import beside
from tests.support.votes_strategies import shard_of

pytestmark = [pytest.mark.server, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(400)]

ITEMS = range(1, 1001)
VOTES_A_SECOND = 5_000
VOTERS = 32
BURST = 10
# How many streams of waiting votes there are.
STREAMS = 16
Strategy = Literal["cached", "write_behind"]
# The item and the vote table of each.
TABLES: dict[Strategy, tuple[str, str]] = {
    "cached": ("post", "post_vote"),
    "write_behind": ("film", "film_vote"),
}
NOT_APPLIED = (hotcount.UnavailableError, hotcount.DeadlineError)
Vote = tuple[int, int]


@dataclass
class Told:
    """What the voters of one strategy were told."""

    acknowledged: dict[Vote, float] = field(default_factory=dict)
    unknown: set[Vote] = field(default_factory=set)
    failed: set[Vote] = field(default_factory=set)
    wrong: list[BaseException] = field(default_factory=list)


class Load:
    """Voters of both strategies in an event loop of their own thread; each user votes once."""

    def __init__(self, votes: dict[Strategy, hotcount.aio.Votes]) -> None:
        self.told = {strategy: Told() for strategy in votes}
        self._votes = votes
        self._users = itertools.count(1)
        self._stop = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()

    async def _main(self) -> None:
        await asyncio.gather(
            *(
                self._vote(strategy, seed)
                for strategy in self._votes
                for seed in range(VOTERS // len(self._votes))
            )
        )

    async def _vote(self, strategy: Strategy, seed: int) -> None:
        draw = random.Random(seed)
        due = time.monotonic()
        while not self._stop:
            items = (draw.choice(ITEMS) for _ in range(BURST))
            await asyncio.gather(*(self._cast(strategy, item) for item in items))
            # What it could not cast meanwhile is not made up for.
            due = max(due + BURST * VOTERS / VOTES_A_SECOND, time.monotonic() - 0.1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _cast(self, strategy: Strategy, item: int) -> None:
        told = self.told[strategy]
        vote = item, next(self._users)
        try:
            await self._votes[strategy].cast(*vote, timeout=15)
        except hotcount.OutcomeUnknownError:
            told.unknown.add(vote)
        except NOT_APPLIED:
            told.failed.add(vote)
        except hotcount.HotcountError as error:
            told.wrong.append(error)
        else:
            told.acknowledged[vote] = time.monotonic()


def rows(url: str, strategy: Strategy) -> set[Vote]:
    with psycopg.connect(url) as connection:
        return set(connection.execute(f"SELECT item_id, user_id FROM {TABLES[strategy][1]}"))


@pytest.fixture
def url(own_postgres: PostgresServer) -> str:
    return own_postgres.create_database().url


@pytest.fixture(params=["redis", "valkey"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisCluster]:
    program = valkey_program() if request.param == "valkey" else None
    with RedisCluster(tmp_path, program=program, relayed=True).started() as cluster:
        yield cluster


def test_a_storm_loses_no_vote_of_cached_and_its_counts_are_right_afterwards(
    request: pytest.FixtureRequest, cluster: RedisCluster, url: str
) -> None:
    with (
        hotcount.Database(url, timeout=15) as database,
        hotcount.Redis(cluster.url, timeout=15) as store,
    ):
        votes = {
            strategy: hotcount.Votes(database, store, strategy, item_table=items, vote_table=table)
            for strategy, (items, table) in TABLES.items()
        }
        for each in votes.values():
            each.create_tables()
            each.add_items(ITEMS)
        cached, waiting = votes.values()
        # Makes the streams, and gives them their name.
        waiting.cast_many(ITEMS, [0] * len(ITEMS))
        (name,) = {
            key.split("{")[1].split(":")[0]
            for node in cluster.nodes
            for key in map(bytes.decode, node.client.keys("waiting:*"))
        }
        slots = [key_slot(f"waiting:{{{name}:{shard}}}".encode()) for shard in range(STREAMS)]
        storm = Storm(cluster, slots, migrates="valkey" in request.node.name)
        loads = {
            strategy: hotcount.aio.Votes(
                database, store, strategy, item_table=items, vote_table=table
            )
            for strategy, (items, table) in TABLES.items()
        }
        began = time.monotonic()
        workers = [each.sync_worker() for each in votes.values()]
        with beside(*(worker.run for worker in workers)):
            with Load(loads) as load:
                storm.rage()
                time.sleep(2)
            seconds = time.monotonic() - began
            found = rows(url, "cached")
            tally = Counter(item for item, _ in found)
            counts = [tally[item] for item in ITEMS]

            def is_right() -> bool:
                return (
                    list(cached.count_many(ITEMS).value) == counts
                    and cached.reconcile(dry_run=True) == []
                )

            ended = time.monotonic()
            eventually(is_right, 60)
            settled = time.monotonic() - ended
            eventually(lambda: waiting.flush(timeout=30).pending == 0, 60)
        recounted = workers[0].stats()["recounted"]
        written = rows(url, "write_behind") - {(item, 0) for item in ITEMS}
    told, behind = load.told["cached"], load.told["write_behind"]
    missing = set(behind.acknowledged) - written
    may_lose = {
        (item, user)
        for (item, user), at in behind.acknowledged.items()
        if any(event.may_lose(at, shard_of(item, STREAMS)) for event in storm.events)
    }
    print(
        json.dumps(
            {
                "engine": request.node.callspec.id,
                "seconds": round(seconds, 1),
                "counts right after": round(settled, 2),
                "recounted items": recounted,
                **{
                    strategy: {
                        "acknowledged": len(each.acknowledged),
                        "unknown": len(each.unknown),
                        "failed": len(each.failed),
                    }
                    for strategy, each in load.told.items()
                },
                "lost": len(missing),
                "may be lost": len(may_lose),
            },
            indent=1,
        )
    )
    assert not told.wrong
    assert not behind.wrong
    acknowledged = set(told.acknowledged)
    assert acknowledged <= found <= acknowledged | told.unknown
    assert written <= set(behind.acknowledged) | behind.unknown
    assert missing <= may_lose
    # They voted throughout, and some counts were in doubt.
    assert min(len(acknowledged), len(behind.acknowledged)) > 10_000
    assert recounted > 0
