"""Ctrl-C while a vote waits for another thread's vote, or a worker for its cache."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.interrupted_program import AT_ONCE, all_wait, running, waits
from tests.support.resp_server import ScriptedServer


@pytest.mark.parametrize("strategy", ["batched", "naive"])
def test_ctrl_c_ends_the_wait_behind_another_threads_vote(tmp_path: Path, strategy: str) -> None:
    file = tmp_path / "a.db"
    text = f"""
votes = hotcount.Votes(
    hotcount.Database("sqlite:///{file}", timeout=30), strategy="{strategy}"
)
votes.create_tables()
votes.add_items([1])
say("ready")
hear()
thread = threading.Thread(target=votes.cast, args=(1, 7))
thread.start()
hear()
took = interrupted(lambda: votes.cast(1, 8))
assert thread.is_alive()
say("took", took)
thread.join()
say("count", int(votes.count(1)))
assert votes.cast(1, 9).changed
assert votes.reconcile(dry_run=True) == []
"""
    with running(text, "redis://127.0.0.1:1") as program:
        program.expect("ready")
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            program.tell("locked")
            all_wait(program.pid, 2)
            program.tell("the other thread polls for the lock")
            program.end_the_wait()
            other.execute("ROLLBACK")
        # The other thread's vote alone: the interrupted one was taken back.
        assert program.expect("count") == ["1"]
        program.end()


def test_ctrl_c_ends_a_sync_workers_run_amid_its_wait_for_the_cache(tmp_path: Path) -> None:
    text = f"""
votes = hotcount.Votes(
    hotcount.Database("sqlite:///{tmp_path}/a.db"), strategy="cached", cache=redis
)
worker = votes.sync_worker()
say("took", interrupted(worker.run))
"""
    with closing(sqlite3.connect(tmp_path / "a.db")):
        votes = hotcount.Votes(
            hotcount.Database(f"sqlite:///{tmp_path}/a.db"),
            strategy="cached",
            cache=hotcount.Memory(),
        )
        votes.create_tables()
    with ScriptedServer(tmp_path, lambda _: b"") as server, running(text, server.url) as program:
        program.expect("calls")
        eventually(lambda: bool(server.commands))
        waits(program.pid)
        program.interrupt()
        assert float(program.expect("took")[0]) < AT_ONCE
