"""kill -9 of the generator in mid-run: what it acknowledged is there, and counted, exactly.

The library runs inside the generator, so this is also kill -9 of an application that votes. The
audit is checked by a second one, written here from the ledger's layout and the tables alone.
"""

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.load_generator import FAILED, OK, SENT, Operation, program, read_ledger, run_json

KILLS = 20
STRATEGIES = ["batched", "naive", "slotted", "batched"]


def kill_in_mid_run(folder: Path, strategy: str, seed: int) -> None:
    """Starts a load that would last a minute and kills it some tenths of a second in."""
    command = [program(), "run", "-s", strategy, "-d", "60s", "-w", "32", "--warmup", "0"]
    command += ["--items", "500", "--mix", "vote=80,unvote=10,read=10", "--dup", "0.05"]
    command += ["--seed", str(seed), "--progress", "ndjson", "--out", str(folder)]
    if seed % 3 == 2:
        command += ["-r", "2k"]
    generator = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert generator.stderr is not None
        # The tables are made, the load begins.
        while json.loads(generator.stderr.readline())["event"] != "load":
            pass
        time.sleep(random.Random(seed).uniform(0.3, 0.8))
        assert generator.poll() is None, "it ended by itself"
    finally:
        generator.kill()
        _, rest = generator.communicate()
    assert generator.returncode == -signal.SIGKILL, rest.decode()


def check_by_hand(folder: Path, operations: list[Operation], strategy: str) -> int:
    """Rows against the ledger, counts against rows; returns the number of rows."""
    attempts: dict[tuple[int, int], list[Operation]] = defaultdict(list)
    for operation in operations:
        attempts[operation.item, operation.user].append(operation)
    with sqlite3.connect(folder / "votes.sqlite3") as database:
        rows = database.execute("SELECT item_id, user_id, val FROM vote").fetchall()
        stored = dict(database.execute("SELECT id, vote_count FROM item").fetchall())
        cells = dict(
            database.execute("SELECT item, SUM(n) FROM vote_cell GROUP BY item").fetchall()
        )
    database.close()
    votes = {(item, user): value for item, user, value in rows}
    assert len(votes) == len(rows)

    for key, tried in attempts.items():
        states = {operation.value for operation in tried if operation.status != FAILED}
        acknowledged = [operation for operation in tried if operation.status == OK]
        if acknowledged and len(states) == 1:
            assert votes.get(key, 0) == acknowledged[0].value, f"{key} was acknowledged"
    for key, value in votes.items():
        assert value in {0, 1}
        assert any(operation.status != FAILED for operation in attempts[key]), f"{key} is a ghost"

    live: dict[int, int] = defaultdict(int)
    for (item, _), value in votes.items():
        live[item] += value
    for item, count in stored.items():
        # slotted brings item.vote_count up to date when it is flushed: the audit has done that.
        assert count == live[item]
    # Only slotted counts in cells on SQLite.
    counted = live if strategy == "slotted" else {}
    assert {item: n for item, n in cells.items() if n} == {i: n for i, n in counted.items() if n}
    return len(rows)


@pytest.mark.parametrize("seed", range(KILLS))
def test_acknowledged_writes_survive_the_kill_of_the_generator(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    kill_in_mid_run(folder, strategy, seed)

    code, document = run_json("audit", str(folder))
    (audited,) = document["runs"]
    audit = audited["audit"]
    assert code == 0, audit
    assert audited["state"] == "running"
    assert audited["settings"]["strategy"] == strategy
    assert (audit["lost"], audit["double"], audit["ghost"]) == (0, 0, 0)
    assert audit["counts_equal_live_votes"]

    operations = read_ledger(folder / "ledger.bin")
    acknowledged = sum(operation.status == OK for operation in operations)
    assert acknowledged > 0
    assert audit["acknowledged"] == acknowledged
    # It was in mid-run: somebody waited for an answer.
    assert audit["unknown"] == sum(operation.status == SENT for operation in operations)
    if seed % 3 != 2:
        assert audit["unknown"] > 0
    assert audit["rows"] == check_by_hand(folder, operations, strategy)
