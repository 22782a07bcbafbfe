"""What callers were told is audited: a count moved in mid-run and moved back is found.

Somebody else does it, in the database that the run works on. Nothing of it is left at the end.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.load_generator import OK, program, read_ledger, run, run_json
from tests.support.servers import RedisServer

# Far more than it takes; a machine may be busy.
PATIENCE_S = 60
FAR = 1_000_000
# Of one item, so that each read is of the one that is moved.
LOAD = ["-d", "60s", "-w", "4", "--items", "1", "--mix", "vote=1,read=1", "--warmup", "0"]


def numbers_read(folder: Path) -> list[int]:
    """By now, while the run goes on: none before the ledger has its header."""
    ledger = folder / "ledger.bin"
    if not ledger.exists():
        return []
    with ledger.open("rb") as file:
        if file.read(8) != b"hcledger":
            return []
    return [each.returned for each in read_ledger(ledger, reads=True) if each.status == OK]


def found_after_move(folder: Path, arguments: list[str], move: Callable[[int], None]) -> None:
    """Moves the count while the run goes on, and back when it has been read."""
    load = subprocess.Popen(
        [program(), "run", *arguments, *LOAD, "--progress", "none", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: len(numbers_read(folder)) > 10, PATIENCE_S)
        move(FAR)
        eventually(lambda: max(numbers_read(folder)) >= FAR, PATIENCE_S)
        move(-FAR)
        load.send_signal(signal.SIGINT)
        out, err = load.communicate(timeout=PATIENCE_S)
    finally:
        load.kill()
        load.wait()
    assert load.returncode == 1, err
    assert b"reads right at no moment, against their promise" in b" ".join(out.split())
    code, document = run_json("audit", str(folder))
    assert code == 1
    audit = document["runs"][0]["audit"]
    assert audit["counts_equal_live_votes"]
    assert (audit["lost"], audit["double"], audit["ghost"]) == (0, 0, 0)
    seen = sum(number >= FAR for number in numbers_read(folder))
    assert audit["wrong_reads"] >= seen > 0
    assert audit["reads"]["checked"] > audit["wrong_reads"]


def test_a_count_that_is_moved_and_moved_back_in_sqlite_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def move(by: int) -> None:
        with sqlite3.connect(folder / "votes.sqlite3", timeout=PATIENCE_S) as database:
            database.execute("UPDATE item SET vote_count = vote_count + ?", (by,))
        database.close()

    found_after_move(folder, ["-s", "naive"], move)


def test_a_counter_that_is_moved_and_moved_back_in_redis_is_found(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    def move(by: int) -> None:
        with own_redis.redis() as redis:
            (key,) = redis.execute("KEYS", "hotcount-load:*count:item:1")
            redis.execute("INCRBY", key, by)

    found_after_move(tmp_path / "run", ["-s", "redis", "--redis", own_redis.url], move)


def test_a_ledger_of_version_1_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["-s", "batched", "--max-ops", "20", "--items", "5", "--warmup", "0", "-d", "60s"]
    assert run("run", *words, "--progress", "none", "--out", str(folder)).returncode == 0
    ledger = folder / "ledger.bin"
    data = bytearray(ledger.read_bytes())
    data[8:12] = (1).to_bytes(4, "little")
    ledger.write_bytes(data)
    done = run("audit", str(folder))
    assert done.returncode == 3
    assert "version 1, which does not say what callers were told" in done.stdout
    assert "commit 866ef8f1 is the last that reads it" in done.stdout
    assert ledger.read_bytes() == data
