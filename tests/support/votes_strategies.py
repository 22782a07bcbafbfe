"""Votes with every strategy, for tests that hold for all of them."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import hotcount
import pytest


@dataclass(frozen=True)
class Way:
    """A strategy, and where it keeps what is not in the database."""

    strategy: str
    cache: str = "memory"
    # cast() returns when the vote is in the database. So it says what the vote was before, takes
    # versions, and refuses what the database refuses. Tests that need it are marked `cast_writes`.
    cast_writes: bool = True


WAYS = {
    "naive": Way("naive"),
    "slotted": Way("slotted"),
    "batched": Way("batched"),
    "cached-memory": Way("cached"),
    "cached-redis": Way("cached", "redis"),
    "cached-cluster": Way("cached", "cluster"),
    "write_behind": Way("write_behind", "redis", cast_writes=False),
}


class WrittenVotes(hotcount.Votes):
    """Of strategy write_behind; what reads waits until all that was cast is in the database."""


def _flush_before(name: str) -> None:
    read = getattr(hotcount.Votes, name)

    def flushed(self: hotcount.Votes, *args: Any, **options: Any) -> Any:
        assert self.flush(timeout=60).pending == 0
        return read(self, *args, **options)

    setattr(WrittenVotes, name, flushed)


for _name in ("count", "count_many", "get", "get_many", "voters", "tally", "top"):
    _flush_before(_name)

_caches: dict[str, hotcount.Memory | hotcount.Redis] = {}
_numbers = itertools.count()


@pytest.fixture(
    params=[
        pytest.param(name, marks=[] if way.cache == "memory" else [pytest.mark.server])
        for name, way in WAYS.items()
    ]
)
def strategy(request: pytest.FixtureRequest) -> Iterator[str]:
    way = WAYS[request.param]
    with hotcount.Memory() as memory:
        _caches["cached"] = memory
        if way.cache == "redis":
            server = request.getfixturevalue("redis_server")
            _caches[way.strategy] = hotcount.Redis(
                server.url, prefix=f"t{next(_numbers)}{{*}}?:", timeout=20
            )
        if way.cache == "cluster":
            cluster = request.getfixturevalue("redis_cluster")
            _caches[way.strategy] = hotcount.Redis(
                cluster.url, prefix=f"t{next(_numbers)}[*]?:", timeout=20
            )
        yield way.strategy
        while _caches:
            _caches.popitem()[1].close()


def cache_of(strategy: str) -> Any:
    """The one of the test's fixture."""
    return _caches.get(strategy)


def over_memory(database: hotcount.Database, strategy: Any, **options: Any) -> hotcount.Votes:
    """Votes whose cache, if their strategy has one, is in this process."""
    cache = hotcount.Memory() if strategy == "cached" else None
    return hotcount.Votes(database, cache, strategy, **options)


def make(database: hotcount.Database, strategy: Any, **options: Any) -> hotcount.Votes:
    kind = WrittenVotes if strategy == "write_behind" else hotcount.Votes
    return kind(database, cache_of(strategy), strategy, **options)


def make_votes(
    database: hotcount.Database, strategy: str, items: Iterable[Any] = (), **options: Any
) -> hotcount.Votes:
    votes = make(database, strategy, **options)
    votes.create_tables()
    votes.add_items(items)
    return votes


@pytest.fixture
def votes(database: hotcount.Database, strategy: str) -> hotcount.Votes:
    return make_votes(database, strategy, items=[1, 2, 3])


def shard_of(item: int, shards: int) -> int:
    """Where an item's votes or counts are in Redis: FNV-1a of 64 bits, modulo the shards."""
    hashed = 0xCBF29CE484222325
    for byte in str(item).encode():
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return hashed % shards


def is_consistent(votes: hotcount.Votes) -> bool:
    """No stored count disagrees with the votes, in whatever way this strategy stores it."""
    votes.flush()
    return votes.reconcile(dry_run=True) == []
