"""Calls that wait leave the GIL: other Python threads go on meanwhile."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.loops import run
from tests.support.programs import run_python
from tests.support.servers import RedisServer


def turns_while(call: Callable[[], object]) -> int:
    """How often this thread came round its loop of 1 ms while `call` ran in another."""
    started, done = threading.Event(), threading.Event()

    def run() -> None:
        started.set()
        try:
            call()
        except hotcount.HotcountError:
            pass
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    turns = 0
    while not done.is_set():
        time.sleep(0.001)
        turns += 1
    thread.join()
    return turns


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[hotcount.Database]:
    """A database with tables, whose write lock somebody else holds."""
    file = tmp_path / "a.db"
    database = hotcount.Database(f"sqlite:///{file}", timeout=0.2)
    hotcount.SlottedCounter(database).create_table()
    votes = hotcount.Votes(database)
    votes.create_tables()
    votes.add_items([1])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("UPDATE item SET vote_count = 5")  # For reconcile: else it takes no lock.
        other.execute("BEGIN IMMEDIATE")
        yield database
        other.execute("ROLLBACK")


WAITING_CALLS: dict[str, Callable[[hotcount.Database], object]] = {
    "SlottedCounter.add": lambda db: hotcount.SlottedCounter(db).add("k"),
    "SlottedCounter.add_many": lambda db: hotcount.SlottedCounter(db).add_many({"k": 1}),
    "SlottedCounter.reset": lambda db: hotcount.SlottedCounter(db).reset("k"),
    "SlottedCounter.compact": lambda db: hotcount.SlottedCounter(db).compact("k"),
    "SlottedCounter.create_table": lambda db: hotcount.SlottedCounter(db).create_table(),
    "Votes.cast": lambda db: hotcount.Votes(db).cast(1, 7),
    "Votes.cast-naive": lambda db: hotcount.Votes(db, strategy="naive").cast(1, 7),
    "Votes.retract": lambda db: hotcount.Votes(db).retract(1, 7),
    "Votes.cast_many": lambda db: hotcount.Votes(db).cast_many([1], [7]),
    "Votes.add_items": lambda db: hotcount.Votes(db).add_items([2]),
    "Votes.reconcile": lambda db: hotcount.Votes(db).reconcile(),
    "Votes.flush": lambda db: hotcount.Votes(db, strategy="slotted").flush(timeout=0.2),
    # Where the tables are there already it waits only to take them over.
    "Votes.create_tables": lambda db: hotcount.Votes(db, strategy="naive").create_tables(),
}


@pytest.mark.parametrize("call", WAITING_CALLS)
def test_a_call_that_waits_for_a_lock_lets_other_threads_go_on(
    locked: hotcount.Database, call: str
) -> None:
    started = time.monotonic()
    turns = turns_while(lambda: WAITING_CALLS[call](locked))
    assert time.monotonic() - started > 0.15, "it did not wait, so this proves nothing"
    # About 200 where the GIL is free and the machine too, none where it is held.
    assert turns > 20


@pytest.mark.parametrize("call", ["add", "get", "add_many", "ping", "execute"])
def test_a_call_that_waits_for_redis_lets_other_threads_go_on(
    own_redis: RedisServer, call: str
) -> None:
    redis = own_redis.redis(timeout=0.2)
    counter = hotcount.Counter(redis)
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: counter.add("k"),
        "get": lambda: counter.get("k"),
        "add_many": lambda: counter.add_many(["k"]),
        "ping": redis.ping,
        "execute": lambda: redis.execute("GET", "k"),
    }
    redis.ping()
    own_redis.send_signal(signal.SIGSTOP)
    assert turns_while(calls[call]) > 20
    own_redis.send_signal(signal.SIGCONT)


def test_opening_a_locked_database_lets_other_threads_go_on(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        # Not yet in WAL mode, so that opening it has to write.
        other.execute("CREATE TABLE t (a)")
        other.execute("BEGIN EXCLUSIVE")
        turns = turns_while(lambda: hotcount.Database(f"sqlite:///{file}", timeout=0.2))
        other.execute("ROLLBACK")
    assert turns > 20


def test_a_batch_in_memory_lets_other_threads_go_on() -> None:
    counter = hotcount.Counter(hotcount.Memory(max_keys=500_000))
    keys = [f"k{number}" for number in range(300_000)]

    def work() -> None:
        counter.add_many(keys)

    # The keys are read with the GIL held, about a tenth of the time that the adding takes.
    assert turns_while(work) > 10


def test_a_daemon_thread_in_a_call_does_not_disturb_the_end_of_the_process(tmp_path: Path) -> None:
    # CPython ends such a thread when it asks for the GIL again, in the middle of C++.
    code = f"""
import hotcount, sqlite3, threading, time
votes = hotcount.Votes(hotcount.Database("sqlite:///{tmp_path}/a.db", timeout=0.3))
votes.create_tables()
votes.add_items([1])
other = sqlite3.connect("{tmp_path}/a.db", isolation_level=None)
other.execute("BEGIN IMMEDIATE")
counter = hotcount.Counter("memory://")

def vote(user):
    while True:
        try:
            votes.cast(1, user)
        except hotcount.DeadlineError:
            pass

def add():
    keys = ["k"] * 1000
    while True:
        counter.add_many(keys)

for user in range(8):
    threading.Thread(target=vote, args=(user,), daemon=True).start()
    threading.Thread(target=add, daemon=True).start()
time.sleep(0.25)
print("the end", flush=True)
"""
    for _ in range(5):
        run = run_python("-X", "faulthandler", "-c", code)
        assert (run.returncode, run.stdout, run.stderr) == (0, "the end\n", "")


class SlowlyWoken(asyncio.SelectorEventLoop):
    """A thread that wakes it goes on later than the loop itself."""

    def _write_to_self(self) -> None:
        super()._write_to_self()  # type: ignore[misc]
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.2)


MAKES: dict[str, Callable[[hotcount.Database], Any]] = {
    "limiter": lambda database: aio.Limiter(database, "5/minute"),
    "slotted": lambda database: aio.SlottedCounter(database),
    "votes": lambda database: aio.Votes(database, strategy="batched", missing_items="create"),
}
CALLS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "limiter": lambda limiter: limiter.hit_many(["a", "b"]),
    "slotted": lambda counter: counter.add_many({"a": 1, "b": 1}),
    "votes": lambda votes: votes.cast_many([1, 2], [1, 1]),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("concept", MAKES)
def test_an_object_may_go_while_its_thread_still_tells_the_loop_an_outcome(
    concept: str, tmp_path: Path
) -> None:
    """Its end waits for the thread, which needs the GIL once more."""

    async def use(database: hotcount.Database) -> None:
        for _ in range(3):
            made = MAKES[concept](database)
            await CALLS[concept](made)
            del made

    with hotcount.Database(f"sqlite:///{tmp_path}/a.db", timeout=10) as database:
        hotcount.Limiter(database, "5/minute").create_table()
        hotcount.SlottedCounter(database).create_table()
        hotcount.Votes(database, strategy="batched").create_tables()
        run(SlowlyWoken, use(database))
