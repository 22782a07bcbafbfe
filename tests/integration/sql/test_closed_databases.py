"""Calls that wait for a connection or a lock while their database is closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.eventually import eventually
from tests.support.postgres_votes import Background, in_background
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides

CALLERS = range(1, 7)
SOON = 3.0
TIMEOUT = 19  # Not that of `sides`, with which these databases would be shared.


@pytest.fixture(params=BACKENDS)
def sides(request: pytest.FixtureRequest, database_path: Path) -> Iterator[BothSides]:
    with closing(both_sides(request, request.param, database_path)) as made:
        yield made


@contextmanager
def locked(sides: BothSides) -> Iterator[None]:
    """Another client holds the row of item 1; in SQLite the file."""
    sqlite = sides.dialect == "sqlite"
    with sides.engine.connect() as other:
        other.exec_driver_sql(
            "BEGIN IMMEDIATE" if sqlite else "SELECT id FROM item WHERE id = 1 FOR UPDATE"
        )
        yield
        other.rollback()


def voters(sides: BothSides) -> set[int]:
    return {user for (user,) in sides.run("SELECT user_id FROM vote WHERE item_id = 1")}


def in_flight(database: hotcount.Database, call: Callable[[int], Any]) -> list[Background]:
    """Calls under way: the first has the only connection for writing, the others wait for it."""
    before = database.stats()["statements"]
    first = in_background(partial(call, 1))
    eventually(lambda: database.stats()["statements"] > before)
    others = [in_background(partial(call, caller)) for caller in CALLERS[1:]]
    time.sleep(0.2)
    return [first, *others]


def split(outcomes: list[Any]) -> tuple[set[int], set[int]]:
    """The callers that were served, and those that were refused with a ClosedError."""
    refused = {n for n, each in enumerate(outcomes, 1) if isinstance(each, hotcount.ClosedError)}
    served = {n for n, each in enumerate(outcomes, 1) if not isinstance(each, Exception)}
    assert served | refused == set(CALLERS), outcomes
    return served, refused


@pytest.mark.parametrize("strategy", ["naive", "slotted"])
def test_a_vote_that_waits_for_a_connection_is_refused_at_close(
    sides: BothSides, strategy: Any
) -> None:
    make_votes(sides, strategy).close()
    database = hotcount.Database(sides.url, timeout=TIMEOUT, max_writers=1)
    votes = hotcount.Votes(database, strategy=strategy)
    with locked(sides):
        calls = in_flight(database, lambda user: votes.cast(1, user))
        database.close()
        assert all(call.is_over(SOON) for call in calls[1:])
        assert not calls[0].is_over()
    served, _ = split([call() for call in calls])
    assert served == {1} == voters(sides)


def test_a_vote_in_the_queue_is_refused_at_close_and_none_is_lost(sides: BothSides) -> None:
    make_votes(sides, "batched").close()
    database = hotcount.Database(sides.url, timeout=TIMEOUT, max_writers=1)
    votes = hotcount.Votes(database, strategy="batched", max_batch=2)
    with locked(sides):
        calls = in_flight(database, lambda user: votes.cast(1, user))
        database.close()
        time.sleep(0.2)
    assert all(call.is_over(SOON) for call in calls)
    served, refused = split([call() for call in calls])
    assert refused
    assert served == voters(sides)


@pytest.mark.parametrize("strategy", ["naive", "batched"])
def test_a_task_that_waits_for_a_connection_is_refused_at_close(
    sides: BothSides, strategy: Any
) -> None:
    make_votes(sides, strategy).close()
    # Otherwise one transaction may have room for all callers.
    batch: dict[str, Any] = {"max_batch": 2} if strategy == "batched" else {}

    async def play() -> list[Any]:
        database = hotcount.aio.Database(sides.url, timeout=TIMEOUT, max_writers=1)
        votes = hotcount.aio.Votes(database, strategy=strategy, **batch)
        with locked(sides):
            tasks = [asyncio.create_task(votes.cast(1, user)) for user in CALLERS]
            await asyncio.sleep(0.3)
            await database.aclose()
            await asyncio.sleep(0.2)
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON)

    served, refused = split(asyncio.run(play()))
    assert refused
    assert served == voters(sides)


@pytest.mark.server
def test_a_fold_that_finds_its_database_closed_warns_of_nothing(
    postgres_database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    make_votes(postgres_database, "batched").close()
    database = hotcount.Database(postgres_database.url, timeout=20)
    votes = hotcount.Votes(database, strategy="batched", fold_interval=0.1)
    with postgres_database.connect() as other:
        other.execute("SELECT id FROM item WHERE id = 2 FOR NO KEY UPDATE")
        votes.cast(2, 1)  # No fold gets at its item.
        with postgres_database.connect() as another:
            another.execute("SELECT id FROM item WHERE id = 1 FOR UPDATE")
            vote = in_background(lambda: votes.cast(1, 1))
            assert not vote.is_over(0.3)
            database.close()
            assert not vote.is_over(0.5)
    vote()
    assert "fold" not in caplog.text
