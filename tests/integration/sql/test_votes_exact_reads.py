"""Exact reads of votes on the servers: what they see, and what they share with others' reads.

Reads that would wait for a connection become one statement; with one connection for reading they
soon do.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.journal_side import JournalSide
from tests.support.postgres_votes import in_background
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


# -- what they see --------------------------------------------------------------


class Acknowledged:
    """Votes acknowledged to anybody, by item."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._votes = dict.fromkeys(ITEMS, 0)

    def add(self, item: int) -> None:
        with self._lock:
            self._votes[item] += 1

    def __getitem__(self, item: int) -> int:
        with self._lock:
            return self._votes[item]


@pytest.mark.parametrize("readers", [1, 4])
def test_a_read_in_a_thread_has_every_vote_acknowledged_before_it(
    journal_side: JournalSide, readers: int
) -> None:
    journal_side.made()
    votes = open_votes(journal_side, readers, 0.02)
    known = Acknowledged()

    def work(index: int) -> None:
        for turn in range(40):
            item = ITEMS[(index + turn) % 3]
            votes.cast(item, 1000 * index + turn)
            known.add(item)
            least = {each: known[each] for each in ITEMS}
            assert int(votes.count(item)) >= least[item]
            counts = votes.count_many(ITEMS)
            assert all(int(n) >= least[each] for n, each in zip(counts, ITEMS))

    together(work, 16)
    assert sum(int(n) for n in votes.count_many(ITEMS)) == 16 * 40


def test_a_read_in_a_task_has_every_vote_acknowledged_before_it(journal_side: JournalSide) -> None:
    journal_side.made()

    async def main() -> None:
        database = aio.Database(journal_side.url, timeout=30, max_readers=1)
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

    asyncio.run(main())


PROCESS = """
import sys, threading, hotcount
url, first = sys.argv[1], int(sys.argv[2])
votes = hotcount.Votes(hotcount.Database(url, timeout=30, max_readers=1), fold_interval=0.02)
low = []
def work(part):
    for turn in range(40):
        votes.cast(1, first + 100 * part + turn)
        # Its own are what it knows of.
        if int(votes.count(1)) <= turn:
            low.append((part, turn))
threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(low, int(votes.count(1)) >= 160)
"""


def test_a_read_in_a_process_has_its_own_acknowledged_votes(journal_side: JournalSide) -> None:
    votes = journal_side.made()
    voters = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, journal_side.url, str(1000 * number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(3)
    ]
    said = [voter.communicate(timeout=120)[0].strip() for voter in voters]
    assert said == ["[] True"] * 3
    assert int(votes.count(1)) == 480


# -- what they share ------------------------------------------------------------


def test_a_reader_whose_deadline_passes_leaves_those_that_he_shares_a_statement_with(
    journal_side: JournalSide,
) -> None:
    journal_side.made()
    journal_side.vote(1, 1, 2)
    votes = open_votes(journal_side)
    votes.count(1)
    with held_reads(journal_side):
        patient = [in_background(lambda: votes.count(1, timeout=30)) for _ in range(4)]
        hasty = [in_background(lambda: votes.count(1, timeout=0.3)) for _ in range(4)]
        assert {type(read()) for read in hasty} == {hotcount.DeadlineError}
    assert [int(read()) for read in patient] == [2] * 4


def test_a_reader_with_little_time_who_sends_the_statement_fails_nobody_else(
    journal_side: JournalSide,
) -> None:
    journal_side.made()
    journal_side.vote(1, 1, 2)
    votes = open_votes(journal_side)
    votes.count(1)
    with held_reads(journal_side):
        hasty = [in_background(lambda: votes.count(1, timeout=0.3)) for _ in range(4)]
        patient = [in_background(lambda: votes.count(1, timeout=30)) for _ in range(4)]
        assert {type(read()) for read in hasty} == {hotcount.DeadlineError}
    assert [int(read()) for read in patient] == [2] * 4


def test_a_task_that_is_cancelled_takes_no_other_with_it(journal_side: JournalSide) -> None:
    journal_side.made()
    journal_side.vote(1, 1, 2)

    async def main() -> None:
        votes = aio.Votes(aio.Database(journal_side.url, timeout=30, max_readers=1))
        await votes.count(1)
        with held_reads(journal_side):
            reads = [asyncio.ensure_future(votes.count(1)) for _ in range(6)]
            await asyncio.sleep(0)
            for read in reads[:3]:
                read.cancel()
            await asyncio.gather(*reads[:3], return_exceptions=True)
        assert [int(await read) for read in reads[3:]] == [2] * 3

    asyncio.run(main())


def test_an_item_whose_count_is_refused_fails_only_its_readers(journal_side: JournalSide) -> None:
    journal_side.made()
    journal_side.vote(1, 1, 2)
    most = 2**63 - 1
    journal_side.run(
        f"INSERT INTO vote_journal (item, diff) VALUES (2, {most})",
        f"INSERT INTO vote_journal (item, diff) VALUES (2, {most})",
    )
    votes = open_votes(journal_side)

    def work(index: int) -> None:
        for _ in range(20):
            if index % 2 == 0:
                assert int(votes.count(1)) == 2
                continue
            with pytest.raises(OverflowError):
                votes.count(2)

    together(work, 8)


# -- what they cost -------------------------------------------------------------


def test_an_exact_read_is_one_statement(journal_side: JournalSide) -> None:
    journal_side.made()
    journal_side.vote(1, 1, 2)
    database = hotcount.Database(journal_side.url, timeout=30)
    votes = hotcount.Votes(database)
    votes.count(1)  # It connects.
    before = database.stats()["statements"]
    assert int(votes.count(1)) == 2
    assert [int(n) for n in votes.count_many([1, 2, 1])] == [2, 0, 2]
    assert database.stats()["statements"] - before == 2


def test_a_journal_that_is_read_again_and_again_is_folded_before_its_time(
    journal_side: JournalSide,
) -> None:
    votes = journal_side.made()
    journal_side.run("INSERT INTO vote_journal (item, diff) VALUES " + ", ".join(["(1, 0)"] * 3000))
    votes.cast(1, 1)  # Who has voted folds.
    assert (journal_side.pending(), votes.stats()["folds"]) == (3001, 0)
    for _ in range(10):
        assert int(votes.count(1)) == 1
    eventually(lambda: journal_side.pending() == 0)
    assert int(votes.count(1)) == 1
    assert journal_side.shown() == 1
