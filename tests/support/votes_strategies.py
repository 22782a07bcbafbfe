"""Votes with every strategy, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hotcount
import pytest

# Strategies, and for cached the store that it counts in.
STRATEGIES = [
    "naive",
    "slotted",
    "batched",
    pytest.param("cached memory", id="cached-memory"),
    pytest.param("cached redis", id="cached-redis", marks=pytest.mark.server),
]

_caches: dict[str, hotcount.Memory | hotcount.Redis] = {}


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Iterator[str]:
    name = str(request.param)
    with hotcount.Memory() as memory:
        _caches["cached"] = memory
        if name == "cached redis":
            server = request.getfixturevalue("redis_server")
            _caches["cached"] = hotcount.Redis(server.url, prefix="t{*}?:", timeout=20)
        yield name.split()[0]
        _caches.pop("cached").close()


def make(database: hotcount.Database, strategy: str, **options: Any) -> hotcount.Votes:
    return hotcount.Votes(database, _caches.get(strategy), strategy, **options)  # type: ignore[arg-type]


def make_votes(database: hotcount.Database, strategy: str, **options: Any) -> hotcount.Votes:
    votes = make(database, strategy, **options)
    votes.create_tables()
    return votes


@pytest.fixture
def votes(database: hotcount.Database, strategy: str) -> hotcount.Votes:
    votes = make_votes(database, strategy)
    votes.add_items([1, 2, 3])
    return votes


def is_consistent(votes: hotcount.Votes) -> bool:
    """No stored count disagrees with the votes, in whatever way this strategy stores it."""
    votes.flush()
    return votes.reconcile(dry_run=True) == []
