"""Votes that others delete, while no process votes: when item.vote_count is right again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.eventually import eventually
from tests.support.journal_side import TABLES, JournalSide
from tests.support.postgres_votes import in_background
from tests.support.programs import run_python
from tests.support.servers import PostgresDatabase, RedisServer
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import in_child

# The documents promise 6 s; the rest is for a busy machine.
PROMISE = 6 + 9
VOTERS = 5
# So that votes for item 1 pass and a fold does not.
HOLD = {
    "postgresql": "UPDATE item SET vote_count = vote_count WHERE id = 1",
    "mysql": "SELECT id FROM item WHERE id = 1 LOCK IN SHARE MODE",
}

Use = Callable[[hotcount.Votes], Any]


def names(number: int) -> dict[str, Any]:
    return {"item_table": f"item{number}", "vote_table": f"vote{number}"}


def make(
    database: hotcount.Database, cache: Any = None, strategy: Any = "batched", **tables: Any
) -> None:
    """The tables, with VOTERS votes for item 1 in its own count, by an object that is gone then."""
    votes = hotcount.Votes(database, cache, strategy, fold_interval=0.05, **tables)
    votes.create_tables(outside_writes="deletes", timeout=20)
    votes.add_items([1])
    votes.cast_many([1] * VOTERS, range(1, VOTERS + 1), timeout=20)
    eventually(lambda: votes.flush(20).pending == 0)


def vote(votes: hotcount.Votes) -> None:
    """A vote that was folded before the call returns, by this object or by the one that leaves."""
    votes.cast(1, 100)
    votes.retract(1, 100)
    eventually(lambda: not votes.stats()["pending_rows"])


async def count_in_a_loop(votes: hotcount.aio.Votes) -> None:
    await votes.count(1)


# How a process has used its Votes, which does nothing any more.
USES: dict[str, tuple[Any, Use]] = {
    "a vote": ("batched", vote),
    "a vote in a slot": ("slotted", vote),
    "a count": ("batched", lambda votes: votes.count(1)),
    "one user's vote": ("batched", lambda votes: votes.get(1, 1)),
    "tables": ("batched", lambda votes: votes.create_tables()),
    "a count of votes in a stream": ("write_behind", lambda votes: votes.count(1)),
}


def test_an_idle_process_folds_what_others_delete(
    sides: BothSides, redis_server: RedisServer
) -> None:
    """In whatever way it has used its Votes; on SQLite the trigger itself changes the count."""
    uses = {
        name: use for name, use in USES.items() if (sides.dialect, use[0]) != ("sqlite", "slotted")
    }
    tables: dict[str, dict[str, Any]] = {}
    with ExitStack() as opened:
        redis = opened.enter_context(hotcount.Redis(redis_server.url, prefix=f"{id(sides)}:"))
        for number, (name, (strategy, use)) in enumerate(uses.items()):
            tables[name] = names(number)
            cache = redis if strategy == "write_behind" else None
            make(sides.database, cache, strategy, **tables[name])
            votes: Any = hotcount.Votes(
                sides.database, cache, strategy, fold_interval=0.05, **tables[name]
            )
            use(votes)
            opened.callback(votes.stats)  # It lives until then.
        tables["a loop that is closed"] = names(99)
        make(sides.database, **names(99))
        later = hotcount.aio.Votes(hotcount.aio.Database(sides.url, timeout=20), **names(99))
        asyncio.run(count_in_a_loop(later))
        time.sleep(1)  # Folds of votes that are not others' are over.
        sides.run(
            *(f"DELETE FROM {each['vote_table']} WHERE user_id = 1" for each in tables.values())
        )

        def wrong() -> list[str]:
            return [
                name
                for name, each in tables.items()
                if sides.run(f"SELECT vote_count FROM {each['item_table']}") != [(VOTERS - 1,)]
            ]

        until = time.monotonic() + PROMISE
        while wrong() and time.monotonic() < until:
            time.sleep(0.05)
        assert wrong() == []


def test_a_forked_child_folds_what_others_delete(postgres: PostgresDatabase) -> None:
    """The parent has not used its Votes."""
    side = JournalSide(postgres)
    with hotcount.Database(side.url, timeout=20) as database:
        make(database)
        votes = hotcount.Votes(database)

        def child() -> bool:
            votes.count(1)
            side.run("DELETE FROM vote WHERE user_id = 1")
            eventually(lambda: side.shown() == VOTERS - 1, PROMISE)
            return True

        assert in_child(child)


@pytest.mark.server
def test_an_item_that_is_locked_while_it_is_reconciled_is_folded_later(side: JournalSide) -> None:
    side.made()
    votes = side.votes(fold_interval=0.05)
    side.run("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 2, 1, 0)")
    with side.session() as other:
        other.execute("SELECT id FROM item WHERE id = 1 FOR UPDATE")
        assert len(votes.reconcile([1], timeout=20)) == 1
        assert (side.shown(), side.seen()) == (0, 1)
    eventually(lambda: side.shown() == 1, PROMISE)


@pytest.mark.server
def test_a_login_that_may_only_read_leaves_the_rows_and_warns_of_nothing(
    side: JournalSide, caplog: pytest.LogCaptureFixture
) -> None:
    with hotcount.Database(side.url, timeout=20) as database:
        make(database)
    url, _ = side.login("SELECT", *TABLES, "vote_count")
    with hotcount.Database(url, timeout=20) as database, caplog.at_level(logging.INFO, "hotcount"):
        votes = hotcount.Votes(database)
        votes.count(1)
        side.run("DELETE FROM vote WHERE user_id = 1")
        time.sleep(7)  # It has tried, and was refused.
        stats = votes.stats()
        assert (stats["pending_rows"], stats["failing_folds"]) == (1, 0)
        assert int(votes.count(1)) == VOTERS - 1
        assert [record.message for record in caplog.records if "folds" in record.message] == []


def statements_in_a_second(database: hotcount.Database) -> int:
    before = database.stats()["statements"]
    time.sleep(1)
    return database.stats()["statements"] - before


@pytest.mark.server
def test_a_process_forgets_items_that_are_held_once_the_counts_are_elsewhere(
    side: JournalSide,
) -> None:
    side.made().close()
    with hotcount.Database(side.url, timeout=20) as database:
        votes = hotcount.Votes(database, fold_interval=0.05)
        with side.session() as holder:
            holder.execute(HOLD[side.dialect])
            votes.cast(1, 1)
            eventually(lambda: votes.stats()["held_items"] == 1)
            switch = in_background(lambda: side.votes("naive").create_tables(timeout=20))
            eventually(lambda: side.waits() > 0)
        assert switch() is None
        eventually(lambda: votes.stats()["held_items"] == 0)
        assert statements_in_a_second(database) <= 2


@pytest.mark.server
@pytest.mark.parametrize("journal_side", ["mariadb"], indirect=True)
def test_a_process_asks_seldom_for_rows_that_others_have_locked(journal_side: JournalSide) -> None:
    """On PostgreSQL a fold waits for them."""
    journal_side.made().close()
    with hotcount.Database(journal_side.url, timeout=20) as database:
        votes = hotcount.Votes(database, fold_interval=0.5)
        votes.cast(1, 1)
        eventually(lambda: journal_side.shown() == 1)
        with journal_side.session() as tool:
            votes.cast(1, 2)
            tool.execute("SELECT * FROM vote_journal LOCK IN SHARE MODE")
            assert journal_side.pending() == 1, "the fold was faster"
            # Once it has found them locked. A fold has more statements, and one was due each 0.5 s.
            eventually(lambda: statements_in_a_second(database) <= 2)
        eventually(lambda: journal_side.shown() == 2, PROMISE)


ENDS = """
import os, sys, time, hotcount
def threads():
    return len(os.listdir("/proc/self/task"))
with hotcount.Database(sys.argv[1], timeout=20) as database:
    database.ping()
    before = threads()
    votes = hotcount.Votes(database)
    votes.count(1)
    print(threads() - before)
    del votes
    until = time.monotonic() + 20
    while threads() > before and time.monotonic() < until:
        time.sleep(0.01)
    print(threads() - before)
"""


@pytest.mark.server
def test_the_thread_that_looks_ends_with_its_votes(side: JournalSide) -> None:
    with hotcount.Database(side.url, timeout=20) as database:
        make(database)
    done = run_python("-c", ENDS, side.own_url)
    assert (done.stdout.split(), done.stderr) == (["1", "0"], "")
