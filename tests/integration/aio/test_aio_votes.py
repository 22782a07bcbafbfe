"""Votes and databases for event loops: nothing lost, swapped or doubled, whoever goes away."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hotcount
import psycopg
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.loops import LOOPS, run
from tests.support.servers import PostgresDatabase
from tests.support.sqlite_files import rows
from tests.support.together import together

on_all_loops = pytest.mark.parametrize("factory", LOOPS)
STRATEGIES = ["naive", "slotted", "batched", "cached"]


async def make(path: Path, strategy: str = "batched", **options: Any) -> aio.Votes:
    database = aio.Database(f"sqlite:///{path}", timeout=20)
    if strategy == "cached":
        options["cache"] = hotcount.Memory()
    votes = aio.Votes(database, strategy=strategy, **options)  # type: ignore[arg-type]
    await votes.create_tables()
    await votes.add_items(range(1, 11))
    return votes


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program has SQLite's write lock."""
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()


def audit(path: Path) -> tuple[int, int]:
    """What the votes say, and what the items do."""
    votes = rows(path, "SELECT COALESCE(SUM(val), 0) FROM vote")[0][0]
    counts = rows(path, "SELECT SUM(vote_count) FROM item")[0][0]
    return votes, counts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "v.db"


@on_all_loops
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_each_call_does_what_it_does_for_threads(strategy: str, tmp_path: Path) -> None:
    async with await make(tmp_path / "v.db", strategy) as votes:
        assert await votes.cast(1, 7) == hotcount.Cast(True, True, 0, 1)
        assert await votes.cast(1, 7, 5, version=3) == hotcount.Cast(True, True, 1, 5)
        assert await votes.cast(1, 7, 9, version=2) == hotcount.Cast(True, False, 5, 5)
        assert await votes.retract(1, 7, version=4) == hotcount.Cast(False, True, 5, 0)
        casts = await votes.cast_many([1, 1, 2], [1, 2, 3], [1, 2, 3])
        assert [each.value for each in casts] == [1, 2, 3]
        await votes.flush()
        assert int(await votes.count(1)) == 3
        assert (await votes.count(2, consistency="exact")).value == 3
        assert [int(each) for each in await votes.count_many([1, 2, 3])] == [3, 3, 0]
        assert await votes.reconcile() == []
        assert await votes.reconcile([1], dry_run=True) == []
        assert votes.contract().strategy == strategy
        assert "CREATE TABLE" in votes.schema()
        with pytest.raises(hotcount.IntegrityError, match="item 99"):
            await votes.cast(99, 1)
        with pytest.raises(hotcount.BatchError) as caught:
            await votes.cast_many([1, 99], [4, 4])
        assert list(caught.value.errors) == [1]
        returned = await votes.cast_many([99, 1], [5, 5], errors="return")
        assert isinstance(returned.errors[0], hotcount.IntegrityError)
        wrong: Any = "x"
        with pytest.raises(TypeError, match="item"):
            await votes.cast(wrong, 1)
        if strategy == "cached":
            assert votes.sync_worker().run_once().at_risk == 0
        else:
            with pytest.raises(hotcount.ConfigError):
                votes.sync_worker()


def test_a_loop_is_woken_once_for_all_votes_of_a_transaction(path: Path) -> None:
    wakes = 0

    class Counting(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(  # type: ignore[override]
            self, *args: Any, **options: Any
        ) -> Any:
            nonlocal wakes
            wakes += 1
            return super().call_soon_threadsafe(*args, **options)

    async def main() -> None:
        nonlocal wakes
        votes = await make(path)
        with locked(path):
            first = asyncio.ensure_future(votes.cast(1, 0))
            calls = [asyncio.ensure_future(votes.cast(1, user)) for user in range(1, 501)]
            await asyncio.sleep(0)
            wakes = 0
        await asyncio.gather(first, *calls)
        assert 1 <= wakes <= 3

    run(Counting, main())
    assert audit(path) == (501, 501)


@on_all_loops
async def test_a_cancelled_call_is_applied_or_not_and_harms_no_other(path: Path) -> None:
    kept: list[int] = []
    votes = await make(path)
    chance = random.Random(7)
    for turn in range(20):
        users = range(turn * 100, turn * 100 + 100)
        tasks = {user: asyncio.ensure_future(votes.cast(1, user, user + 1)) for user in users}
        await asyncio.sleep(chance.random() / 200)
        leaving = [user for user in users if chance.random() < 0.5]
        for user in leaving:
            fired("cancel", tasks[user].cancel())
        outcomes = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for user, outcome in zip(users, outcomes, strict=True):
            if isinstance(outcome, asyncio.CancelledError):
                continue
            assert isinstance(outcome, hotcount.Cast)
            assert outcome.value == user + 1
            kept.append(user)
    await votes.cast(2, 1)  # Behind all that was cancelled.
    found = {user: value for user, value in rows(path, "SELECT user_id, val FROM vote") if value}
    assert set(kept) <= set(found)
    assert all(value in (user + 1, 1) for user, value in found.items())
    stored, counts = audit(path)
    assert stored == counts


@on_all_loops
async def test_a_deadline_that_passes_means_that_nothing_was_applied(path: Path) -> None:
    votes = await make(path)
    with locked(path):
        patient = asyncio.ensure_future(votes.cast(1, 1))
        hurried = [
            asyncio.ensure_future(votes.cast(1, user, timeout=0.05)) for user in range(2, 50)
        ]
        outcomes = await asyncio.gather(*hurried, return_exceptions=True)
        assert {type(each) for each in outcomes} == {hotcount.DeadlineError}
        with pytest.raises(hotcount.DeadlineError):
            await votes.add_items([11], timeout=0.05)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.02):
                await votes.cast(1, 60, timeout=0.2)
    assert (await patient).changed
    assert audit(path)[0] in (1, 2), "whether asyncio's own timeout came first is not known"


async def test_a_closed_object_refuses_and_ends_nothing_that_is_under_way(path: Path) -> None:
    votes = await make(path)
    database = aio.Database(f"sqlite:///{path}", timeout=20)  # Keeps it open.
    with locked(path):
        under_way = [asyncio.ensure_future(votes.cast(1, user)) for user in range(10)]
        await asyncio.sleep(0)
        await votes.aclose()
        assert votes.closed
        for call in (votes.cast, votes.retract):
            with pytest.raises(hotcount.ClosedError):
                await call(1, 1)
        with pytest.raises(hotcount.ClosedError):
            await votes.count(1)
    assert len(await asyncio.gather(*under_way)) == 10
    await database.aclose()
    with pytest.raises(hotcount.ClosedError):
        await database.ping()
    assert audit(path) == (10, 10)


def test_a_loop_that_ends_with_votes_under_way_leaves_nothing_broken(path: Path) -> None:

    async def leave(votes: aio.Votes, turn: int) -> None:
        for user in range(100):
            asyncio.ensure_future(votes.cast(1, turn * 100 + user))  # noqa: RUF006
        await asyncio.sleep(0)

    votes = asyncio.run(make(path))
    for turn in range(20):
        asyncio.run(leave(votes, turn))
        gc.collect()

    async def settled() -> int:
        await votes.cast(2, 2)
        return int(await votes.count(1))

    assert asyncio.run(settled()) == 2000, "a vote that was handed in is written"
    assert audit(path) == (2001, 2001)


def test_loops_in_many_threads_share_one_object(path: Path) -> None:
    votes = asyncio.run(make(path))

    async def main(first: int) -> None:
        async def voter(user: int) -> None:
            for item in range(1, 11):
                assert (await votes.cast(item, user, user + 1)).value == user + 1

        await asyncio.gather(*(voter(user) for user in range(first, first + 50)))

    kinds: list[Any] = [param.values[0] for param in LOOPS] * 2
    together(lambda index: run(kinds[index], main(50 * index)), len(kinds))
    assert audit(path) == (10 * sum(range(1, 301)),) * 2


def test_a_forked_child_votes_on_with_threads_of_its_own(path: Path) -> None:
    votes = asyncio.run(make(path))

    async def vote(first: int) -> None:
        await asyncio.gather(*(votes.cast(1, user) for user in range(first, first + 100)))

    asyncio.run(vote(0))
    children = []
    for child in range(1, 4):
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(vote(child * 100))
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(pid)
    asyncio.run(vote(400))
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert audit(path) == (500, 500)


def test_sync_and_async_share_a_database_and_name_what_they_do_not_take(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.Database(f"sqlite:///{tmp_path}/v.db") as database:
            assert await database.ping()
            assert database.stats()["statements"] > 0
            waiting = hotcount.Votes(database)
            waiting.create_tables()
            waiting.add_items([1])
            awaitable = aio.Votes(database, workers=1)
            assert (await awaitable.cast(1, 1)).changed
            assert not waiting.cast(1, 1).changed
            assert repr(awaitable).startswith("hotcount.aio.Votes(hotcount.Database(")
            with pytest.raises(hotcount.ConfigError, match="workers is 0"):
                aio.Votes(database, workers=0)
            wrong: Any = 7
            with pytest.raises(TypeError, match="db must be Database"):
                aio.Votes(wrong)
            with pytest.raises(hotcount.ConfigError):
                aio.Votes("memory://")
        with pytest.raises(hotcount.ClosedError):
            await awaitable.cast(1, 2)

    asyncio.run(main())
    votes = hotcount.Votes(f"sqlite:///{tmp_path}/v.db")
    awaitable = aio.Votes(hotcount.Database(f"sqlite:///{tmp_path}/v.db"))
    with pytest.raises(RuntimeError, match="no running event loop"):
        _ = awaitable.cast(1, 3)
    assert int(votes.count(1)) == 1


@pytest.mark.parametrize("what", ["cast", "flush"])
async def test_an_answer_that_waits_in_the_loop_is_told_although_its_database_closes(
    tmp_path: Path, what: str
) -> None:
    url = f"sqlite:///{tmp_path}/v.db"
    with hotcount.Votes(url) as tables:
        tables.create_tables()
        tables.add_items([1])
    database = aio.Database(url, timeout=20)
    mine = aio.Votes(database, workers=1)
    ready: Any = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    call: Any = mine.cast(1, 1) if what == "cast" else mine.flush()
    before = len(ready)
    # The loop was woken for the answer, and has not come to it.
    eventually(lambda: len(ready) > before)
    await mine.aclose()
    await database.aclose()
    until = time.monotonic() + 20
    while not call.done() and time.monotonic() < until:
        await asyncio.sleep(0)
    assert call.done()
    await call


async def test_a_caller_who_leaves_while_a_row_is_locked_has_nothing_applied(
    postgres_database: PostgresDatabase,
) -> None:
    votes = aio.Votes(aio.Database(postgres_database.url, timeout=20))
    await votes.create_tables()
    await votes.add_items([1])
    await votes.cast(1, 1000)
    with psycopg.connect(postgres_database.url) as other:
        other.execute("SELECT * FROM item WHERE id = 1 FOR UPDATE")
        patient = [asyncio.ensure_future(votes.cast(1, user)) for user in range(10)]
        hurried = [
            asyncio.ensure_future(votes.cast(1, user, timeout=0.3)) for user in range(10, 20)
        ]
        outcomes = await asyncio.gather(*hurried, return_exceptions=True)
        assert {type(each) for each in outcomes} == {hotcount.DeadlineError}
        assert not any(call.done() for call in patient)
        other.rollback()
    assert all(cast.changed for cast in await asyncio.gather(*patient))
    assert int(await votes.count(1)) == 11
    assert await votes.reconcile() == []


async def test_callers_that_wait_are_not_failed_by_the_deadline_of_who_leads_them(
    postgres_database: PostgresDatabase,
) -> None:
    # The leader waits for company, so that they share its transaction.
    database = hotcount.Database(postgres_database.url, timeout=20)
    votes = hotcount.Votes(database, max_delay=0.4)
    votes.create_tables()
    votes.add_items([1])
    with psycopg.connect(postgres_database.url) as other:
        other.execute("SELECT * FROM item WHERE id = 1 FOR UPDATE")
        leads = asyncio.ensure_future(asyncio.to_thread(votes.cast, 1, 0, timeout=1))
        await asyncio.sleep(0.1)
        follow = [asyncio.ensure_future(asyncio.to_thread(votes.cast, 1, user)) for user in (1, 2)]
        with pytest.raises(hotcount.DeadlineError):
            await leads
        other.rollback()
    for call in follow:
        assert (await call).value == 1
    assert int(votes.count(1)) == 2
