"""python -m tests.support.limiter_storm URL PREFIX ALGORITHM RATE THREADS HITS

What test_limiter_storm starts: threads and tasks of a loop that hit one key together, HITS times
each. Says what its clock reads, waits for a line, and prints how many hits were admitted.
"""

import asyncio
import sys
import threading
import time
from typing import Any

import hotcount
from hotcount import aio

from tests.support.together import join


def main(url: str, prefix: str, algorithm: Any, rate: str, threads: int, hits: int) -> int:
    admitted: list[int] = []
    with hotcount.Redis(url, prefix=prefix, timeout=60) as redis:
        limiter = hotcount.Limiter(redis, rate, algorithm=algorithm)

        def work() -> None:
            admitted.append(sum(limiter.hit("hot").allowed for _ in range(hits)))

        async def loop() -> None:
            shared = aio.Limiter(redis, rate, algorithm=algorithm)

            async def task() -> None:
                taken = 0
                for _ in range(hits):
                    taken += bool(await shared.hit("hot"))
                admitted.append(taken)

            await asyncio.gather(*(task() for _ in range(threads)))

        workers = [threading.Thread(target=work) for _ in range(threads - 1)]
        workers.append(threading.Thread(target=lambda: asyncio.run(loop())))
        redis.ping()
        print("ready", int(time.time()), flush=True)
        sys.stdin.readline()
        join(workers)
    assert len(admitted) == 2 * threads - 1
    return sum(admitted)


if __name__ == "__main__":
    url, prefix, algorithm, rate, threads, hits = sys.argv[1:]
    print(main(url, prefix, algorithm, rate, int(threads), int(hits)))
