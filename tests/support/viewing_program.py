"""A program that adds to a WriteBehindCounter, and writes down what it was told.

    python -m tests.support.viewing_program DATABASE CACHE ACK LOG THREADS

Each line of LOG is a thread and a number: the adds for which this thread's calls returned. It is
written after the call, so a program that is killed may have counted one add more for each thread.
Thread t adds 1 to the key k{i % 10} in its i-th call.
"""

import sys
from functools import partial
from typing import Any

import hotcount

from tests.support.retrying_program import add_and_tell


def main() -> None:
    database, cache, ack, log, threads = sys.argv[1:6]
    views = hotcount.WriteBehindCounter(database, cache, flush_interval=0.02)
    options: Any = {"ack": ack, "timeout": 20}
    add_and_tell(log, int(threads), partial(views.add, **options))


if __name__ == "__main__":
    main()
