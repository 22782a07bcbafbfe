"""python -m tests.support.reserving_program URL ALGORITHM SECONDS SEED: reserves and hits one key.

Eight threads do; they commit, cancel or forget what they reserved. Prints how much they were told
is counted.
"""

import random
import sys
import threading
import time
from typing import Any

import hotcount

from tests.support.together import join

RATE = "1000/300 days"
LEASES = (0.02, 0.2, 2.0)
THREADS = 8


def work(limiter: hotcount.Limiter, until: float, draw: random.Random, counted: list[int]) -> None:
    while time.monotonic() < until:
        if draw.random() < 0.5:
            counted.append(int(bool(limiter.hit("k"))))
        elif held := limiter.reserve("k", draw.randint(1, 20), lease=draw.choice(LEASES)):
            time.sleep(draw.random() * 0.03)
            end = draw.random()
            if end < 0.4:
                held.cancel()
            elif end < 0.9:
                used = draw.randint(0, held.n)
                held.commit(used)  # Counted although the lease may have ended.
                counted.append(used)
        time.sleep(0.01)


def main(url: str, algorithm: Any, seconds: str, seed: str) -> None:
    counted: list[int] = []
    with hotcount.Redis(url, timeout=20) as redis:
        limiter = hotcount.Limiter(redis, RATE, algorithm=algorithm)
        until = time.monotonic() + float(seconds)
        threads = [
            threading.Thread(
                target=work, args=(limiter, until, random.Random(f"{seed} {i}"), counted)
            )
            for i in range(THREADS)
        ]
        join(threads)
    print(sum(counted))


if __name__ == "__main__":
    main(*sys.argv[1:])
