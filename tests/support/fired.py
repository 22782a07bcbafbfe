"""Proof that a fault took place: whatever injects one counts it here.

Proxies and fake servers call fired(), signals and forks are watched, servers are asked afterwards
which errors they gave. During a test of tests/faults/rows.py a proof that its row names has to be
counted. Otherwise the test proves nothing and fails, with a message that begins with VOID.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

import pytest

VOID = "VOID: "
# Behind the name of a test that ran with --mysql.
ON_MYSQL = " on mysql"

_lock = threading.Lock()
_seen: Counter[str] = Counter()
_servers: WeakKeyDictionary[Server, Counter[str]] = WeakKeyDictionary()


class Server(Protocol):
    """A server that can say which faults it has met since it started."""

    def faults(self) -> Counter[str]: ...

    def __hash__(self) -> int: ...


def fired(fault: str, times: int = 1) -> None:
    with _lock:
        _seen[fault] += times


def watch(server: Server) -> None:
    """It has started, and from now on is asked which errors it gave."""
    with _lock:  # A thread starts the cluster of the next test.
        _servers[server] = Counter()


def ask(server: Server) -> None:
    """Counts what is new at the server; one that has stopped or stands still has nothing to say."""
    before = _servers.get(server)
    if before is None:
        return
    now = server.faults()
    if now:
        _servers[server] = now
        for fault, times in (now - before).items():
            fired(fault, times)


def seen() -> Counter[str]:
    """What was counted since forget(), by the servers too."""
    with _lock:
        servers = list(_servers)
    for server in servers:
        ask(server)
    with _lock:
        return Counter(_seen)


def forget() -> None:
    seen()
    with _lock:
        _seen.clear()


def _watch_signals() -> None:
    kill = os.kill

    def counted(pid: int, number: int) -> None:
        kill(pid, number)
        if number:
            fired(signal.Signals(number).name)

    os.kill = counted
    os.register_at_fork(after_in_parent=lambda: fired("fork"))


class Row(Protocol):
    """Of tests/faults/rows.py."""

    @property
    def number(self) -> int: ...

    @property
    def proofs(self) -> tuple[str, ...]: ...


class FaultProofs:
    """The plugin. `rows_of` has the rows of a test by its node id."""

    def __init__(self, config: pytest.Config, rows_of: Callable[[str], Sequence[Row]]) -> None:
        self._rows_of = rows_of
        self._numbers = {int(n) for n in config.getoption("--fault-rows").split(",") if n}
        self._file: str | None = config.getoption("--faults")
        self._is_worker = hasattr(config, "workerinput")
        self._where = ON_MYSQL if config.getoption("--mysql") else ""
        _watch_signals()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if self._file is None:
            return
        numbers = {item: {row.number for row in self._rows_of(item.nodeid)} for item in items}
        kept = {item for item in items if numbers[item] & (self._numbers or numbers[item])}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._rows_of(item.nodeid):
            forget()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        rows = self._rows_of(item.nodeid)
        if not rows:
            return (yield)
        try:
            result = yield
        finally:
            counted = seen()
            item.user_properties.append(("faults", sorted(counted)))
        for row in rows:
            if not any(proof in counted for proof in row.proofs):
                pytest.fail(
                    f"{VOID}row {row.number} needs one of {row.proofs}; seen: {sorted(counted)}",
                    pytrace=False,
                )
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Of a test that passes its setup the call counts; a teardown that fails counts too.
        if self._file is None or self._is_worker or (report.when != "call" and report.passed):
            return
        said = "" if report.passed else str(report.longrepr)
        outcome = "void" if said.startswith(VOID) else report.outcome
        test = report.nodeid + self._where
        line = {"test": test, "outcome": outcome, "seconds": report.duration}
        seen_there = dict(report.user_properties).get("faults", [])
        with Path(self._file).open("a") as file:
            file.write(json.dumps({**line, "fired": seen_there, "said": said[-2000:]}) + "\n")
