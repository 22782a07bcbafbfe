"""Loops and stores that end amid calls: what is left of them, and that the process lives on."""

from __future__ import annotations

from tests.support.programs import run_python
from tests.support.servers import RedisServer

CLOSED_BY_A_THREAD = """
import asyncio, random, sys, threading
import hotcount
from hotcount import aio

async def main():
    store = hotcount.Redis(sys.argv[1], timeout=20)
    counter = aio.Counter(store)
    await counter.add("k")
    thread = threading.Timer(random.random() * 0.004, store.close)
    thread.start()
    try:
        while True:
            await counter.add("k")
    except (hotcount.ClosedError, hotcount.OutcomeUnknownError):
        pass
    thread.join()

for _ in range(int(sys.argv[2])):
    asyncio.run(main())
"""


def test_a_thread_may_close_the_store_while_a_loop_polls_for_a_reply(
    own_redis: RedisServer,
) -> None:
    """Once the loop's turn went on with the connection that the close had ended."""
    program = ("-X", "faulthandler", "-c", CLOSED_BY_A_THREAD)
    done = run_python(*program, own_redis.url, 100)
    assert (done.returncode, done.stderr) == (0, "")
