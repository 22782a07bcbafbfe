"""Exact reads of votes on the servers: what they see, and what they share with others' reads.

Reads that would wait for a connection become one statement; with one connection for reading they
soon do.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.journal_side import JournalSide
from tests.support.together import together

pytestmark = pytest.mark.server

ITEMS = [1, 2, 3]
HOLDS_READS = {
    "postgresql": "LOCK TABLE vote_journal IN ACCESS EXCLUSIVE MODE",
    "mysql": "LOCK TABLES vote_journal WRITE",
}


def open_votes(side: JournalSide, readers: int = 1, fold_interval: float = 3600) -> hotcount.Votes:
    """Beside side.made(): of few connections for reading."""
    database = hotcount.Database(side.url, timeout=30, max_readers=readers)
    return hotcount.Votes(database, fold_interval=fold_interval)


@contextmanager
def held_reads(side: JournalSide) -> Iterator[None]:
    """Reads are sent and wait at the server."""
    with side.session() as session:
        session.execute(HOLDS_READS[side.dialect])
        yield


@pytest.mark.parametrize("readers", [1, 4])
def test_a_read_in_a_thread_has_every_vote_acknowledged_before_it(
    side: JournalSide, readers: int
) -> None:
    side.made()
    votes = open_votes(side, readers, 0.02)
    known: Counter[int] = Counter()
    lock = threading.Lock()

    def work(index: int) -> None:
        for turn in range(40):
            item = ITEMS[(index + turn) % 3]
            votes.cast(item, 1000 * index + turn)
            with lock:
                known[item] += 1
                least = known.copy()
            assert int(votes.count(item)) >= least[item]
            counts = votes.count_many(ITEMS)
            assert all(int(n) >= least[each] for n, each in zip(counts, ITEMS))

    together(work, 16)
    assert sum(int(n) for n in votes.count_many(ITEMS)) == 16 * 40


async def test_a_read_in_a_task_has_every_vote_acknowledged_before_it(side: JournalSide) -> None:
    side.made()
    database = aio.Database(side.url, timeout=30, max_readers=1)
    votes = aio.Votes(database, fold_interval=0.02)
    known = dict.fromkeys(ITEMS, 0)

    async def work(index: int) -> None:
        for turn in range(10):
            item = ITEMS[(index + turn) % 3]
            await votes.cast(item, 1000 * index + turn)
            known[item] += 1
            least = known[item]
            assert int(await votes.count(item)) >= least

    await asyncio.gather(*(work(index) for index in range(40)))
    assert sum([int(await votes.count(item)) for item in ITEMS]) == 400


async def test_a_task_that_is_cancelled_takes_no_other_with_it(side: JournalSide) -> None:
    side.made()
    side.vote(1, 1, 2)
    votes = aio.Votes(aio.Database(side.url, timeout=30, max_readers=1))
    await votes.count(1)
    with held_reads(side):
        reads = [asyncio.ensure_future(votes.count(1)) for _ in range(6)]
        await asyncio.sleep(0)
        for read in reads[:3]:
            read.cancel()
        await asyncio.gather(*reads[:3], return_exceptions=True)
    assert [int(await read) for read in reads[3:]] == [2] * 3


def test_an_item_whose_count_is_refused_fails_only_its_readers(side: JournalSide) -> None:
    side.made()
    side.vote(1, 1, 2)
    most = 2**63 - 1
    side.run(
        f"INSERT INTO vote_journal (item, diff) VALUES (2, {most})",
        f"INSERT INTO vote_journal (item, diff) VALUES (2, {most})",
    )
    votes = open_votes(side)

    def work(index: int) -> None:
        for _ in range(20):
            if index % 2 == 0:
                assert int(votes.count(1)) == 2
                continue
            with pytest.raises(OverflowError):
                votes.count(2)

    together(work, 8)


def test_an_exact_read_is_one_statement(side: JournalSide) -> None:
    side.made()
    side.vote(1, 1, 2)
    database = hotcount.Database(side.url, timeout=30)
    votes = hotcount.Votes(database)
    votes.count(1)  # It connects.
    before = database.stats()["statements"]
    assert int(votes.count(1)) == 2
    assert [int(n) for n in votes.count_many([1, 2, 1])] == [2, 0, 2]
    assert database.stats()["statements"] - before == 2


def test_a_journal_that_is_read_again_and_again_is_folded_before_its_time(
    side: JournalSide,
) -> None:
    votes = side.made()
    side.run("INSERT INTO vote_journal (item, diff) VALUES " + ", ".join(["(1, 0)"] * 3000))
    votes.cast(1, 1)  # Who has voted folds.
    assert (side.pending(), votes.stats()["folds"]) == (3001, 0)
    for _ in range(10):
        assert int(votes.count(1)) == 1
    eventually(lambda: side.pending() == 0)
    assert int(votes.count(1)) == 1
    assert side.shown() == 1
