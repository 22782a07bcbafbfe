"""Waiting for a fact instead of for a time."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# What a busy machine may add to a deadline, in seconds. A call that forgot its deadline would wait
# for the store's default or for ever.
BUSY = 2.0


def eventually(fact: Callable[[], bool], seconds: float = 20) -> None:
    """Returns once fact() is true; fails when that takes so long that it never will be.

    Pauses are 5 % of the time waited, 10 ms at most: many a look asks a server, or six.
    """
    began = time.monotonic()
    while not fact():
        waited = time.monotonic() - began
        assert waited < seconds, "it never came to be"
        time.sleep(min(max(0.002, waited / 20), 0.01))


def states_of(pid: int) -> set[str]:
    """The states of the process's threads, as ps prints them; empty once it is gone."""
    states = set()
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError):  # It has ended meanwhile.
                states.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return states


def stand_still(pid: int) -> None:
    """Sends SIGSTOP, and returns once every thread has stopped: none does anything any more."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: states_of(pid) <= {"T"})
