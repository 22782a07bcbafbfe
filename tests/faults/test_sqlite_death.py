"""SQLite files that several processes write to, and processes that die in mid-commit."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import hotcount
import pytest

from tests.support.sqlite_files import STRATEGIES, make_votes, rows
from tests.support.together import THREADS, together


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_processes_that_vote_at_once_lose_nothing(tmp_path: Path, strategy: str) -> None:
    file = tmp_path / "a.db"
    votes = make_votes(file, strategy)
    code = (
        "import hotcount, sys\n"
        "database = hotcount.Database('sqlite:///' + sys.argv[1], timeout=30)\n"
        "votes = hotcount.Votes(database, strategy=sys.argv[2])\n"
        "first = int(sys.argv[3])\n"
        "print(sum(votes.cast(1, user).changed for user in range(first, first + 40)))\n"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(file), strategy, str(first)], stdout=subprocess.PIPE
        )
        for first in (1000, 1020)
    ]
    changed = sum(
        together(lambda index: sum(votes.cast(1, index * 3 + k).changed for k in range(3)))
    )
    for other in others:
        output, _ = other.communicate(timeout=60)
        assert other.returncode == 0
        changed += int(output)
    assert changed == int(votes.count(1)) == THREADS * 3 + 60
    votes.flush()
    assert rows(file, "SELECT vote_count FROM item WHERE id = 1") == [(changed,)]
    assert votes.reconcile(dry_run=True) == []


# -- death ------------------------------------------------------------------

VOTE_FOR_EVER = """
import hotcount, os, sys, threading
votes = hotcount.Votes(
    hotcount.Database("sqlite:///" + sys.argv[1], timeout=30), strategy=sys.argv[2]
)
def work(first):
    user = first
    while True:
        votes.cast(1, user)
        os.write(1, b"%d\\n" % user)
        user += 8
for first in range(8):
    threading.Thread(target=work, args=(first,)).start()
"""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_acknowledged_vote_is_lost_by_a_kill(tmp_path: Path, strategy: str) -> None:
    file = tmp_path / "a.db"
    with make_votes(file, strategy):
        pass
    acknowledged: set[int] = set()
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", VOTE_FOR_EVER, str(file), strategy], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            # It has voted, so it is in the middle of something now.
            first = process.stdout.readline()
            time.sleep(0.15)
            process.send_signal(signal.SIGKILL)
            said = first + process.stdout.read()
        # The last line may be cut; what stands before it was acknowledged.
        acknowledged |= {int(line) for line in said.split(b"\n")[:-1]}
        stored = {user for (user,) in rows(file, "SELECT user_id FROM vote_live WHERE item_id = 1")}
        assert acknowledged
        assert acknowledged <= stored
        with hotcount.Votes(f"sqlite:///{file}", strategy=strategy) as votes:  # type: ignore[arg-type]
            assert int(votes.count(1)) == len(stored)
            votes.flush()
            assert votes.reconcile(dry_run=True) == []
            # Doing it again is how a caller settles what it was never told.
            assert sum(votes.cast_many([1] * len(stored), sorted(stored)).changed) == 0
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]


def test_no_acknowledged_add_is_lost_or_doubled_by_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with hotcount.SlottedCounter(f"sqlite:///{file}") as counter:
        counter.create_table()
    code = """
import hotcount, os, sys
counter = hotcount.SlottedCounter("sqlite:///" + sys.argv[1])
number = int(sys.argv[2])
while True:
    counter.add("k", op_id=str(number))
    os.write(1, b"%d\\n" % number)
    number += 1
"""
    number = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(file), str(number)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(0.1)
            process.send_signal(signal.SIGKILL)
            said = first + process.stdout.read()
        # The next one begins with the add whose answer never came: same id, counted once.
        number = int(said.split(b"\n")[-2]) + 1
        with hotcount.SlottedCounter(f"sqlite:///{file}") as counter:
            counter.add("k", op_id=str(number))
            number += 1
            assert counter.get("k") == number
