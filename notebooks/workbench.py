"""What the notebooks share: a private Redis, callers at once, rounds, bars and a table of claims.

Everything here needs the wheel and its extra `notebook` alone, and redis-server (or valkey-server)
on the PATH for what runs over Redis.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import hotcount
import plotly.graph_objects as go
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# The tests run the notebooks on loads that take milliseconds.
SECONDS = float(os.environ.get("HOTCOUNT_NOTEBOOK_SECONDS", "0.5"))
ROUNDS = int(os.environ.get("HOTCOUNT_NOTEBOOK_ROUNDS", "3"))
PR_SET_PDEATHSIG = 1


class PrivateRedis:
    """A server in a temporary folder, without persistence; it ends with this process."""

    def __init__(self) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise RuntimeError("no redis-server on the PATH (Debian: apt install redis-server)")
        self._folder = tempfile.TemporaryDirectory(prefix="hotcount-notebook-")
        self.socket = Path(self._folder.name) / "redis.sock"
        words = ["--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        prctl = ctypes.CDLL(None).prctl
        self._process = subprocess.Popen(
            [program, *words, "--dir", self._folder.name],
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        atexit.register(self.stop)
        deadline = time.monotonic() + 10
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{program} did not start")
            time.sleep(0.01)

    def _accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}"

    def login(self, user: str, password: str) -> str:
        return f"redis+unix://{user}:{password}@{self.socket}"

    def callers(self, count: int) -> list[hotcount.Redis]:
        """Stores with a connection each, as callers in processes of their own have.

        Stores of one URL and equal options would share one.
        """
        return [hotcount.Redis(self.url, timeout=30 + i) for i in range(count)]

    def plain(self, **login: str) -> redis.Redis:
        """A redis-py client, for the code of the descriptions in ways.py."""
        once = Retry(NoBackoff(), 0)  # It repeats no command by itself.
        return redis.Redis(
            unix_socket_path=str(self.socket), socket_timeout=60, retry=once, **login
        )

    def pause(self) -> None:
        """From now on it answers nobody: to its clients it is away."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.resume()
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


def databases(folder: str) -> dict[str, str]:
    """URLs by name: SQLite in that folder, and those of HOTCOUNT_NOTEBOOK_DATABASES."""
    urls = [f"sqlite:///{folder}/notebook.db"]
    urls += os.environ.get("HOTCOUNT_NOTEBOOK_DATABASES", "").split()
    names = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}
    return {names[url.split(":")[0].split("+")[0]]: url for url in urls}


def version(store: hotcount.Redis) -> str:
    """The server's, for the text."""
    told = info(store, "server")
    if "valkey_version" in told:
        return f"Valkey {told['valkey_version']}"
    return f"Redis {told['redis_version']}"


def info(store: hotcount.Redis, section: str) -> dict[str, str]:
    """A section of INFO, by name."""
    lines = store.execute("INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def server_cost(
    store: hotcount.Redis, work: Callable[[], object], size: int
) -> tuple[float, float]:
    """Round trips, and microseconds of the server's CPU, for each of `size` things that work does.

    For one caller: what others send meanwhile is counted too.
    """

    def spent() -> tuple[int, float]:
        cpu = info(store, "cpu")
        seconds = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
        return int(info(store, "stats")["total_reads_processed"]), seconds * 1e6

    reads, before = spent()
    work()
    more_reads, after = spent()
    # The two looks at INFO are no part of the work.
    return (more_reads - reads - 2) / size, (after - before) / size


def at_once(calls: Sequence[Callable[[], object]]) -> list[object]:
    """Runs each in a thread of its own, all let go together; what they returned."""
    answers: list[object] = [None] * len(calls)
    failures: list[Exception] = []
    start = threading.Barrier(len(calls))

    def run(index: int) -> None:
        start.wait()
        try:
            answers[index] = calls[index]()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return answers


def held_back(
    store: hotcount.Redis, calls: Sequence[Callable[[], object]], seconds: float = 0
) -> list[object]:
    """Runs the calls against a server that answers reads and lets writes wait, as in a stall.

    Each call thus stops before its first write. When all have, and `seconds` later, all go on.
    Each needs a connection of its own.
    """
    store.execute("CLIENT", "PAUSE", 60_000, "WRITE")

    def release() -> None:
        deadline = time.monotonic() + 20
        try:
            while len(re.findall(rb" flags=x?b", store.execute("CLIENT", "LIST"))) < len(calls):
                if time.monotonic() > deadline:
                    raise RuntimeError("a call did not come to a write")
                time.sleep(0.002)
            time.sleep(seconds)
        finally:
            store.execute("CLIENT", "UNPAUSE")

    return at_once([*calls, release])[:-1]


def per_second(call: Callable[[int], object], threads: int = 1, size: int = 1) -> float:
    """How much `threads` callers do in a second, each of whom waits for its answer.

    call is given a number that is nobody else's; size: how much one call does. Each makes a call.
    """
    done = [0] * threads
    start = threading.Barrier(threads + 1)
    ends = [0.0]

    def run(index: int) -> None:
        start.wait()
        while done[index] == 0 or time.perf_counter() < ends[0]:
            call(done[index] * threads + index)
            done[index] += 1

    callers = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    for caller in callers:
        caller.start()
    began = time.perf_counter()
    ends[0] = began + SECONDS
    start.wait()
    for caller in callers:
        caller.join()
    return sum(done) * size / (time.perf_counter() - began)


def timed(call: Callable[[], object], least: float = 0.05) -> float:
    """Seconds of one call; it is made again until `least` seconds are over."""
    began, done = time.perf_counter(), 0
    while done == 0 or time.perf_counter() - began < least:
        call()
        done += 1
    return (time.perf_counter() - began) / done


def in_rounds(ways: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Each way's figures, a round each; rounds alternate, so that a slow moment hits all ways."""
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            figures[name].append(ways[name]())
    return figures


def ratio(ours: list[float], theirs: list[float]) -> str:
    """Ours over theirs, within rounds: the median, and the range."""
    each = [our / their for our, their in zip(ours, theirs)]
    return f"{statistics.median(each):.2f} x ({min(each):.2f}-{max(each):.2f})"


def median(figures: list[float]) -> float:
    return statistics.median(figures)


def layout(figure: go.Figure, title: str, unit: str, **more: object) -> go.Figure:
    figure.update_layout(
        title=title, yaxis_title=unit, template="plotly_white", width=760, height=400, **more
    )
    return figure


def bars(title: str, unit: str, figures: dict[str, list[float]], **more: object) -> go.Figure:
    """A bar for each way: the median, with a line from the worst round to the best."""
    middles = [median(each) for each in figures.values()]
    figure = go.Figure(
        go.Bar(
            x=list(figures),
            y=middles,
            error_y={
                "array": [max(e) - m for e, m in zip(figures.values(), middles)],
                "arrayminus": [m - min(e) for e, m in zip(figures.values(), middles)],
            },
            text=[f"{middle:,.4g}" if middle < 100 else f"{middle:,.0f}" for middle in middles],
            textposition="auto",
        )
    )
    return layout(figure, title, unit, **more)


class Claims:
    """The table that a notebook ends with: what was said, what was measured, what follows."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def add(self, claim: str, measured: str, verdict: str) -> None:
        self.rows.append((claim, measured, verdict))

    def __str__(self) -> str:
        lines = ["| claim | measured | verdict |", "|---|---|---|"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)])

    def _repr_markdown_(self) -> str:
        return str(self)

    def show(self) -> None:
        """In a notebook as a table, in a script as its text."""
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            print(self)
            return
        if get_ipython() is None:
            print(self)
        else:
            display(self)
