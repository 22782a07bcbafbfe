"""Votes in a dict: what is left is the cost of the protocol, the ceiling of drivers in Python.

hotcount-load run -s 'exec:python loadtest/examples/memory_driver.py' -w 32 -d 3s
"""

from __future__ import annotations

import collections
import threading

from hotcount import load

votes: dict[tuple[int, int], int] = {}
counted: collections.Counter[int] = collections.Counter()
lock = threading.Lock()


def cast(item: int, user: int, value: int) -> bool:
    with lock:
        before = votes.get((item, user), 0)
        votes[item, user] = value
        counted[item] += value - before
        return before != value


def read(item: int) -> int:
    return counted[item]


def rows() -> list[tuple[int, int, int]]:
    return [(item, user, value) for (item, user), value in votes.items()]


if __name__ == "__main__":
    load.driver(
        cast=cast,
        read=read,
        rows=rows,
        counts=lambda: counted,
        threads=4,
        place="a dict",
        durable=False,
    )
