"""Processes that die in the middle of folds: no vote is lost or counted twice, in any snapshot."""

import random
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from tests.support.journal_side import JournalSide
from tests.support.together import beside

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
    drifts: list[int] = []

    def vote(index: int, ended: threading.Event) -> None:
        user = 0
        while not ended.is_set():
            user += 1
            journal_side.vote((user * 7 + index) % ITEMS, 1_000_000 * index + user)
            drifts.append(journal_side.number(TRUTH))

    command = [sys.executable, "-c", FOLD_FOR_EVER, journal_side.url]
    with beside(partial(vote, 0), partial(vote, 1)):
        for _ in range(KILLS):
            folders = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
            for folder in folders:
                assert folder.stdout is not None
                assert folder.stdout.readline() == b"folds\n"
            time.sleep(draw.uniform(0.0, 0.3))
            for folder in folders:
                folder.kill()
                folder.communicate()
    assert drifts
    assert set(drifts) == {0}
    # With all of them dead exact counts are right; and the next one brings the others up to date.
    cast = journal_side.number("SELECT COUNT(*) FROM vote")
    assert sum(int(count) for count in votes.count_many(range(ITEMS))) == cast
    assert votes.flush(30).pending == 0
    assert journal_side.number("SELECT SUM(vote_count) FROM item") == cast
    assert votes.reconcile(dry_run=True) == []
