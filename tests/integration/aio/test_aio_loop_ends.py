"""Loops and stores that end amid calls: what is left of them, and that the process lives on."""

from __future__ import annotations

from pathlib import Path

import pytest

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


CLOSES_AMID_A_CALL = """
import asyncio, gc, os, sqlite3, sys, time
from hotcount import aio
from tests.support.eventually import eventually

how, path = sys.argv[1:]

async def main(lock):
    votes = aio.Votes(f"sqlite:///{path}")
    await votes.create_tables()
    await votes.add_items([1])
    lock.execute("BEGIN IMMEDIATE")
    waits = votes.cast(1, 1, 1)
    await asyncio.sleep(0.01)
    if how == "shielded":
        try:
            await asyncio.wait_for(asyncio.shield(waits), 0.01)
        except asyncio.TimeoutError:
            pass
    if how == "store closed":
        await votes.aclose()
    asyncio.get_running_loop().stop()
    if how == "answer not read":
        lock.execute("ROLLBACK")
        time.sleep(0.1)

def one_round():
    lock = sqlite3.connect(path, isolation_level=None)
    loop = asyncio.SelectorEventLoop()
    task = loop.create_task(main(lock))
    loop.run_forever()
    loop.close()
    lock.close()
    task.result()

def threads():
    return len(os.listdir("/proc/self/task"))

def loops():
    gc.collect()
    return sum(isinstance(each, asyncio.BaseEventLoop) for each in gc.get_objects())

before = threads()
for _ in range(5):
    one_round()
eventually(lambda: (threads(), loops()) == (before, 0))
"""


@pytest.mark.parametrize("how", ["not awaited", "shielded", "store closed", "answer not read"])
def test_a_loop_that_closes_amid_a_call_of_a_database_is_let_go(
    database_path: Path, how: str
) -> None:
    """Once the answer kept its loop, and with the loop the store and its threads."""
    done = run_python("-c", CLOSES_AMID_A_CALL, how, database_path)
    assert (done.returncode, done.stderr) == (0, "")


NOT_WOKEN = """
import asyncio, sys
from hotcount import aio

class Loop(asyncio.SelectorEventLoop):
    failures = 0

    def call_soon_threadsafe(self, *arguments, **options):
        if self.failures > 0:
            self.failures -= 1
            raise MemoryError
        return super().call_soon_threadsafe(*arguments, **options)

async def main():
    votes = aio.Votes(sys.argv[1])
    await votes.create_tables()
    await votes.add_items([1])
    loop.failures = int(sys.argv[2])
    calls = [votes.count(1, timeout=5)]
    while loop.failures:
        await asyncio.sleep(0.01)
        calls.append(votes.count(1, timeout=5))
    print(await asyncio.wait_for(asyncio.gather(*calls), 5))

loop = Loop()
loop.run_until_complete(main())
"""


@pytest.mark.parametrize("failures", [1, 3])
def test_a_loop_that_could_not_be_woken_has_its_answers_all_the_same(
    database_path: Path, failures: int
) -> None:
    """Once no later answer woke it either."""
    done = run_python("-c", NOT_WOKEN, f"sqlite:///{database_path}", failures)
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED_AS_IT_WAKES = """
import asyncio, os, signal, sqlite3, sys, threading, time
from hotcount import aio
from tests.support.eventually import eventually

class Loop(asyncio.SelectorEventLoop):
    armed = False

    def call_soon_threadsafe(self, *arguments, **options):
        if self.armed and threading.current_thread() is threading.main_thread():
            self.armed = False
            os.kill(os.getpid(), signal.SIGINT)  # As Ctrl-C right here.
        return super().call_soon_threadsafe(*arguments, **options)

async def begin():
    await votes.create_tables()
    await votes.add_items([1])
    calls.extend(votes.cast(1, voter, 1) for voter in range(1, 1501))
    stored = sqlite3.connect(sys.argv[1]).execute
    eventually(lambda: stored("SELECT count(*) FROM vote").fetchone() == (1500,))
    time.sleep(0.2)  # More answers come than the loop reads at a time.
    loop.armed = True
    await asyncio.gather(*calls)

async def rest():
    return len(await asyncio.wait_for(asyncio.gather(*calls), 5))

votes, calls, loop = aio.Votes(f"sqlite:///{sys.argv[1]}"), [], Loop()
try:
    loop.run_until_complete(begin())
except KeyboardInterrupt:
    print("interrupted")
print(loop.run_until_complete(rest()))
"""


def test_an_interrupt_as_a_loop_wakes_itself_is_raised_and_loses_no_answer(
    database_path: Path,
) -> None:
    done = run_python("-c", INTERRUPTED_AS_IT_WAKES, database_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n1500\n", "")


ANSWERED_AS_IT_ENDS = """
import asyncio, sqlite3, sys, threading, time
import hotcount
from hotcount import aio

class Loop(asyncio.SelectorEventLoop):
    def is_closed(self):
        closed = super().is_closed()
        if closed and kept:
            time.sleep(0.3)  # Releases the GIL: the answer comes meanwhile.
        return closed

def free(lock):
    lock.execute("ROLLBACK")
    lock.close()

async def main():
    database = hotcount.Database(f"sqlite:///{sys.argv[1]}")
    votes = aio.Votes(database)
    await votes.create_tables()
    await votes.add_items([1])
    lock = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
    lock.execute("BEGIN IMMEDIATE")
    kept.append(votes.cast(1, 1, 1))
    await asyncio.sleep(0.02)
    thread = threading.Thread(target=database.close)
    thread.start()
    thread.join()
    loop.stop()  # It does not run what the close has queued.
    return threading.Timer(0.1, free, (lock,))

kept, loop = [], Loop()
task = loop.create_task(main())
loop.run_forever()
task.result().start()
loop.close()
task.result().join()
time.sleep(0.3)
"""


def test_an_answer_that_comes_as_the_loop_of_a_closed_store_ends_harms_nothing(
    database_path: Path,
) -> None:
    """Once it woke an object whose destructor ran, and the process aborted."""
    done = run_python("-X", "faulthandler", "-c", ANSWERED_AS_IT_ENDS, database_path)
    assert (done.returncode, done.stderr) == (0, "")


ENDS_WITH_THE_LAST_HOLDER = """
import asyncio, sys, threading, time
import hotcount
from hotcount import aio

class Loop(asyncio.SelectorEventLoop):
    slow = False

    def call_soon_threadsafe(self, *arguments, **options):
        if self.slow and threading.current_thread().name.startswith("Dummy"):
            waking.set()
            time.sleep(0.2)
        return super().call_soon_threadsafe(*arguments, **options)

    def is_closed(self):
        closed = super().is_closed()
        if self.slow and closed and threading.current_thread().name.startswith("Dummy"):
            time.sleep(0.5)  # Releases the GIL: the main thread ends the interpreter meanwhile.
        return closed

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(0.8)  # The interpreter shuts down: a thread that asks for the GIL now is ended.

async def main():
    database = hotcount.Database(sys.argv[1])
    votes = aio.Votes(database)
    await votes.create_tables()
    await votes.add_items([1])
    loop.slow = True
    votes.count(1).cancel()
    waking.wait(3)
    thread = threading.Thread(target=database.close)
    thread.start()
    thread.join()
    loop.stop()

sys.last, waking, loop = Last(), threading.Event(), Loop()
task = loop.create_task(main())
loop.run_forever()
loop.close()
time.sleep(0.3)
"""


def test_an_interpreter_that_ends_as_a_thread_of_the_library_lets_a_loop_go_ends_well(
    database_path: Path,
) -> None:
    url = f"sqlite:///{database_path}"
    done = run_python("-X", "faulthandler", "-c", ENDS_WITH_THE_LAST_HOLDER, url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
