"""Votes through a web server: gunicorn's sync workers under wrk, an HTTP client in C.

A sync worker answers one request at a time and closes the connection behind it, so wrk connects
for each request, as a proxy in front of such workers does. It keeps twice as many requests under
way as there are workers: none of them waits for work. A client in Python would take more of the
machine than the workers; wrk takes next to nothing.

Latencies are wrk's: from the request to the answer, so with the time that it waits for a worker.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import hotcount

from loadtest.peers import native
from loadtest.peers.rounds import P99, RATE, Failed, Measured, Missing
from loadtest.peers.vote_app import DJANGO
from tests.support.servers import free_port

SCRIPT = Path(__file__).with_name("vote.lua")
WARM_UP_S = 1
START_S = 30


def find_wrk() -> str:
    program = which("wrk")
    if program is None:
        raise Missing("wrk is not installed; run scripts/setup")
    return program


@contextmanager
def served(command: list[str], port: int, environment: dict[str, str]) -> Iterator[int]:
    """The process of a web server that answers on that port; it says nothing of a traceback."""
    with tempfile.TemporaryFile() as log:

        def said() -> str:
            log.seek(0)
            return log.read().decode(errors="replace")

        process = subprocess.Popen(
            command,
            cwd=native.ROOT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + START_S
            while not answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Failed(f"the server did not start; it said: {said()}")
                time.sleep(0.02)
            try:
                yield process.pid
            except Failed as failure:
                raise Failed(f"{failure}; the server said: {said()[-2000:]}") from failure
            if "Traceback" in said():
                raise Failed(f"the server said: {said()}")
        finally:
            process.terminate()  # A master takes its workers along.
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def gunicorn(workers: int, url: str, way: str) -> Iterator[int]:
    """The port that vote_app.py is served on."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "gunicorn", "--no-control-socket"),
        *("--bind", f"127.0.0.1:{port}", "--worker-class", "sync"),
        *("--workers", str(workers), "--timeout", "60"),
        "loadtest.peers.vote_app:application",
    ]
    with served(command, port, {"VOTE_APP_URL": url, "VOTE_APP_WAY": way}):
        yield port


def processor_seconds(process: int) -> float:
    """CPU time of the process and its children in seconds, to 10 ms."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    used = 0
    for each in (process, *children):
        said = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        used += int(said[11]) + int(said[12])  # utime and stime; the name may have spaces.
    return used / os.sysconf("SC_CLK_TCK")


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def wrk(port: int, connections: int, seconds: float, seed: int) -> dict[str, float]:
    printed = native.run(
        [
            *(find_wrk(), "--threads", "1", "--connections", str(connections)),
            *("--duration", f"{max(1, round(seconds))}s", "--timeout", "30s"),
            *("--latency", "--script", str(SCRIPT), f"http://127.0.0.1:{port}/", str(seed)),
        ]
    )
    figures: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
    if figures["refused"] or figures["broken"]:
        raise Failed(f"wrk: {figures}")
    return figures


def http_votes(url: str, way: str, workers: int, seconds: float, seed: int) -> Measured:
    """Requests a second on an empty database, audited: each answered one is a vote, and counted."""
    strategy = "naive" if way == DJANGO else way
    with hotcount.Votes(url, strategy=strategy) as votes:  # type: ignore[arg-type]
        votes.create_tables()
        votes.add_items([1])
    connections = 2 * workers
    with gunicorn(workers, url, way) as port:
        warm = wrk(port, connections, WARM_UP_S, 2 * seed)
        figures = wrk(port, connections, seconds, 2 * seed + 1)
    if not figures["requests"]:
        raise Failed(f"{way}: no request was answered in {seconds} s")
    with hotcount.Votes(url, strategy=strategy) as votes:  # type: ignore[arg-type]
        votes.flush()
        counted = int(votes.count(1))
        drift = votes.reconcile(dry_run=True)
    acknowledged = int(warm["requests"] + figures["requests"])
    # wrk abandons the requests under way when its time is over: each may or may not be a vote.
    if drift or not acknowledged <= counted <= acknowledged + 2 * connections:
        raise Failed(f"{way}: {counted} counted of {acknowledged} acknowledged, drift {drift}")
    rate = 1e6 * figures["requests"] / figures["us"]
    return Measured(0, {RATE: rate, P99: figures["p99_us"]})
