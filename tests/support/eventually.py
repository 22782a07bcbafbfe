"""Waiting for a fact instead of for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

# What a busy machine may add to a deadline, in seconds. A call that forgot its deadline would wait
# for the store's default or for ever.
BUSY = 2.0


def eventually(fact: Callable[[], bool], seconds: float = 20) -> None:
    """Returns once fact() is true; fails when that takes so long that it never will be."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.002)
