"""Contenders that are programs: hotcount from C++, a client of Go, Rust's limiters, and
redis-benchmark; and where this work tree and another one have theirs.

    hotcount-peers-cpp PORT blocking|completions|memory-hits|redis-hits WIDTH SECONDS KEYS SEED
    hotcount-peers-go PORT rueidis|rueidis-delayed WIDTH SECONDS KEYS SEED
    hotcount-peers-rust PORT memory WIDTH SECONDS KEYS SEED

WIDTH is the number of threads or goroutines, or of adds in flight. All warm up, add for so long
and print one line of JSON: `adds` in `seconds`, and `warm_adds` before the clock started.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from loadtest.peers.rounds import RATE, Failed, Measured
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
GO_SOURCES = ROOT / "loadtest" / "peers" / "go"
CPP_PROGRAM = Path("loadtest", "peers", "cpp", "hotcount-peers-cpp")
VOTES_PROGRAM = CPP_PROGRAM.with_name("hotcount-peers-votes")
RUST_SOURCES = ROOT / "loadtest" / "peers" / "rust"
RUST_BUILD = ROOT / "build" / "peers" / "rust"
# crates.io has it as a program.
THROTTLECRAB = ("throttlecrab-server", "0.4.40")
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
    """Returns the program's stdout. Raises Failed, with its stderr, if it fails."""
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


def cpp_program(build: Path, purpose: str) -> Path:
    program = build / CPP_PROGRAM
    if not program.exists():
        raise LeftOut(f"{program} is not built: {purpose} left out")
    return program


def cargo(purpose: str, words: list[str], cwd: Path) -> None:
    """Builds something of Rust: after the first time a second's work."""
    program = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo/bin"))
    if program is None:
        raise LeftOut(f"cargo is not installed: {purpose} left out")
    done = subprocess.run([program, *words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing said"]
        raise LeftOut(f"cargo failed: {purpose} left out ({said[-1]})")


def rust_program() -> Path:
    words = ["build", "--release", "--locked", "--target-dir", str(RUST_BUILD)]
    cargo("governor", words, RUST_SOURCES)
    return RUST_BUILD / "release" / "hotcount-peers-rust"


def throttlecrab_program() -> Path:
    name, version = THROTTLECRAB
    program = RUST_BUILD / "bin" / name
    if not program.exists():
        if shutil.which("protoc") is None:
            raise LeftOut(f"protoc (Debian: protobuf-compiler) is not installed: {name} left out")
        words = ["install", name, "--version", version, "--locked", "--root", str(RUST_BUILD)]
        cargo(name, words, ROOT)
    return program


def rust_versions() -> dict[str, str]:
    """Of the Rust peers, as they are pinned."""
    pinned = re.findall(
        r'(\w+) = (?:{ version = )?"=([^"]+)"', (RUST_SOURCES / "Cargo.toml").read_text()
    )
    return {**dict(pinned), THROTTLECRAB[0]: THROTTLECRAB[1]}


class Throttlecrab:
    """A throttlecrab-server of our own, on its Redis protocol."""

    def __init__(self, program: Path, port: int) -> None:
        self.port = port
        self._process = subprocess.Popen(
            [program, "--redis", "--redis-host", "127.0.0.1", "--redis-port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends = time.monotonic() + 10
        while not self._accepts():
            if time.monotonic() > ends or self._process.poll() is not None:
                self.close()
                raise LeftOut("throttlecrab-server did not start: it is left out")
            time.sleep(0.01)

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)


def throttlecrab() -> Throttlecrab:
    return Throttlecrab(throttlecrab_program(), free_port())


def find_go() -> str:
    go = shutil.which("go") or shutil.which("go", path=GO_HOME)
    if go is None:
        raise LeftOut("go is not installed: rueidis left out")
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
        raise LeftOut(f"go build failed: rueidis left out ({said[-1]})")
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


def parse_csv(printed: str, command: str = "INCR") -> float:
    """The rate of the command in redis-benchmark's --csv, a second."""
    rows = list(csv.DictReader(io.StringIO(printed)))
    rates = [row["rps"] for row in rows if row["test"] == command]
    if len(rates) != 1:
        raise Failed(f"redis-benchmark printed no {command}: {printed!r}")
    return float(rates[0])


class RedisBenchmark:
    """redis-benchmark: what the server does if the client does next to nothing.

    It prepares its commands once and only counts the replies, and draws its keys uniformly from
    1,000 of its own. With -P 100 each of its connections has 100 commands under way, so that 50
    connections have 5,000; hotcount's batch is 1,000 on one connection. It takes a number of
    requests instead of a time: a first run finds out how many. `command`: instead of INCR.
    """

    def __init__(
        self, program: str, port: int, connections: int, pipeline: int, command: str = ""
    ) -> None:
        self._pipeline = pipeline
        self._named = command or "INCR"
        self._command = [
            program,
            *("-h", "127.0.0.1"),
            *("-p", str(port)),
            *("-c", str(connections)),
            *("-P", str(pipeline)),
            *("-r", "1000"),
            "--csv",
        ]
        self._sends = command.split() or ["-t", "incr"]
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
        return parse_csv(run([*self._command, "-n", str(count), *self._sends]), self._named)
