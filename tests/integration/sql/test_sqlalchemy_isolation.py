"""Votes and counts in the caller's transaction at every isolation level, and in none.

Two sessions meet in a forced order: the caller's takes its snapshot, then the other commits, then
the caller votes. What the call says and counts is then either right, or an error that the database
raised for the transaction as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount import Cast
from hotcount.integrations.sqlalchemy import (
    cast_vote,
    count,
    increment,
    increment_many,
    retract_vote,
    vote_count,
)
from sqlalchemy.orm import Session

from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides

STRATEGIES = ["naive", "slotted", "batched", "cached"]
LEVELS = [
    pytest.param(backend, level, id=f"{backend}-{level.lower().replace(' ', '-')}", marks=marks)
    for backend, levels, marks in (
        ("sqlite", ["SERIALIZABLE"], ()),
        (
            "postgresql",
            ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"],
            (pytest.mark.server,),
        ),
        (
            "mariadb",
            ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"],
            (pytest.mark.server,),
        ),
    )
    for level in levels
]

Where = sa.Connection | Session


def is_serialization_failure(error: sa.exc.DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) == "40001"


@contextmanager
def transaction(caller: Where, backend: str, level: str) -> Iterator[None]:
    """Commits; or rolls back where PostgreSQL may refuse to change what was changed since."""
    try:
        yield
        caller.commit()
    except sa.exc.DBAPIError as error:
        keeps_its_snapshot = backend == "postgresql" and level != "READ COMMITTED"
        if not (keeps_its_snapshot and is_serialization_failure(error)):
            raise
        caller.rollback()


@pytest.fixture
def sides(request: pytest.FixtureRequest, backend: str, database_path: Path) -> Iterator[BothSides]:
    sides = both_sides(request, backend, database_path)
    with sides.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE elsewhere (n INTEGER)")
    yield sides
    sides.close()


def begin(sides: BothSides, level: str, kind: str) -> Where:
    """A transaction that has taken its snapshot and locked nothing that voters touch."""
    engine = sides.engine.execution_options(isolation_level=level)
    where: Where = Session(engine) if kind == "session" else engine.connect()
    if sides.dialect != "sqlite":  # There a reader's snapshot forbids it to write.
        where.execute(sa.text("SELECT n FROM elsewhere")).all()
    return where


# What the other session does after the snapshot, what the caller does then, what that comes to.
Step = Callable[[hotcount.Votes, int], Any]
MEETINGS: dict[str, tuple[Step, Step, Callable[..., Cast], Cast]] = {
    "retracted twice, retract": (
        lambda votes, user: votes.cast(1, user),
        lambda votes, user: [votes.retract(1, user) for _ in range(2)],
        retract_vote,
        Cast(False, False, 0, 0),
    ),
    "cast twice, cast": (
        lambda votes, user: votes.retract(1, user),
        lambda votes, user: [votes.cast(1, user) for _ in range(2)],
        cast_vote,
        Cast(True, False, 1, 1),
    ),
    "cast, retract": (
        lambda votes, user: votes.retract(1, user),
        lambda votes, user: votes.cast(1, user),
        retract_vote,
        Cast(False, True, 1, 0),
    ),
    "first cast, cast": (
        lambda votes, user: None,
        lambda votes, user: votes.cast(1, user),
        cast_vote,
        Cast(True, False, 1, 1),
    ),
    "cast 5, cast": (
        lambda votes, user: votes.cast(1, user),
        lambda votes, user: votes.cast(1, user, 5),
        cast_vote,
        Cast(True, True, 5, 1),
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("backend", "level"), LEVELS)
def test_a_vote_that_changed_since_the_snapshot_is_counted_once(
    sides: BothSides, backend: str, level: str, strategy: str
) -> None:
    votes = make_votes(sides, strategy)
    user = 0
    for kind in ("session", "connection"):
        for name, (before, meanwhile, call, expected) in MEETINGS.items():
            user += 1
            before(votes, user)
            with begin(sides, level, kind) as caller:
                meanwhile(votes, user)
                with transaction(caller, backend, level):
                    assert call(caller, votes, 1, user) == expected, (kind, name)
            votes.flush()
            assert votes.reconcile(dry_run=True) == [], (kind, name)


@pytest.mark.parametrize(("backend", "level"), LEVELS)
def test_an_anonymous_vote_that_was_cast_since_the_snapshot_is_counted_once(
    sides: BothSides, backend: str, level: str
) -> None:
    votes = make_votes(sides, "batched")
    with begin(sides, level, "connection") as caller:
        votes.cast(1, None, 3, op_id="a")
        with transaction(caller, backend, level):
            assert cast_vote(caller, votes, 1, None, op_id="a") == Cast(True, False, 3, 3)
    assert int(votes.count(1)) == 3
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize(("backend", "level"), LEVELS)
def test_a_count_that_moved_since_the_snapshot_is_added_to(
    sides: BothSides, backend: str, level: str
) -> None:
    counter = hotcount.SlottedCounter(sides.database, slots=1)
    counter.create_table()
    for kind in ("session", "connection"):
        for key, there in (("old", True), ("new", False)):
            if there:
                counter.add(key + kind, 1)
            with begin(sides, level, kind) as caller:
                counter.add(key + kind, 10)
                added = 0
                with transaction(caller, backend, level):
                    increment(caller, counter, key + kind, 100)
                    added = 100
            assert counter.get(key + kind) == there + 10 + added


def engine_of(sides: BothSides, **options: Any) -> sa.Engine:
    return sa.create_engine(sides.engine.url, **options)


def told_the_engine(sides: BothSides) -> sa.Engine:
    return engine_of(sides, isolation_level="AUTOCOMMIT")


def told_its_options(sides: BothSides) -> sa.Engine:
    return engine_of(sides, execution_options={"isolation_level": "AUTOCOMMIT"})


def told_the_driver(sides: BothSides) -> sa.Engine:
    wanted: dict[str, Any] = {"autocommit": True}
    if sides.dialect == "sqlite":
        wanted = {"isolation_level": None}
    return engine_of(sides, connect_args=wanted)


def told_the_session(sides: BothSides) -> sa.Engine:
    """The connection behind SQLAlchemy's back, once it is pooled."""
    engine = engine_of(sides)

    @sa.event.listens_for(engine, "connect")
    def change(driver: Any, _: Any) -> None:
        if sides.dialect == "sqlite":
            driver.isolation_level = None
        elif sides.dialect == "postgresql":
            driver.autocommit = True
        else:
            with driver.cursor() as cursor:
                cursor.execute("SET autocommit = 1")

    return engine


@pytest.mark.parametrize(
    "make_engine", [told_the_engine, told_its_options, told_the_driver, told_the_session]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_autocommit_is_refused_wherever_it_was_asked_for(
    sides: BothSides, make_engine: Callable[[BothSides], sa.Engine]
) -> None:
    votes = make_votes(sides, "batched")
    counter = hotcount.SlottedCounter(sides.database)
    counter.create_table()
    engine = make_engine(sides)
    for where in (engine.connect(), Session(engine)):
        with where:
            for call in (
                lambda where=where: increment(where, counter, "k"),
                lambda where=where: increment_many(where, counter, {"k": 1}),
                lambda where=where: count(where, counter, "k"),
                lambda where=where: cast_vote(where, votes, 1, 7),
                lambda where=where: retract_vote(where, votes, 1, 7),
                lambda where=where: vote_count(where, votes, 1),
            ):
                with pytest.raises(hotcount.ConfigError, match="AUTOCOMMIT"):
                    call()
    engine.dispose()
    assert counter.get("k") == 0
    assert int(votes.count(1)) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocommit_of_one_connection_is_refused(sides: BothSides) -> None:
    votes = make_votes(sides, "batched")
    with sides.engine.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(hotcount.ConfigError, match="AUTOCOMMIT"):
            cast_vote(connection, votes, 1, 7)
    # The next one of the same pool is in none.
    with sides.engine.begin() as connection:
        assert cast_vote(connection, votes, 1, 7).changed
    assert int(votes.count(1)) == 1


@pytest.mark.parametrize("backend", [pytest.param("sqlite", id="sqlite")])
def test_an_sqlite_engine_whose_listener_begins_is_no_autocommit(sides: BothSides) -> None:
    """As SQLAlchemy's manual has it, for transactions that Python's sqlite3 leaves alone."""
    engine = engine_of(sides)

    @sa.event.listens_for(engine, "connect")
    def leave_alone(driver: Any, _: Any) -> None:
        driver.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin_now(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    votes = make_votes(sides, "batched")
    for where in (engine.connect(), Session(engine)):
        with where:
            cast_vote(where, votes, 1, 7)
            where.rollback()
            assert int(votes.count(1)) == 0
            cast_vote(where, votes, 1, 8)
            where.commit()
        assert votes.retract(1, 8).changed
    engine.dispose()
