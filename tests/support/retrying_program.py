"""A program that adds through a retry queue with a file, and writes down what it was told.

    python -m tests.support.retrying_program URL PATH LOG RATE THREADS [PERIOD]

Each line of LOG is a thread and a number: the adds that this thread's calls returned for. It is
written after the call, so a program that is killed may have counted one add more for each thread.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import hotcount


def add_and_tell(
    log: str, threads: int, add: Callable[[str], object], adds_per_s: float = math.inf
) -> None:
    """Adds to the keys k0 to k9 until it is killed."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    print("ready", flush=True)

    def work(thread: int) -> None:
        due = time.monotonic()
        done = 0
        while True:
            try:
                add(f"k{done % 10}")
            except hotcount.HotcountError as error:
                print(repr(error), flush=True)
                os._exit(3)
            done += 1
            os.write(file, b"%d %d\n" % (thread, done))
            due += threads / adds_per_s
            time.sleep(max(0.0, due - time.monotonic()))

    for thread in range(threads):
        threading.Thread(target=work, args=(thread,), daemon=True).start()
    threading.Event().wait()


def main() -> None:
    url, path, log, rate, threads = sys.argv[1:6]
    period: Any = sys.argv[6] if len(sys.argv) > 6 else None
    store = hotcount.Redis(url, timeout=1)
    # Those of two outages: the first program may leave all of its adds to the second.
    queue = hotcount.RetryQueue(path=path, fsync="off", max_items=1_000_000)
    counter: hotcount.Counter[Any] | hotcount.PeriodCounter[Any]
    if period:
        counter = hotcount.PeriodCounter(store, period, keep=1000, retry=queue)
    else:
        counter = hotcount.Counter(store, retry=queue)
    add_and_tell(log, int(threads), counter.add, float(rate))


if __name__ == "__main__":
    main()
