"""Several event loops in turn and in threads, stores that are closed, servers that restart."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import pickle
import signal
import threading
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.loops import LOOPS, LOOPS_WITH_READERS, LoopFactory, run
from tests.support.programs import run_python
from tests.support.servers import PostgresServer, RedisServer, free_port
from tests.support.together import in_child, together

pytestmark = pytest.mark.server
on_all_loops = pytest.mark.parametrize("factory", LOOPS)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


_numbers = itertools.count()


def own_prefix() -> str:
    """A prefix that no other test uses."""
    return f"aio-loops:{next(_numbers)}:"


def clients(server: RedisServer) -> int:
    """The number of the server's connections, without the one that this call opens."""
    with server.redis(prefix="ask") as asking:
        return len(asking.execute("CLIENT", "LIST").splitlines()) - 1


@on_all_loops
def test_one_store_serves_one_loop_after_another_and_leaks_nothing(
    factory: LoopFactory, own_redis: RedisServer
) -> None:
    store = aio.Redis(own_redis.url, timeout=20)
    counter = aio.Counter(store)

    async def main() -> int:
        return await counter.add("k")

    for number in range(1, 11):
        assert run(factory, main()) == number
    gc.collect()
    before, objects = descriptors(), len(gc.get_objects())
    for number in range(11, 211):
        assert run(factory, main()) == number
    gc.collect()
    assert descriptors() <= before + 1
    assert len(gc.get_objects()) < objects + 200
    assert clients(own_redis) <= 3


@on_all_loops
def test_loops_that_are_left_amid_calls_leak_nothing(
    factory: LoopFactory, own_redis: RedisServer
) -> None:
    store = aio.Redis(own_redis.url, timeout=20)
    counter = aio.Counter(store)
    kept: list[Any] = []

    async def main() -> None:
        await counter.add("k")
        # These calls are never awaited. When the loop ends, some have been sent and some have not.
        kept.extend(counter.add("k") for _ in range(3))
        await asyncio.sleep(0)
        kept.extend(counter.add("k") for _ in range(3))

    def rounds(count: int) -> None:
        for _ in range(count):
            run(factory, main())
            kept.clear()
        gc.collect()

    rounds(5)
    before = descriptors()
    rounds(30)
    assert descriptors() <= before + 3


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
def test_loops_that_nobody_closes_are_collected_with_their_connections(
    own_redis: RedisServer,
) -> None:
    """On asyncio's loop alone: uvloop keeps its descriptors without hotcount too."""
    counter = aio.Counter(aio.Redis(own_redis.url, timeout=20))

    def rounds(count: int) -> None:
        for _ in range(count):
            asyncio.SelectorEventLoop().run_until_complete(counter_add(counter))
        gc.collect()

    rounds(5)
    before = descriptors()
    rounds(30)
    assert descriptors() <= before + 3
    eventually(lambda: clients(own_redis) <= 3)


@on_all_loops
def test_loops_in_threads_have_a_connection_each(
    factory: LoopFactory, redis_server: RedisServer
) -> None:
    store = aio.Redis(redis_server.url, prefix=own_prefix(), timeout=20)
    counter = aio.Counter(store)

    async def main() -> list[int]:
        values = []
        for _ in range(10):
            values += await asyncio.gather(*(counter.add("k") for _ in range(20)))
        return values

    found = together(lambda _: run(factory, main()), 8)
    assert sorted(itertools.chain(*found)) == list(range(1, 1601))


def test_threads_and_a_loop_share_a_store(redis_server: RedisServer) -> None:
    with hotcount.Redis(redis_server.url, prefix=own_prefix(), timeout=20) as store:
        waiting = hotcount.Counter(store)

        async def main() -> list[int]:
            counter = aio.Counter(store)
            return [await counter.add("k") for _ in range(200)]

        def work(index: int) -> list[int]:
            if index == 0:
                return asyncio.run(main())
            return [waiting.add("k") for _ in range(200)]

        assert sorted(itertools.chain(*together(work, 4))) == list(range(1, 801))


@on_all_loops
def test_a_call_without_a_running_loop_raises(factory: LoopFactory) -> None:
    for url in ("memory://", "redis://127.0.0.1:1"):
        counter = aio.Counter(url)
        for call in (lambda: counter.add("k"), lambda: counter.get_many(["k"]), counter.aclose):  # noqa: B023
            with pytest.raises(RuntimeError, match="no running event loop"):
                call()
    # A loop may be run again after it was stopped.
    loop = factory()
    try:
        counter = aio.Counter("memory://")
        for number in (1, 2, 3):
            assert loop.run_until_complete(counter_add(counter)) == number
    finally:
        loop.close()


async def add_for_ever(counter: aio.Counter) -> None:
    while True:
        await counter.add("k")


async def counter_add(counter: aio.Counter) -> int:
    return await counter.add("k")


@on_all_loops
def test_a_loop_may_be_run_in_pieces(factory: LoopFactory, redis_server: RedisServer) -> None:
    counter = aio.Counter(aio.Redis(redis_server.url, prefix=own_prefix(), timeout=20))
    loop = factory()
    try:
        for number in (1, 2, 3):
            assert loop.run_until_complete(counter_add(counter)) == number
    finally:
        loop.close()


@on_all_loops
async def test_a_closed_store_ends_pending_calls_and_refuses_others(own_redis: RedisServer) -> None:
    store = aio.Redis(own_redis.url, timeout=20)
    counter = aio.Counter(store)
    await counter.add("k")

    async def slow() -> None:
        await store.execute("EVAL", "for i = 1, 1e8 do end return 1", 0)

    call = asyncio.create_task(slow())
    await asyncio.sleep(0.05)
    assert not store.closed
    await store.aclose()
    assert store.closed
    assert counter.closed
    with pytest.raises((hotcount.ClosedError, hotcount.OutcomeUnknownError)):
        await asyncio.wait_for(call, 10)
    with pytest.raises(hotcount.ClosedError):
        counter.add("k")
    with pytest.raises(hotcount.ClosedError):
        store.ping()
    await store.aclose()


@on_all_loops
async def test_a_store_may_be_closed_by_another_thread(own_redis: RedisServer) -> None:
    store = hotcount.Redis(own_redis.url, timeout=20)
    counter = aio.Counter(store)
    await counter.add("k")
    thread = threading.Thread(target=store.close)
    thread.start()
    # The outcome of a call that was sent before the close is unknown.
    with pytest.raises((hotcount.ClosedError, hotcount.OutcomeUnknownError)):
        await add_for_ever(counter)
    thread.join()


@on_all_loops
def test_a_call_keeps_its_counter_and_store(
    factory: LoopFactory, redis_server: RedisServer
) -> None:
    async def main() -> None:
        # One counter has a URL, the other has a store.
        prefix = own_prefix()
        calls = [
            aio.Counter(store, prefix).add("k", timeout=20)
            for store in (redis_server.url, aio.Redis(redis_server.url, timeout=20))
        ]
        gc.collect()
        assert sorted(await asyncio.gather(*calls)) == [1, 2]

    for _ in range(3):
        run(factory, main())


@on_all_loops
async def test_a_server_that_restarts_is_found_again(own_redis: RedisServer) -> None:
    async with aio.Redis(own_redis.url, timeout=5) as store:
        counter = aio.Counter(store)
        assert await counter.add("k") == 1
        own_redis.kill()
        with pytest.raises((hotcount.UnavailableError, hotcount.OutcomeUnknownError)):
            await add_for_ever(counter)
        own_redis.start()
        assert await counter.add("k") == 1
        assert await asyncio.gather(*(counter.add("k") for _ in range(3))) == [2, 3, 4]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@on_all_loops
async def test_a_forked_child_connects_anew(
    factory: LoopFactory, redis_server: RedisServer
) -> None:
    store = aio.Redis(redis_server.url, prefix=own_prefix(), timeout=20)
    counter = aio.Counter(store)

    async def connection_and_value() -> tuple[Any, int]:
        return await store.execute("CLIENT", "ID"), await counter.add("k")

    mine, value = await connection_and_value()
    # The fork happens inside a running loop, which programs should avoid.
    child, after = in_child(lambda: in_a_thread(lambda: run(factory, connection_and_value())))
    assert child != mine
    assert after == value + 1
    assert (await connection_and_value()) == (mine, value + 2)


def in_a_thread(work: Any) -> Any:
    # The child's own thread still believes that a loop runs in it.
    (result,) = together(lambda _: work(), 1)
    return result


@on_all_loops
async def test_calls_reach_a_server_on_a_tcp_port(tmp_path: Path) -> None:
    with RedisServer(tmp_path, port=free_port()).started() as server:
        async with aio.Redis(f"redis://127.0.0.1:{server.port}/3", timeout=20) as store:
            counter = aio.Counter(store)

            async def work() -> list[int]:
                return [await counter.add("k") for _ in range(20)]

            found = await asyncio.gather(*(work() for _ in range(64)))
            assert sorted(itertools.chain(*found)) == list(range(1, 64 * 20 + 1))
        with pytest.raises(hotcount.UnavailableError):
            await aio.Redis(f"redis://127.0.0.1:{free_port()}").ping()


async def test_stores_of_one_url_are_one_store(redis_server: RedisServer) -> None:
    first = aio.Redis(redis_server.url, prefix="one:", timeout=20)
    second = aio.connect(redis_server.url, prefix="one:", timeout=20)
    assert isinstance(second, aio.Redis)
    assert await first.execute("CLIENT", "ID") == await second.execute("CLIENT", "ID")
    await first.aclose()
    assert await second.ping()
    await second.aclose()


@pytest.mark.parametrize("factory", LOOPS_WITH_READERS)
async def test_calls_of_one_turn_share_a_send(redis_server: RedisServer) -> None:
    async with aio.Redis(redis_server.url, prefix=own_prefix(), timeout=20) as store:
        await store.ping()
        before = store.stats()["sends"]
        await asyncio.gather(*(store.execute("ECHO", "x") for _ in range(40)))
        assert store.stats()["sends"] - before < 10


async def test_stores_of_both_interfaces_share_names_and_data(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    async with aio.Memory("memory://faces", max_keys=7) as memory:
        assert await memory.ping()
        assert memory.stats()["max_keys"] == 7
        assert hotcount.Counter(memory).add("k") == 1
        assert await aio.Counter("memory://faces").add("k") == 2
        assert repr(memory).startswith("hotcount.aio.Memory('memory://faces'")
    assert repr(memory).endswith("(closed)")
    with pytest.raises(hotcount.ClosedError):
        await memory.ping()
    async with aio.Redis(redis_server.url, timeout=20) as store:
        assert await store.ping()
        assert await store.execute("SET", "aio:x", 5) == b"OK"
        assert await store.execute("INCRBY", "aio:x", 2) == 7
        assert await store.execute("GET", "aio:none") is None
        with pytest.raises(hotcount.WrongTypeError):
            await store.execute("LPUSH", "aio:x", 1)
        with pytest.raises(hotcount.ReplyError):
            await store.execute("NO-SUCH")
        with pytest.raises(hotcount.ConfigError):
            await store.execute("MULTI")
        with pytest.raises(TypeError):
            await store.execute()
        assert hotcount.Counter(store, "faces").add("k") >= 1
        assert hotcount.Limiter(store, "5/minute").hit("faces").allowed
        assert repr(store).startswith("hotcount.aio.Redis(")
        counter = aio.Counter(store)
        assert repr(counter).startswith("hotcount.aio.Counter(hotcount.Redis(")
        async with counter:
            pass
        assert counter.closed
        assert not store.closed
    for thing in (memory, store, counter):
        with pytest.raises(TypeError, match=r"hotcount\.aio\.\w+ cannot be pickled"):
            pickle.dumps(thing)
    async with aio.connect(f"sqlite:///{tmp_path}/x.db") as database:
        assert isinstance(database, aio.Database)
        assert await database.ping()
    wrong: Any = 7
    with pytest.raises(TypeError):
        aio.Counter(wrong)
    with pytest.raises(hotcount.ConfigError):
        aio.Redis("memory://")


ANSWERED_AFTER_THE_LOOP = """
import gc, sys
import hotcount
from hotcount import aio
from tests.support.loops import LoopWithoutReaders

store = hotcount.Redis(sys.argv[1], timeout=20)

async def start():
    limiter = aio.Limiter(store, "1000/s")
    return [limiter.hit("k"), limiter.hit_many(["a"] * 3), aio.PeriodCounter(store).add("k")]

for number in range(int(sys.argv[2])):
    loop = LoopWithoutReaders()
    calls = loop.run_until_complete(start())
    loop.close()
    del loop
    if number % 2:
        del calls
        gc.collect()
"""


@pytest.mark.parametrize("loops", [500, pytest.param(3000, marks=pytest.mark.long)])
def test_answers_that_come_after_their_loop_was_closed_end_with_the_gil(
    own_redis: RedisServer, loops: int
) -> None:
    # A thread of the library holds the last reference to such a call.
    program = ("-X", "faulthandler", "-c", ANSWERED_AFTER_THE_LOOP)
    done = run_python(*program, own_redis.url, loops, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


ENDS_IN_AN_ANSWER = """
import asyncio, sys, threading, time
from hotcount import aio

class Loop(asyncio.SelectorEventLoop):
    def call_soon_threadsafe(self, *arguments, **options):
        answered.set()
        time.sleep(0.3)  # Releases the GIL: the main thread ends the interpreter meanwhile.
        return super().call_soon_threadsafe(*arguments, **options)

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(1)  # The interpreter shuts down: a thread that asks for the GIL now is ended.

async def main():
    votes = aio.Votes(sys.argv[1])
    await votes.create_tables()
    answered.clear()
    kept.extend((votes, votes.count(1)))
    answered.wait()

sys.last, answered, kept, loop = Last(), threading.Event(), [], Loop()
loop.run_until_complete(main())
"""


def test_an_interpreter_that_ends_while_an_answer_comes_ends_well(database_path: Path) -> None:
    """Once the library's thread was unwound without the GIL, and released its Python objects."""
    url = f"sqlite:///{database_path}"
    done = run_python("-c", ENDS_IN_AN_ANSWER, url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


COLLECTED_WHILE_ASKED = """
import asyncio, gc, sys
import uvloop
from hotcount import aio

class Collecting(asyncio.SelectorEventLoop):
    def is_closed(self):
        if gc.get_threshold()[0] == 1:
            gc.enable()  # The next object that is made starts a collection.
        return self._closed

async def begin():
    await votes.create_tables()

async def count():
    await votes.count(1)

def leave(loop):
    cycle = [loop]
    cycle.append(cycle)
    loop.run_until_complete(count())
    return loop

gc.disable()
votes = aio.Votes(sys.argv[1])
first = Collecting()
first.run_until_complete(begin())
make = {"stock": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}[sys.argv[2]]
for loop in [leave(make()) for _ in range(40)]:
    loop.close()
del loop
gc.set_threshold(1)
asyncio.run(count())  # Finds the loops that are closed.
first.close()
"""


@pytest.mark.parametrize("loops", ["stock", "uvloop"])
def test_a_closed_loop_that_is_collected_while_it_is_asked_harms_nothing(
    database_path: Path, loops: str
) -> None:
    """Once its method was looked up without a reference to it, and the process crashed."""
    url = f"sqlite:///{database_path}"
    done = run_python("-X", "faulthandler", "-c", COLLECTED_WHILE_ASKED, url, loops)
    assert (done.returncode, done.stderr) == (0, "")


async def test_pings_of_a_database_that_hangs_hold_up_none_of_another(
    own_postgres: PostgresServer,
) -> None:
    hanging = aio.Database(own_postgres.url(), max_readers=1)
    other = aio.Database("sqlite:///:memory:")
    assert await hanging.ping(timeout=20)
    connected = own_postgres.psql(
        "SELECT pid FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    backends = [int(line) for line in connected.split()]
    assert backends
    own_postgres.send_signal(signal.SIGSTOP)  # The server accepts no more connections.
    for backend in backends:
        os.kill(backend, signal.SIGSTOP)
    try:
        held_up = [asyncio.ensure_future(hanging.ping(timeout=60)) for _ in range(4)]
        assert await other.ping(timeout=20)
        assert not any(ping.done() for ping in held_up)
        with pytest.raises(hotcount.DeadlineError):
            await hanging.ping(timeout=1)
    finally:
        for backend in backends:
            os.kill(backend, signal.SIGCONT)
        own_postgres.send_signal(signal.SIGCONT)
    assert await asyncio.gather(*held_up) == [True] * 4
