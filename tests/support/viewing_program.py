"""A program that adds to a WriteBehindCounter, and writes down what it was told.

    python -m tests.support.viewing_program DATABASE CACHE ACK LOG THREADS

Each line of LOG is a thread and a number: the adds for which this thread's calls returned. It is
written after the call, so a program that is killed may have counted one add more for each thread.
Thread t adds 1 to the key k{i % 10} in its i-th call.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import hotcount


def main() -> None:
    database, cache, ack, log, threads = sys.argv[1:6]
    how: Any = ack
    views = hotcount.WriteBehindCounter(database, cache, flush_interval=0.02)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    print("ready", flush=True)

    def add(thread: int) -> None:
        done = 0
        while True:
            try:
                views.add(f"k{done % 10}", ack=how, timeout=20)
            except hotcount.HotcountError as error:
                print(repr(error), flush=True)
                os._exit(3)
            done += 1
            os.write(file, b"%d %d\n" % (thread, done))

    for thread in range(int(threads)):
        threading.Thread(target=add, args=(thread,), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
