"""hotcount.load.driver(): Python functions under hotcount-load, and the example with an ORM."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import hotcount
import pytest
from hotcount import load

from tests.support.eventually import eventually
from tests.support.load_generator import OK, program, read_ledger, run, run_json

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "loadtest" / "examples" / "orm_driver.py"
CALLERS = ["-w", "8", "--warmup", "0", "--progress", "none"]
# Far more than it takes; a machine may be busy.
PATIENCE_S = 60

HEAD = """
import asyncio, os, sqlite3, threading
import hotcount
from hotcount import load

votes = hotcount.Votes(os.environ["HOTCOUNT_LOAD_DB"], strategy="naive")

def setup(items):
    votes.create_tables()
    votes.add_items(range(1, items + 1))

def sql(query):
    with sqlite3.connect(os.environ["HOTCOUNT_LOAD_DB"].removeprefix("sqlite:///")) as database:
        return database.execute(query).fetchall()

def rows():
    return sql("SELECT item_id, user_id, val FROM vote")

def counts():
    return sql("SELECT id, vote_count FROM item")

def cast(item, user, value):
    return votes.cast(item, user, value)

def read(item):
    return votes.count(item).value
"""
PLAIN = "load.driver(setup=setup, cast=cast, read=read, rows=rows, counts=counts)"


def script(folder: Path, *parts: str) -> str:
    path = folder / "driver.py"
    path.write_text("\n".join(parts))
    return f"exec:{sys.executable} {path}"


def test_plain_functions_pass_and_are_audited_again_from_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    strategy = script(tmp_path, HEAD, PLAIN)
    arguments = ["--max-ops", "300", "-d", "30s", "--items", "50", *CALLERS]
    code, document = run_json("run", "-s", strategy, *arguments, "--out", str(out))
    assert code == 0, document["reasons"]
    assert document["audit"]["acknowledged"] > 0
    # What the callers were told is in the ledger: a fresh vote was 0 before.
    assert sum(each.status == OK for each in read_ledger(out / "ledger.bin", reads=True)) > 0
    again = run("audit", str(out))
    assert again.returncode == 0, again.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "variant",
    [
        # Coroutines in one event loop.
        """
import hotcount.aio
votes = None
async def setup(items):
    global votes
    votes = hotcount.aio.Votes(os.environ["HOTCOUNT_LOAD_DB"], strategy="naive")
    await votes.create_tables()
    await votes.add_items(range(1, items + 1))
async def cast(item, user, value):
    return await votes.cast(item, user, value)
async def read(item):
    return (await votes.count(item)).value
"""
        + PLAIN,
        # Three processes: each opens its own when it is first called.
        """
import functools
@functools.cache
def opened():
    return hotcount.Votes(os.environ["HOTCOUNT_LOAD_DB"], strategy="naive")
del votes
def setup(items):
    opened().create_tables()
    opened().add_items(range(1, items + 1))
def cast(item, user, value):
    return opened().cast(item, user, value)
def read(item):
    return opened().count(item).value
load.driver(
    setup=setup, cast=cast, read=read, rows=rows, counts=counts, processes=3, threads=2
)
""",
    ],
    ids=["coroutines", "processes"],
)
def test_other_ways_to_serve_pass(variant: str, tmp_path: Path) -> None:
    strategy = script(tmp_path, HEAD, variant)
    arguments = ["--max-ops", "300", "-d", "30s", "--items", "50", *CALLERS]
    code, document = run_json("run", "-s", strategy, *arguments)
    assert code == 0, document["reasons"]
    assert document["audit"]["acknowledged"] > 0


def test_an_exception_is_unknown_and_not_applied_is_failed(tmp_path: Path) -> None:
    odd = """
def cast(item, user, value):
    if user % 2:
        raise load.NotApplied("odd users do not vote")
    raise RuntimeError("who knows")
"""
    out = tmp_path / "run"
    arguments = ["--max-ops", "60", "-d", "30s", "--items", "50", "--mix", "vote=1", *CALLERS]
    strategy = script(tmp_path, HEAD, odd, PLAIN)
    code, document = run_json("run", "-s", strategy, *arguments, "--out", str(out))
    assert code == 3
    assert document["audit"]["failed"] > 0
    assert document["audit"]["unknown"] > 0
    assert document["audit"]["failed"] + document["audit"]["unknown"] == 60
    assert "RuntimeError: who knows" in (out / "driver.log").read_text()


@pytest.mark.long
def test_the_example_loses_votes_by_read_modify_write_and_passes_by_expression(
    tmp_path: Path,
) -> None:
    load_of = ["--items", "1", "--mix", "vote=1", "--dup", "0", "--max-ops", "40", "-d", "60s"]
    # Two voters at once are made certain: each waits, between its read and its write, for another.
    racy = f"""
import sys, threading
sys.path.insert(0, {str(EXAMPLE.parent)!r})
import orm_driver
both = threading.Barrier(2)
orm_driver.drive("naive", between=both.wait)
"""
    arguments = [*load_of, "-w", "2", "--warmup", "0", "--progress", "none"]
    code, document = run_json("run", "-s", script(tmp_path, racy), *arguments)
    assert code == 1, document["reasons"]
    # Of two that read the same count one is missing from it.
    assert document["audit"]["lost"] == 20
    assert document["audit"]["lost_rows"] == 0
    exact = f"exec:{sys.executable} {EXAMPLE} expression"
    code, document = run_json("run", "-s", exact, *load_of, *CALLERS)
    assert code == 0, document["reasons"]


def test_the_processes_of_a_driver_end_with_it_in_the_middle_of_a_call(tmp_path: Path) -> None:
    held, called = tmp_path / "held", tmp_path / "called"
    stuck = f"""
import fcntl, pathlib, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
def setup(items):
    pass
def cast(item, user, value):
    file = open({str(held)!r}, "w")
    fcntl.flock(file, fcntl.LOCK_SH)
    pathlib.Path({str(called)!r}).touch()
    time.sleep(600)
def read(item):
    return 0
def nothing():
    return []
load.driver(setup=setup, cast=cast, read=read, rows=nothing, counts=nothing, processes=2)
"""
    strategy = script(tmp_path, "from hotcount import load", stuck)
    arguments = ["-d", "60s", "--timeout", "60s", "--mix", "vote=1", "--items", "5", *CALLERS]
    generator = subprocess.Popen(
        [program(), "run", "-s", strategy, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(called.exists, PATIENCE_S)
    finally:
        generator.kill()
        generator.wait()

    def nobody_calls() -> bool:
        with held.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    # Each call would go on for ten minutes.
    eventually(nobody_calls, PATIENCE_S)


def test_a_cast_that_tells_what_is_no_vote_is_an_error() -> None:
    told = hotcount.Cast(counted=True, changed=True, previous=0, value=1 << 63)
    with pytest.raises(OverflowError, match="cast returned 9223372036854775808"):
        load.told_cast(told, 1)


def good(item: int) -> int:
    return item


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        ({"cast": 5}, TypeError, "cast must be a function, not int"),
        ({"setup": "make"}, TypeError, "setup must be a function, not str"),
        ({"threads": 0}, hotcount.ConfigError, "threads is 0; it takes 1 to 1024"),
        ({"threads": True}, TypeError, "threads must be an int, not bool"),
        ({"processes": 65}, hotcount.ConfigError, "processes is 65; it takes 1 to 64"),
        ({"place": 7}, TypeError, "place must be a str, not int"),
        ({"may_lose": "x" * 1001}, hotcount.ConfigError, "may_lose has 1001 characters"),
        ({}, hotcount.ConfigError, "driver() needs HOTCOUNT_LOAD_SOCKET"),
    ],
)
def test_bad_arguments_are_named(bad: dict[str, object], error: type, says: str) -> None:
    arguments: dict[str, object] = dict.fromkeys(("cast", "read", "rows", "counts"), good)
    with pytest.raises(error) as caught:
        load.driver(**{**arguments, **bad})  # type: ignore[arg-type]
    assert says in str(caught.value)
