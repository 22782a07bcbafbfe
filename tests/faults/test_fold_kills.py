"""Processes that die in the middle of folds: no vote is lost or counted twice, in any snapshot."""

import random
import subprocess
import sys
import threading

import pytest

from tests.support.journal_side import JournalSide

pytestmark = pytest.mark.server

KILLS = 6
ITEMS = 30

FOLD_FOR_EVER = """
import sys, hotcount
votes = hotcount.Votes(hotcount.Database(sys.argv[1], timeout=20))
print("folds", flush=True)
while True:
    votes.flush(20)
"""

# Votes and what they count to, seen at one moment.
TRUTH = (
    "SELECT (SELECT COALESCE(SUM(val), 0) FROM vote) - (SELECT COALESCE(SUM(n), 0) FROM vote_cell)"
    " - (SELECT COALESCE(SUM(diff), 0) FROM vote_journal)"
)


def test_processes_killed_in_mid_fold_lose_and_double_nothing(journal_side: JournalSide) -> None:
    votes = journal_side.made()
    votes.add_items(range(ITEMS))
    draw = random.Random(34)
    done = threading.Event()
    drifts: list[int] = []

    def vote(index: int) -> None:
        user = 0
        while not done.is_set():
            user += 1
            journal_side.vote((user * 7 + index) % ITEMS, 1_000_000 * index + user)
            drifts.append(journal_side.number(TRUTH))

    voters = [threading.Thread(target=vote, args=(index,)) for index in range(2)]
    for voter in voters:
        voter.start()
    try:
        for _ in range(KILLS):
            folders = [
                subprocess.Popen(
                    [sys.executable, "-c", FOLD_FOR_EVER, journal_side.url], stdout=subprocess.PIPE
                )
                for _ in range(2)
            ]
            for folder in folders:
                assert folder.stdout is not None
                assert folder.stdout.readline() == b"folds\n"
            done.wait(draw.uniform(0.0, 0.3))
            for folder in folders:
                folder.kill()
                folder.wait(20)
                assert folder.stdout is not None
                folder.stdout.close()
    finally:
        done.set()
        for voter in voters:
            voter.join(30)
    assert drifts
    assert set(drifts) == {0}
    # With all of them dead exact counts are right; and the next one brings the others up to date.
    cast = journal_side.number("SELECT COUNT(*) FROM vote")
    assert sum(int(count) for count in votes.count_many(range(ITEMS))) == cast
    assert votes.flush(30).pending == 0
    assert journal_side.number("SELECT SUM(vote_count) FROM item") == cast
    assert votes.reconcile(dry_run=True) == []
