"""Each kind of audit finds an effect that is missing and one that is there twice.

Somebody changes what a run left; the audit of its folder must say how much, and exit with 1.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.load_generator import SMALL, run, run_json
from tests.support.servers import RedisServer

# So many calls, however long they take.
LOAD = ["-d", "60s", "--max-ops", "60", "--mix", "vote=1", *SMALL]


def audited(folder: Path) -> tuple[int, dict[str, Any]]:
    code, document = run_json("audit", str(folder))
    (found,) = document["runs"]
    return code, found["audit"]


def change(folder: Path, *statements: str) -> None:
    with sqlite3.connect(folder / "votes.sqlite3") as database:
        for statement in statements:
            assert database.execute(statement).rowcount == 1, statement
    database.close()


LOST_AND_DOUBLED = {"lost": 2, "double": 3}
GHOST = "INSERT INTO vote (item_id, user_id, val) VALUES (3, 987654321, 1)"


def two_counts(table: str, column: str, key: str, *names: str) -> list[str]:
    changes = zip(("- 2", "+ 3"), names, strict=True)
    return [f"UPDATE {table} SET {column} = {column} {by} WHERE {key} = {n}" for by, n in changes]


KEYS = ("key", "'item:1'", "'item:2'")


def one_vote_less(which: str = "") -> str:
    first = f"SELECT item_id, user_id FROM vote {which} LIMIT 1"
    return f"DELETE FROM vote WHERE (item_id, user_id) = ({first})"


REDIS = ["--managed", "redis"]
ON_REDIS = [pytest.mark.long, pytest.mark.server]
LIVE = one_vote_less("WHERE val = 1")


@pytest.mark.parametrize(
    ("strategy", "more", "changes", "finds"),
    [
        # One slot, so that a key is one row.
        (
            "slots/sticky",
            ["--slots", "1", "--items", "2"],
            two_counts("hotcount_slot", "count", *KEYS),
            LOST_AND_DOUBLED,
        ),
        ("insert_only", [], [one_vote_less(), GHOST], {"lost": 1, "ghost": 1}),
        ("batched", [], [LIVE, GHOST], {"lost_rows": 1, "ghost": 1}),
        (
            "batched",
            ["--items", "2"],
            two_counts("item", "vote_count", "id", "1", "2"),
            LOST_AND_DOUBLED,
        ),
        pytest.param(
            "redis/views",
            [*REDIS, "--items", "2"],
            two_counts("hotcount_views", "total", *KEYS),
            LOST_AND_DOUBLED,
            marks=ON_REDIS,
        ),
        *(
            pytest.param(
                strategy, REDIS, [LIVE, GHOST], {"lost_rows": 1, "ghost": 1}, marks=ON_REDIS
            )
            for strategy in ("redis/seed_cached", "redis/write_behind")
        ),
    ],
)
def test_rows_that_are_missing_changed_or_made_up_are_found(
    temporary: Path,
    tmp_path: Path,
    strategy: str,
    more: list[str],
    changes: list[str],
    finds: dict[str, int],
) -> None:
    folder = tmp_path / "run"
    assert run("run", "-s", strategy, *LOAD, *more, "--out", str(folder)).returncode == 0
    assert audited(folder)[0] == 0
    change(folder, *changes)
    code, found = audited(folder)
    assert (code, {name: found[name] for name in finds}) == (1, finds)


CHANGE_TWO_COUNTS = """
local changed = 0
for _, key in ipairs(redis.call('KEYS', 'hotcount-load:*')) do
    local kind = redis.call('TYPE', key).ok
    local by = changed == 0 and -2 or 3
    if kind == 'hash' and redis.call('HEXISTS', key, 'value') == 1 then
        redis.call('HINCRBY', key, 'value', by)
        changed = changed + 1
    elseif kind == 'string' and string.find(key, ':count:') then
        redis.call('INCRBY', key, by)
        changed = changed + 1
    end
    if changed == 2 then return changed end
end
return changed"""


@pytest.mark.parametrize("strategy", ["redis/cached", "redis/ttl"])
def test_counts_on_a_redis_that_are_too_low_and_too_high_are_found(
    own_redis: RedisServer, tmp_path: Path, strategy: str
) -> None:
    folder = tmp_path / "run"
    arguments = ["run", "-s", strategy, "--redis", own_redis.url, "--out", str(folder)]
    assert run(*arguments, *LOAD).returncode == 0
    assert audited(folder)[0] == 0
    with own_redis.redis() as redis:
        assert redis.execute("EVAL", CHANGE_TWO_COUNTS, 0) == 2
    code, found = audited(folder)
    assert code == 1
    assert (found["count_low"], found["count_high"]) == (2, 3)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "kept"
    assert run("run", "-s", "batched", "--out", str(folder), *LOAD).returncode == 0
    assert audited(folder)[0] == 0
    return folder


def overwrite(at: int, data: bytes) -> Callable[[Path], None]:
    def change_ledger(folder: Path) -> None:
        with (folder / "ledger.bin").open("r+b") as file:
            file.seek(at)
            file.write(data)

    return change_ledger


def take_that_of_another_run(folder: Path) -> None:
    other = folder.parent / "other"
    assert run("run", "-s", "batched", "--out", str(other), "--seed", "2", *LOAD).returncode == 0
    shutil.copy(other / "ledger.bin", folder / "ledger.bin")


# The third call, as loadtest/src/load/ledger.hpp lays it out.
CALL = 4096 + 2 * 64


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (take_that_of_another_run, "ledger.bin is of another run: it has seed 2, run.json says 1"),
        (overwrite(CALL + 56, b"\x09\0\0\0"), "is damaged: call 2 has status 9"),
        (overwrite(CALL + 28, b"\x07"), "is damaged: call 2 has kind 7"),
        (overwrite(CALL + 8, bytes(8)), "call 2 has item 0, and the run had 1 to 200"),
        (overwrite(CALL + 8, b"\xff" * 7 + b"\x7f"), "call 2 has item 9223372036854775807"),
        (overwrite(CALL + 48, bytes(8)), "call 2 has an answer from before its sending"),
        (overwrite(CALL + 56, b"\1\0\0\0"), "59 calls of it ended, run.json says 60"),
        (overwrite(32, b"\x37"), "55 calls of it ended, run.json says 60"),
    ],
    ids=["other", "status", "kind", "no-item", "far-item", "answer", "unsent", "cut"],
)
def test_a_ledger_that_is_not_the_one_of_the_run_says_nothing_about_it(
    damage: Callable[[Path], None], says: str, kept: Path
) -> None:
    damage(kept)
    done = run("audit", str(kept))
    assert done.returncode == 3
    assert "audit impossible" in done.stdout
    assert says in done.stdout


def test_an_audit_that_needs_more_memory_than_there_is_says_so(kept: Path) -> None:
    document = json.loads((kept / "run.json").read_text())
    document["settings"]["items"] = 10**17
    (kept / "run.json").write_text(json.dumps(document))
    done = run("audit", str(kept))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "audit impossible: " in done.stdout


@pytest.mark.long
def test_counters_on_sql_get_a_file_of_their_own_in_each_round(tmp_path: Path) -> None:
    database = tmp_path / "counts.db"
    done = run(
        *[
            "compare",
            "-s",
            "slots/sticky,slots/random",
            "--rounds",
            "2",
            "--no-control",
            "--no-best",
        ],
        *["--db", f"sqlite:///{database}", "--out", str(tmp_path / "out"), *LOAD],
    )
    assert done.returncode == 0, done.stderr
    assert not database.exists()
    assert len(list(tmp_path.glob("counts-closed-0[12]-slots-*.db"))) == 4


@pytest.mark.long
@pytest.mark.server
def test_the_counts_of_the_first_description_go_with_their_trial(temporary: Path) -> None:
    """Its keys have no prefix: of a trial before, they would be the next one's counts."""
    arguments = ["compare", "-s", "redis/seed_cached,redis/cached", "--managed", "redis"]
    code, document = run_json(*arguments, "--rounds", "2", *LOAD)
    assert code == 0, document
    (part,) = document["parts"]
    assert [each["audit"]["drift"] for each in part["strategies"]] == [0, 0]
