"""A batch of votes whose deadline passes: when it returns, and what its votes are told."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.fired import fired
from tests.support.server_process import ServerProcess
from tests.support.together import join
from tests.support.votes_strategies import cache_of, make_votes

ITEMS = 10
VOTES = 50_000
# One vote by each user.
USERS = range(VOTES)
CHOSEN = [user % ITEMS for user in USERS]
TIMEOUT_S = 0.6
# Before a batch in an SQLite file is done.
STOPS_AFTER_S = 0.05
# The promise is 0.1 s; other tests run beside this one.
LATE_S = 0.4
# Strategies that write a batch item by item.
BY_ITEM = ("batched", "cached")
# Votes whose COMMIT was sent: max_batch, or a portion of write_behind.
MOST_IN_DOUBT = 2000

on_databases = pytest.mark.parametrize(
    "database",
    [
        pytest.param("sqlite-file"),
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ],
    indirect=True,
)
Disturb = Callable[[ExitStack], None]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another session keeps the write lock."""
    with sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False) as other:

        def begins() -> bool:
            with suppress(sqlite3.OperationalError):
                other.execute("BEGIN IMMEDIATE")
            return other.in_transaction

        # A batch leaves the lock for some microseconds between two transactions. SQLite's own
        # attempts, every 100 ms, meet none of these moments.
        until = time.monotonic() + 20
        while not begins():
            assert time.monotonic() < until, "the lock was never free"
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def votes(database: hotcount.Database, strategy: str) -> hotcount.Votes:
    return make_votes(database, strategy, items=range(ITEMS))


@pytest.fixture(params=["healthy", "stopped"])
def disturb(request: pytest.FixtureRequest, strategy: str) -> Disturb:
    """Stops the server that the votes go to, until the end of the stack."""
    kind = request.node.callspec.params["database"]
    if request.param == "healthy":
        return lambda _: None
    if kind == "sqlite-file" and strategy != "write_behind":
        path = request.getfixturevalue("database_path")
        return lambda stack: stack.enter_context(locked(path))
    name = {"postgresql": "postgres_server"}.get(kind, "mariadb_server")
    server: ServerProcess = request.getfixturevalue(
        "redis_server" if strategy == "write_behind" else name
    )
    return lambda stack: stack.enter_context(server.stopped())


def check(votes: hotcount.Votes, strategy: str, disturb: Disturb, cast: Callable[[], Any]) -> None:
    """cast() casts one vote by each user."""
    with ExitStack() as stack:
        timer = threading.Timer(STOPS_AFTER_S, disturb, [stack])
        timer.start()
        begun = time.monotonic()
        errors = cast().errors
        took = time.monotonic() - begun
        timer.join()
    assert took <= TIMEOUT_S + LATE_S
    if errors:
        fired("deadline passed")
    assert {type(error) for error in errors.values()} <= {
        hotcount.DeadlineError,
        hotcount.OutcomeUnknownError,
    }
    unknown = [k for k, each in errors.items() if isinstance(each, hotcount.OutcomeUnknownError)]
    assert len(unknown) <= MOST_IN_DOUBT
    if strategy != "write_behind":
        # In the order in which they are written.
        order = sorted(USERS, key=CHOSEN.__getitem__) if strategy in BY_ITEM else USERS
        assert sorted(errors) == sorted(order[VOTES - len(errors) :]), "none of them at random"
    there = sum(votes.count_many(range(ITEMS), consistency="exact", timeout=20).value)
    assert VOTES - len(errors) <= there <= VOTES - len(errors) + len(unknown)


@on_databases
def test_a_batch_ends_by_a_deadline(votes: hotcount.Votes, strategy: str, disturb: Disturb) -> None:
    options: Any = {"errors": "return", "timeout": TIMEOUT_S}
    check(votes, strategy, disturb, lambda: votes.cast_many(CHOSEN, USERS, **options))


@pytest.mark.parametrize("database", ["sqlite-file", "postgresql"], indirect=True)
@pytest.mark.parametrize("disturb", ["stopped"], indirect=True)
@pytest.mark.server
def test_a_batch_of_an_event_loop_ends_at_its_deadline(
    votes: hotcount.Votes, database: hotcount.Database, strategy: Any, disturb: Disturb
) -> None:
    async def cast() -> Any:
        awaited = aio.Votes(database, cache_of(strategy), strategy)
        return await awaited.cast_many(CHOSEN, USERS, errors="return", timeout=TIMEOUT_S)

    check(votes, strategy, disturb, lambda: asyncio.run(cast()))


def test_imports_at_once_all_pass(database_path: Path) -> None:
    with hotcount.Votes(f"sqlite:///{database_path}", max_queue=500, max_batch=100) as votes:
        votes.create_tables()
        votes.add_items(range(ITEMS))
        failed: list[Exception] = []

        def load(number: int) -> None:
            users = range(number * 10_000, (number + 1) * 10_000)
            try:
                votes.cast_many([user % ITEMS for user in users], users, timeout=60)
            except hotcount.BatchError as error:
                failed.append(error)

        join(threading.Thread(target=load, args=(number,)) for number in range(8))
        assert failed == []
        assert sum(votes.count_many(range(ITEMS)).value) == 80_000
