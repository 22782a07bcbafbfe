"""Contenders that are programs: hotcount from C++, Go's clients, and redis-benchmark; and where
this work tree and another one have theirs.

    hotcount-peers-cpp PORT blocking|completions WIDTH SECONDS KEYS SEED
    hotcount-peers-go PORT rueidis|rueidis-delayed|go-redis WIDTH SECONDS KEYS SEED

WIDTH is the number of threads or goroutines, or of adds in flight. Both warm up, add for so long
and print one line of JSON: `adds` in `seconds`, and `warm_adds` before the clock started.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

from loadtest.peers.rounds import RATE, Failed, Measured

ROOT = Path(__file__).resolve().parents[2]
GO_SOURCES = ROOT / "loadtest" / "peers" / "go"
CPP_PROGRAM = Path("loadtest", "peers", "cpp", "hotcount-peers-cpp")
VOTES_PROGRAM = CPP_PROGRAM.with_name("hotcount-peers-votes")
GO_PROGRAM = Path("build", "peers", "hotcount-peers-go")
# Where Go's own installation instructions put it; often not on PATH.
GO_HOME = "/usr/local/go/bin"
PROGRAM_TIMEOUT_S = 120


class LeftOut(Exception):
    """Contenders cannot run here; the message says which and why."""


def tree_of(text: str) -> Path:
    """An argument that names another work tree, in which `make build` was run."""
    tree = Path(text).resolve()
    for needed in (".venv/bin/python", ".venv/bin/hotcount-load"):
        if not (tree / needed).exists():
            raise argparse.ArgumentTypeError(f"{tree / needed} is missing: run `make build` there")
    return tree


def run(command: list[str]) -> str:
    """What the program prints. Failed, with what it says on stderr, if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise Failed(str(failure)) from failure
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise Failed(f"{Path(command[0]).name} ended with {done.returncode}: {said}")
    return done.stdout


def parse_line(printed: str) -> Measured:
    line = json.loads(printed)
    return Measured(line["adds"] + line["warm_adds"], {RATE: line["adds"] / line["seconds"]})


def singly(
    program: Path, mode: str, width: int, key_count: int, port: int, seconds: float, seed: int
) -> Measured:
    """Adds of 1, one by one, to keys drawn uniformly, by a program of ours."""
    words = [port, mode, width, seconds, key_count, seed]
    return parse_line(run([str(program), *map(str, words)]))


def cpp_program(build: Path) -> Path:
    program = build / CPP_PROGRAM
    if not program.exists():
        raise LeftOut(f"{program} is not built: hotcount from C++, rueidis and go-redis left out")
    return program


def find_go() -> str:
    go = shutil.which("go") or shutil.which("go", path=GO_HOME)
    if go is None:
        raise LeftOut("go is not installed: rueidis and go-redis left out")
    return go


def go_program(go: str) -> Path:
    """Builds it: after the first time a second's work."""
    program = ROOT / GO_PROGRAM
    done = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=GO_SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing said"]
        raise LeftOut(f"go build failed: rueidis and go-redis left out ({said[-1]})")
    return program


def go_versions() -> dict[str, str]:
    """Of the Go peers, as go.mod pins them."""
    pins = (GO_SOURCES / "go.mod").read_text()
    return {
        name.split("/")[0]: version
        for name, version in re.findall(r"github\.com/redis/(\S+) v(\S+)", pins)
    }


def find_benchmark() -> str:
    program = shutil.which("redis-benchmark")
    if program is None:
        raise LeftOut("redis-benchmark is not installed: the server's limit left out")
    return program


def parse_csv(printed: str) -> float:
    """INCRs a second from redis-benchmark's --csv."""
    rows = list(csv.DictReader(io.StringIO(printed)))
    rates = [row["rps"] for row in rows if row["test"] == "INCR"]
    if len(rates) != 1:
        raise Failed(f"redis-benchmark printed no INCR: {printed!r}")
    return float(rates[0])


class RedisBenchmark:
    """redis-benchmark: what the server does if the client does next to nothing.

    It prepares its commands once and only counts the replies, and draws its keys uniformly from
    1,000 of its own. With -P 100 each of its connections has 100 commands under way, so that 50
    connections have 5,000; hotcount's batch is 1,000 on one connection. It takes a number of
    requests instead of a time: a first run finds out how many.
    """

    def __init__(self, program: str, port: int, connections: int, pipeline: int) -> None:
        self._pipeline = pipeline
        self._command = [
            program,
            *("-h", "127.0.0.1"),
            *("-p", str(port)),
            *("-c", str(connections)),
            *("-P", str(pipeline)),
            *("-t", "incr"),
            *("-r", "1000"),
            "--csv",
        ]
        self._rate = 0.0

    def run(self, seconds: float, _seed: int) -> Measured:
        added = 0
        if not self._rate:
            added = 5_000 * self._pipeline
            self._rate = self._requests(added)
        # Whole pipelines: it sends no part of one.
        count = max(int(self._rate * seconds / self._pipeline), 1) * self._pipeline
        self._rate = self._requests(count)
        return Measured(added + count, {RATE: self._rate})

    def _requests(self, count: int) -> float:
        return parse_csv(run([*self._command, "-n", str(count)]))
