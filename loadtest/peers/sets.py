"""Sorted sets: hotcount beside redis-py that calls the same script, and what waits beside batches.

Single upserts from 32 threads: hotcount's travel together, redis-py sends each by itself. A
bystander asks for one key of its own, on its own connection and from its own process, while one
thread writes 250 elements at a time in batches; the figures are its 99th percentile and what the
thread wrote.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hotcount

from loadtest.peers import contenders, keys
from loadtest.peers.rounds import P99, RATE, TIMEOUT_S, Measured

SCRIPT = Path(__file__).resolve().parents[2] / "cpp" / "src" / "zset" / "lua" / "upsert.lua"
SETS = 250
KEYS = 1_000
KEEP_MS = "3600000"

ONE_CALL = "one call us"

Write = Callable[[int, float], object]


def store_at(port: int) -> hotcount.Redis:
    return hotcount.Redis(f"redis://127.0.0.1:{port}", timeout=TIMEOUT_S)


def made(store: hotcount.Redis) -> list[str]:
    sets = hotcount.LiveSets(store)
    names = [f"feed:{number}" for number in range(SETS)]
    for name in names:
        sets.create(name, 600, [("first", 1.0)])
    return names


def keys_of(name: str) -> list[str]:
    """The keys that an upsert without a version declares."""
    return [name, f"{{{name}}}:versions.1"]


def arguments_of(member: str, score: float, name: str) -> list[str]:
    return [member, repr(score), str(len(keys_of(name)))]


def members_of(seed: int, thread: int) -> list[str]:
    """The members that one thread upserts, in turn: drawn from the same names in every thread."""
    return keys.uniform(KEYS, 2_000, seed * 1_000 + thread)


def ours_singly(port: int, threads: int, seconds: float, seed: int) -> Measured:
    with store_at(port) as store:
        names, sets = made(store), hotcount.LiveSets(store)

        def upsert(member: str) -> None:
            if not sets.upsert(names[hash(member) % SETS], member, 1.5):
                raise RuntimeError("an upsert into a set that lives was not applied")

        return drive(upsert, threads, seconds, seed)


def redis_py_singly(port: int, threads: int, seconds: float, seed: int) -> Measured:
    """Runs the same script by EVALSHA, on a client with a large enough pool."""
    import redis

    with store_at(port) as store:
        names = made(store)
    client = redis.Redis(host="127.0.0.1", port=port, max_connections=64, socket_timeout=TIMEOUT_S)
    try:
        script = client.script_load(SCRIPT.read_text())

        def upsert(member: str) -> None:
            name = names[hash(member) % SETS]
            words = [*keys_of(name), "0", KEEP_MS, *arguments_of(member, 1.5, name)]
            if client.evalsha(script, len(keys_of(name)), *words) != [1]:
                raise RuntimeError("an upsert into a set that lives was not applied")

        return drive(upsert, threads, seconds, seed)
    finally:
        client.close()


def drive(call: Callable[[str], object], threads: int, seconds: float, seed: int) -> Measured:
    return contenders.drive(
        lambda _thread: call,
        partial(members_of, seed),
        threads,
        seconds,
    )


BYSTANDER = """
import socket, sys, time
port, seconds = int(sys.argv[1]), float(sys.argv[2])
connection = socket.create_connection(("127.0.0.1", port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
took, ends = [], time.perf_counter() + seconds
while (began := time.perf_counter()) < ends:
    connection.sendall(b"*2\\r\\n$3\\r\\nGET\\r\\n$9\\r\\nbystander\\r\\n")
    connection.recv(100)
    took.append(time.perf_counter() - began)
    time.sleep(0.001)
took.sort()
print(took[int(len(took) * 0.99)] * 1e6)
"""


def beside(write: Callable[[Any], Any] | None, port: int, seconds: float, seed: int) -> Measured:
    """A bystander's 99th percentile while `write` upserts into all sets over and over, how much it
    wrote, and how long the server ran for one script. With `write` None there are no upserts.
    """
    with store_at(port) as store:
        made(store)
        store.execute("CONFIG", "RESETSTAT")
        words = [sys.executable, "-c", BYSTANDER, str(port), str(seconds)]
        call = write(store) if write else lambda: time.sleep(0.01)
        program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        done, started = 0, time.perf_counter()
        while program.poll() is None:
            call()
            done += SETS
        figures = {P99: float(program.communicate()[0])}
        if write:
            figures[RATE] = done / (time.perf_counter() - started)
        stats = store.execute("INFO", "commandstats").decode()
        if script := re.search(r"cmdstat_evalsha:.*?usec_per_call=([\d.]+)", stats):
            figures[ONE_CALL] = float(script[1])
    return Measured(0, figures)


def writes_of(method: str, batch: int) -> Callable[[Any], Callable[[], object]]:
    def opened(store: Any) -> Callable[[], object]:
        sets = hotcount.LiveSets(store, method=method)  # type: ignore[arg-type]
        names = [f"feed:{number}" for number in range(SETS)]
        scores = [float(number) for number in range(SETS)]
        members = ["m"] * SETS
        return lambda: sets.upsert_many(keys=names, members=members, scores=scores, batch=batch)

    return opened
