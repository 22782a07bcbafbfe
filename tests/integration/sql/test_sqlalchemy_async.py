"""Counts and votes in an AsyncSession's own transaction, by asynchronous drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Cast
from hotcount.integrations import sqlalchemy as calls
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)

from tests.support.eventually import eventually
from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BothSides, both_sides

SERVER = pytest.mark.server
DRIVERS = [
    pytest.param("sqlite", "sqlite+aiosqlite", id="aiosqlite"),
    pytest.param("postgresql", "postgresql+psycopg_async", id="psycopg", marks=SERVER),
    pytest.param("postgresql", "postgresql+asyncpg", id="asyncpg", marks=SERVER),
    pytest.param("mariadb", "mysql+asyncmy", id="asyncmy-mariadb", marks=SERVER),
]


def asynchronous(sides: BothSides, driver: str) -> AsyncEngine:
    """Over the same database as `sides`."""
    url, arguments = sides.engine.url.set(drivername=driver), {}
    if driver.endswith("asyncpg"):  # It has no `options`.
        path = str(url.query["options"]).partition("search_path=")[2]
        arguments = {"server_settings": {"search_path": path}}
        url = url.difference_update_query(["options"])
    return create_async_engine(url, connect_args=arguments)


@asynccontextmanager
async def opened(engine: AsyncEngine, how: str) -> AsyncIterator[Any]:
    if how == "connection":
        async with engine.connect() as connection:
            yield connection
    elif how == "scoped":
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
        yield scoped
        await scoped.remove()
    else:
        async with AsyncSession(engine) as session:
            yield session
    await engine.dispose()


@pytest.mark.parametrize("how", ["session", "connection", "scoped"])
@pytest.mark.parametrize(("backend", "driver"), DRIVERS)
async def test_every_call_is_awaited_and_joins_the_asynchronous_transaction(
    request: pytest.FixtureRequest, database_path: Path, backend: str, driver: str, how: str
) -> None:
    with closing(both_sides(request, backend, database_path)) as sides:
        votes = make_votes(sides, "batched", fold_interval=0.05)
        counter = hotcount.SlottedCounter(sides.database)
        counter.create_table()
        async with opened(asynchronous(sides, driver), how) as where:
            assert await calls.cast_vote(where, votes, 1, 1, 3) == Cast(True, True, 0, 3)
            anonymous = await calls.cast_vote(where, votes, item=1, user=None, op_id="once")
            assert anonymous == Cast(True, True, 0, 1)
            await calls.increment(where, counter, "a", 5)
            await where.commit()
            await calls.cast_vote(where, votes, 2, 1)
            await calls.increment_many(where, counter, {"a": 2, "b": 1})
            assert await calls.count(where, counter, "a") == 7
            assert await calls.vote_count(where, votes, 1) == 4
            assert await calls.get_vote(where, votes, 1, 1) == 3
            assert await calls.get_votes(where, votes, [1, 2, 3], 1) == [3, 1, 0]
            assert await calls.voters(where, votes, 2) == [(1, 1)]
            retracted = await calls.retract_vote(where, votes, 1, 1)
            assert retracted == Cast(False, True, 3, 0)
            with pytest.raises(hotcount.CounterOverflowError):
                await calls.increment(where, counter, "a", 2**63 - 1)
            nested = await where.begin_nested()
            await calls.cast_vote(where, votes, 1, 2)
            await nested.rollback()
            assert await calls.get_vote(where, votes, 1, 2) == 0
            await where.rollback()
        eventually(lambda: sides.run("SELECT vote_count FROM item WHERE id = 1") == [(4,)])
        assert (int(votes.count(1)), counter.get("a"), counter.get("b")) == (4, 5, 0)
        assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize(("backend", "driver"), DRIVERS)
async def test_a_connection_in_autocommit_is_refused(
    request: pytest.FixtureRequest, database_path: Path, backend: str, driver: str
) -> None:
    with closing(both_sides(request, backend, database_path)) as sides:
        votes = make_votes(sides, "naive")
        engine = asynchronous(sides, driver).execution_options(isolation_level="AUTOCOMMIT")
        async with opened(engine, "session") as session:
            with pytest.raises(hotcount.ConfigError, match="AUTOCOMMIT"):
                await calls.cast_vote(session, votes, 1, 1)
        assert votes.count(1) == 0


@pytest.mark.parametrize(("backend", "driver"), DRIVERS)
def test_the_url_of_an_asynchronous_engine_opens_the_database(
    request: pytest.FixtureRequest, database_path: Path, backend: str, driver: str
) -> None:
    with closing(both_sides(request, backend, database_path)) as sides:
        rest = sides.url.partition("://")[2]
        with hotcount.Votes(f"{driver}://{rest}", missing_items="create") as votes:
            votes.create_tables()
            votes.cast(1, 1)
        assert sides.run("SELECT item_id, user_id FROM vote") == [(1, 1)]
