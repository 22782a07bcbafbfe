"""Servers behind a slow link: the proxy of the fault tests, in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from tests.faults.proxy import FaultProxy


def pass_on(server: Path, seconds: float, parent: Connection) -> None:
    with FaultProxy(server) as proxy:
        proxy.delay(seconds)
        parent.send(proxy.port)
        parent.recv()


@contextmanager
def link(server: Path, seconds: float) -> Iterator[int]:
    """A loopback port from which each piece of data takes so long, either way, to the socket."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=pass_on, args=(server, seconds, theirs))
    process.start()
    theirs.close()  # So that recv() ends if the process does.
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()
