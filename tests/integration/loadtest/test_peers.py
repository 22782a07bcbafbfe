"""loadtest/peers: what it measures is checked, and what is missing is named.

No peer is installed here: the loads are hotcount's own, a bare connection's and redis-benchmark's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from loadtest.peers import asyncio_contenders, contenders, keys, native, waiters
from loadtest.peers.contenders import Hotcount
from loadtest.peers.redis_counters import main
from loadtest.peers.report import summary, text_table
from loadtest.peers.rounds import (
    KEY_PREFIX,
    OURS,
    RATE,
    Case,
    Failed,
    Load,
    LostAdds,
    Measured,
    measure,
)
from tests.support.programs import captured
from tests.support.servers import RedisServer, free_port

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, port=free_port())
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def ours(server: RedisServer) -> Iterator[Hotcount]:
    contender = Hotcount(server.port)
    try:
        yield contender
    finally:
        contender.close()


def one_load(run: Callable[[float, int], Measured], contender: str = OURS) -> Case:
    return Case("case", "sync", [Load(contender, run)])


@pytest.mark.server
@pytest.mark.parametrize("threads", [1, 4])
def test_every_add_of_threads_is_found(server: RedisServer, ours: Hotcount, threads: int) -> None:
    case = one_load(partial(contenders.singly, ours, threads, 7))
    measure(server, [case], rounds=2, seconds=0.05)
    assert len(case.figures[OURS][RATE]) == 2
    assert min(case.figures[OURS][RATE]) > 0


@pytest.mark.server
@pytest.mark.parametrize("made", [keys.distinct_batches, keys.zipf_batches])
def test_every_add_of_batches_is_found(
    server: RedisServer, ours: Hotcount, made: Callable[[int], list[list[str]]]
) -> None:
    case = one_load(partial(contenders.batches, ours, made))
    measure(server, [case], rounds=1, seconds=0.05)
    # One batch at least was added, and counts for 1,000.
    assert case.figures[OURS][RATE][0] > 1_000


@asynccontextmanager
async def bare_connection(port: int, tasks: int) -> AsyncIterator[asyncio_contenders.AsyncAdd]:
    """One connection and no library: a call at a time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = asyncio.Lock()

    async def add(key: str) -> int:
        async with turn:
            writer.write(f"INCR {key}\r\n".encode())
            return int((await reader.readline())[1:])

    try:
        yield add
    finally:
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def losing_connection(port: int, tasks: int) -> AsyncIterator[asyncio_contenders.AsyncAdd]:
    """Says once that it has added, and has not."""
    lost = False
    async with bare_connection(port, tasks) as add:

        async def add_or_lose(key: str) -> object:
            nonlocal lost
            if not lost:
                lost = True
                return None
            return await add(key)

        yield add_or_lose


def on_a_loop(server: RedisServer, opened: asyncio_contenders.Open, prefix: str) -> Case:
    return one_load(partial(asyncio_contenders.singly, opened, prefix, server.port, 8, 7))


@pytest.mark.server
def test_every_add_of_tasks_is_found(server: RedisServer) -> None:
    cases = [
        on_a_loop(server, bare_connection, KEY_PREFIX),
        on_a_loop(server, asyncio_contenders.hotcount_aio, ""),
    ]
    measure(server, cases, rounds=1, seconds=0.05)
    for case in cases:
        assert case.figures[OURS][RATE][0] > 0


@pytest.mark.server
def test_a_task_that_loses_an_add_fails_the_run(server: RedisServer) -> None:
    case = on_a_loop(server, losing_connection, KEY_PREFIX)
    with pytest.raises(LostAdds, match="hotcount: case"):
        measure(server, [case], rounds=1, seconds=0.05)


class Dropping(Hotcount):
    """Says that it has added to the key k0, and has not."""

    def adder(self, thread: int) -> contenders.Add:
        add = super().adder(thread)
        return lambda key: None if key == "k0" else add(key)


class Doubling(Hotcount):
    def adder(self, thread: int) -> contenders.Add:
        add = super().adder(thread)

        def twice(key: str) -> object:
            add(key)
            return add(key)

        return twice


class Failing(Hotcount):
    def adder(self, thread: int) -> contenders.Add:
        if thread == 1:
            raise ValueError("no client for this thread")
        return super().adder(thread)


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "expected", "said"),
    [
        (Dropping, LostAdds, r"peer: case: \d+ added, \d+ there"),
        (Doubling, LostAdds, r"peer: case: \d+ added, \d+ there"),
        (Failing, Failed, "peer: case: ValueError.*no client for this thread"),
    ],
)
def test_what_a_contender_did_wrong_fails_the_run(
    server: RedisServer, kind: type[Hotcount], expected: type[Exception], said: str
) -> None:
    contender = kind(server.port)
    case = one_load(partial(contenders.singly, contender, 3, 2), "peer")
    try:
        with pytest.raises(expected, match=said):
            measure(server, [case], rounds=1, seconds=0.05)
    finally:
        contender.close()


def no_go() -> str:
    raise native.LeftOut("go is not installed: rueidis left out")


@pytest.mark.server
def test_the_runner_measures_from_cpp_and_names_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "find_go", no_go)
    file = tmp_path / "peers.json"
    words = ["--only", "cpp", "--rounds", "2", "--seconds", "0.05", "--json", str(file)]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "go is not installed: rueidis left out\n" in printed.out
    assert "go is not installed: rueidis left out\n" in printed.err
    document = json.loads(file.read_text())
    assert document["left_out"][0] == "go is not installed: rueidis left out"
    names = [case["case"] for case in document["cases"]]
    assert names[:2] == ["64 blocking threads, 1,000 keys", "64 blocking threads, 1 key"]
    for case in document["cases"]:
        assert len(case["by_round"][OURS][RATE]) == 2


@pytest.mark.server
@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ('{"adds": 3, "warm_adds": 2, "seconds": 0.5}', 0, "5 added, 0 there"),
        ("connection lost", 1, "hotcount-peers-cpp ended with 1: connection lost"),
    ],
)
def test_the_runner_fails_where_a_program_lost_adds_or_failed(
    line: str,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(native, "find_go", no_go)
    program = tmp_path / native.CPP_PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n[ $1 = modes ] && exit\necho '{line}'\nexit {status}\n")
    program.chmod(0o755)
    assert main(["--only", "cpp", "--rounds", "1", "--build", str(tmp_path)]) == 1
    failed = capsys.readouterr().err.splitlines()[-1]
    assert failed.startswith("FAILED: hotcount: 64 blocking threads, 1,000 keys: ")
    assert said in failed


def test_a_missing_peer_is_named_with_what_installs_it() -> None:
    # As in a .venv that `make peers` has not seen.
    hide = "import importlib.util as u; u.find_spec = lambda name: None"
    call = "from loadtest.peers.redis_counters import main; raise SystemExit(main([]))"
    done = captured([sys.executable, "-c", f"{hide}\n{call}"], cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr == "redis is not installed: run `make peers`\n"


def test_ratios_are_taken_within_rounds() -> None:
    figures = {OURS: {RATE: [100.0, 60.0, 90.0]}, "peer": {RATE: [10.0, 20.0, 10.0]}}
    found = summary(Case("case", "sync", [], figures=figures))
    ratio = {"median": 9, "min": 3, "max": 10}
    assert found["ratios"] == [{"peer": "peer", "metric": RATE, "ratio": ratio}]
    assert found["figures"]["peer"] == {RATE: {"median": 10, "min": 10, "max": 20}}
    assert "9.00 (3.00 .. 10.0)" in text_table([found])


@pytest.mark.server
def test_waiters_are_measured_beside_aiolimiter(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--tasks", "20", "--rounds", "1", "--seconds", "0.3", "--rate", "200/second"]
    assert waiters.main(few) == 0
    row = capsys.readouterr().out.splitlines()[-1]
    tasks, ours, *_, theirs, _ = row.strip("| ").split(" | ")
    assert tasks == "20"
    assert float(ours) > 0
    assert float(theirs) > 0
