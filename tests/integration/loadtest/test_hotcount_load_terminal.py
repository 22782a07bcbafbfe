"""What hotcount-load writes to a terminal: its progress is gone before its text begins."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.support.load_generator import program

QUICK = ["--items", "50", "-w", "8", "-d", "50ms", "--warmup", "0"]


def on_a_terminal(*arguments: str, columns: int = 200) -> tuple[int, str]:
    """Runs it with both of its streams on a terminal: its exit code and all that it wrote there."""
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    studies = arguments[0] in ("search", "sweep")
    command = [sys.executable, "-m", "hotcount", "load"] if studies else [program()]
    child = subprocess.Popen([*command, *arguments], stdout=its_end, stderr=its_end)
    os.close(its_end)
    written = b""
    try:
        while True:
            try:
                some = os.read(terminal, 65536)
            except OSError:  # Linux says so that nobody holds the other end.
                break
            if not some:
                break
            written += some
    finally:
        os.close(terminal)
        code = child.wait(60)
    return code, written.decode().replace("\r\n", "\n")


def shown(line: str) -> str:
    """What stands in a line in the end: each part after a return writes over the one before."""
    cells: list[str] = []
    for part in line.split("\r"):
        cells[: len(part)] = part
    return "".join(cells).rstrip()


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (
            ["compare", "--workload", "counters", "-s", "memory,memory/ttl", "--rounds", "1"],
            "hotcount-load: a comparison",
        ),
        (
            ["search", "-s", "memory", "--slo", "max<10s", "--from", "100", "--max-time", "300ms"],
            "The highest rate under max<10s",
        ),
        (["sweep", "-s", "memory", "--rates", "50"], "Rates of an open loop"),
    ],
    ids=["compare", "search", "sweep"],
)
def test_the_text_begins_in_an_empty_line(arguments: list[str], first: str) -> None:
    code, written = on_a_terminal(*arguments, *QUICK)
    assert code in (0, 3), written  # A machine that is busy may not carry a rate.
    assert "[1" in written, "there was progress to take back"
    (title,) = [shown(line) for line in written.split("\n") if first in line]
    assert title.startswith(first)
    counted = re.findall(r"\[(\d+)/(\d+)\]", written)
    assert not counted or counted[-1][0] == counted[-1][1], "all trials that were expected ran"


def test_an_error_begins_in_an_empty_line() -> None:
    """An open database in a folder that is not there is found when the first trial is set up."""
    missing = "sqlite:////nonexistent/folder/votes.db"
    code, written = on_a_terminal("compare", "-s", "naive,batched", "--db", missing, *QUICK)
    assert code in (2, 3), written
    lines = [shown(line) for line in written.split("\n") if "/nonexistent/" in line]
    assert lines
    assert lines[0].startswith("hotcount-load: ")


def test_progress_is_no_wider_than_the_terminal() -> None:
    code, written = on_a_terminal(
        *["compare", "--workload", "counters", "-s", "memory,memory/ttl", "--rounds", "1"],
        *QUICK,
        columns=20,
    )
    assert code in (0, 3), written
    lines = [part for line in written.split("\n") for part in line.split("\r") if "[" in part[:1]]
    assert lines
    assert max(map(len, lines)) < 20
