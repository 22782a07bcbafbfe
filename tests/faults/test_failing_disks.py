"""Disks that are full, fail, or lose what was not synced when the power goes."""

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.failing_disk import FailingDisk, lose_what_was_not_synced, take_as_synced
from tests.support.servers import RedisServer
from tests.support.sqlite_files import rows

VOTE_FOR_EVER = """
import hotcount, itertools, os, sys, threading
votes = hotcount.Votes(hotcount.Database(f"sqlite:///{sys.argv[1]}", timeout=30), None, sys.argv[2])
users = itertools.count(int(sys.argv[3]))
def work():
    while True:
        user = next(users)
        votes.cast(1, user)
        os.write(1, b"%d\\n" % user)
for _ in range(4):
    threading.Thread(target=work).start()
"""

# What an application does that trades safety for speed.
VOTE_UNSYNCED = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA synchronous = OFF")
user = int(sys.argv[3])
while True:
    db.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, ?, 1, 0)", (user,))
    os.write(1, b"%d\\n" % user)
    user += 1
"""


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    return FailingDisk(tmp_path)


def acknowledged_before_power_went(disk: FailingDisk, file: Path, *program: str) -> set[int]:
    take_as_synced(file.parent)
    with subprocess.Popen(
        [sys.executable, "-c", *program], stdout=subprocess.PIPE, env=disk.environment(file.parent)
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        said = first + process.stdout.read()
    return {int(line) for line in said.split(b"\n")[:-1]}


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])
def test_acknowledged_votes_are_synced(disk: FailingDisk, tmp_path: Path, strategy: Any) -> None:
    folder = tmp_path / "db"
    folder.mkdir()
    file = folder / "a.db"
    made = f"import hotcount; v = hotcount.Votes('sqlite:///{file}', strategy={strategy!r})"
    made += "; v.create_tables(); v.add_items([1]); v.close()"
    subprocess.run(
        [sys.executable, "-c", made], env=disk.environment(folder), check=True, timeout=60
    )
    accepted: set[int] = set()
    for first in (0, 10**6, 2 * 10**6):
        accepted |= acknowledged_before_power_went(
            disk, file, VOTE_FOR_EVER, str(file), strategy, str(first)
        )
        lose_what_was_not_synced(folder)
        stored = {user for (user,) in rows(file, "SELECT user_id FROM vote_live")}
        assert accepted
        assert accepted <= stored, "an acknowledged vote is lost"
    with hotcount.Votes(f"sqlite:///{file}", strategy=strategy) as votes:
        assert int(votes.count(1)) == len(stored)
        votes.flush()
        assert votes.reconcile(dry_run=True) == []
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    # The same disk loses what a program commits that does not sync: the loss is real.
    unsynced = acknowledged_before_power_went(
        disk, file, VOTE_UNSYNCED, str(file), strategy, str(3 * 10**6)
    )
    assert unsynced
    assert lose_what_was_not_synced(folder) > 0
    left: set[int] = set()
    # So much may be lost that it is no database any more.
    with contextlib.suppress(sqlite3.DatabaseError):
        left = {user for (user,) in rows(file, "SELECT user_id FROM vote_live")}
    assert not unsynced <= left


ADD = """
import hotcount, sys
store = hotcount.Redis(sys.argv[1], timeout=0.2)
queue = hotcount.RetryQueue(path=sys.argv[2], fsync="always")
counter = hotcount.Counter(store, retry=queue)
for line in sys.stdin:
    try:
        print(type(counter.add("k")).__name__, flush=True)
    except hotcount.HotcountError as error:
        print(type(error).__name__, str(error), flush=True)
"""


@pytest.mark.server
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "EIO"])
def test_an_add_that_the_disk_does_not_take_is_not_acknowledged(
    disk: FailingDisk, tmp_path: Path, own_redis: RedisServer, number: int
) -> None:
    file = tmp_path / "adds.retry"
    command = [sys.executable, "-c", ADD, own_redis.url, str(file)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=disk.environment(tmp_path, ".retry"),
    ) as program:

        def add() -> str:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write("\n")
            program.stdin.flush()
            return program.stdout.readline()

        queued = [add().split()[0]]
        own_redis.kill()
        queued += [add().split()[0] for _ in range(3)]
        disk.fail(number)
        refused = [add() for _ in range(3)]
        disk.fail(0)
        after = [add() for _ in range(2)]
        program.kill()
    assert disk.failed() > 0
    assert all("Error" in each and os.strerror(number) in each for each in refused[:1]), refused
    assert all("Error" in each for each in refused), refused
    acknowledged = sum("Error" not in each for each in [*queued, *after])
    assert acknowledged >= len(queued)
    own_redis.start()
    with hotcount.Counter(own_redis.redis(timeout=5), retry=hotcount.RetryQueue(path=file)) as own:
        eventually(lambda: own.retry_stats().waiting == 0)
        # The first add was counted by a server that kept nothing of it.
        assert own.get("k") == acknowledged - queued.count("int")
