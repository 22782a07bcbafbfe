"""Fixtures of the contract: every test that takes `votes` runs with every strategy, every test that
takes `limit_store` on every store.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import hotcount
import pytest
from hotcount import Database, Redis, WriteBehindCounter

from tests.support.limiters import IDS, OPTIONS
from tests.support.servers import RedisServer
from tests.support.sql_sessions import MariaDb, Postgres, Session, Sqlite
from tests.support.stores import AnyStore, Store
from tests.support.votes_strategies import WAYS, strategy, votes

__all__ = ["strategy", "votes"]

DATABASES = ("sqlite-file", "sqlite-memory", "postgresql", "mariadb")


@pytest.fixture(scope="session")
def sql_sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Session]]:
    """By database: what prepares its statements."""
    opened: dict[str, Session] = {
        "sqlite": Sqlite(tmp_path_factory.mktemp("sql") / "hotcount.db"),
        "postgresql": Postgres(request.getfixturevalue("postgres_server")),
        "mariadb": MariaDb(request.getfixturevalue("mariadb_server")),
    }
    yield opened
    for session in opened.values():
        session.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What limiters over databases and a strategy of votes leave out, and what takes long there."""
    left = []
    for item in items:
        chosen = getattr(item, "callspec", None)
        way = WAYS.get(chosen.params.get("strategy", "")) if chosen is not None else None
        if chosen is not None and way is not None and not way.cast_writes:
            if item.get_closest_marker("cast_writes") is not None:
                continue
            # Its votes are written by what writes batched's, which meets every database.
            if chosen.params.get("database") not in ("sqlite-file", None):
                item.add_marker(pytest.mark.long)
        if chosen is not None and chosen.params.get("limit_store") in DATABASES:
            algorithm = chosen.params.get("algorithm", "gcra")
            algorithm = chosen.params.get("options", {}).get("algorithm", algorithm)
            # They share their rows and transactions: one algorithm shows most of it, and
            # test_sql_limiter.py what servers do otherwise.
            if algorithm != "gcra" or chosen.params["limit_store"] != "sqlite-memory":
                item.add_marker(pytest.mark.long)
        left.append(item)
    items[:] = left


@pytest.fixture
def counter(counter_store: Store) -> hotcount.Counter:
    return hotcount.Counter(counter_store)


@pytest.fixture
def daily(counter_store: Store) -> hotcount.PeriodCounter:
    return hotcount.PeriodCounter(counter_store)


@pytest.fixture
def sets(counter_store: Store) -> hotcount.LiveSets:
    return hotcount.LiveSets(counter_store)


@pytest.fixture(params=OPTIONS, ids=IDS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of a Limiter."""
    return dict(request.param)


@pytest.fixture
def limiter(limit_store: AnyStore, options: dict[str, Any]) -> hotcount.Limiter:
    """A limiter of ten hits, in a window whose edge no run of the tests crosses."""
    return hotcount.Limiter(limit_store, "10/300 days", **options)


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[hotcount.Redis]:
    """A store whose keys a test can name."""
    with redis_server.redis(timeout=20, prefix=f"{uuid.uuid4().hex}:") as redis:
        yield redis


@pytest.fixture
def cache(redis: hotcount.Redis) -> hotcount.Redis:
    """The store of a WriteBehindCounter for adds that are not in SQL yet."""
    return redis


@pytest.fixture
def views(database: Database, cache: Redis) -> Iterator[WriteBehindCounter]:
    # A flush of its own accord sends again what it does not know to be in SQL.
    with hotcount.WriteBehindCounter(database, cache, flush_interval=60) as views:
        views.create_tables()
        yield views
