"""A primary that was demoted and keeps its connections: the name stands for another by now."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.faults.proxy import FaultProxy
from tests.support.fired import fired
from tests.support.loops import LOOPS, LoopFactory, LoopWithoutReaders
from tests.support.servers import RedisServer, free_port
from tests.support.together import together

pytestmark = pytest.mark.server

Call = Callable[[hotcount.Redis], object]


class Pair:
    """Two servers behind one name."""

    def __init__(self, folder: Path) -> None:
        self.servers = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            server = RedisServer(folder / name, config=("--rename-command", "DECR", "MODULE.DECR"))
            self.servers.append(server.start())
        self.proxy = FaultProxy(self.servers[0].socket)
        self.direct = [server.redis(prefix="direct:", timeout=20) for server in self.servers]

    @property
    def url(self) -> str:
        return self.proxy.url

    def demote(self) -> None:
        fired("demoted")
        self.direct[0].execute("REPLICAOF", "127.0.0.1", free_port())

    def move(self) -> None:
        self.proxy.server = self.servers[1].socket

    def end(self) -> None:
        for direct in self.direct:
            direct.close()
        self.proxy.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.end()


def created(redis: hotcount.Redis, **options: Any) -> hotcount.LiveSets:
    sets = hotcount.LiveSets(redis, **options)
    sets.create("set", 600, {"a": 1})
    return sets


CALLS: list[Any] = [
    pytest.param(lambda redis: hotcount.Counter(redis).add("k"), id="add"),
    pytest.param(lambda redis: hotcount.Counter(redis, ttl=60).add("k"), id="script"),
    pytest.param(lambda redis: hotcount.Counter(redis).add("k", op_id="a"), id="op_id"),
    pytest.param(lambda redis: redis.execute("SET", "k", "1"), id="execute"),
    pytest.param(
        lambda redis: list(hotcount.Counter(redis).add_many([f"k{n}" for n in range(300)])),
        id="batch",
    ),
    pytest.param(
        lambda redis: list(hotcount.Counter(redis, ttl=60).add_many([f"k{n}" for n in range(300)])),
        id="batch of a script",
    ),
    pytest.param(lambda redis: hotcount.Limiter(redis, "5/minute").hit("k"), id="limiter"),
    pytest.param(lambda redis: hotcount.LiveSets(redis).create("set", 60, {"a": 1}), id="create"),
    pytest.param(lambda redis: hotcount.LiveSets(redis).upsert("set", "b", 2), id="upsert"),
    # A command that hotcount does not know goes over a connection of its own.
    pytest.param(lambda redis: redis.execute("MODULE.DECR", "down"), id="alone"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_goes_to_the_new_primary(pair: Pair, call: Call) -> None:
    for direct in pair.direct:
        created(hotcount.Redis(pair.servers[pair.direct.index(direct)].url))
    with hotcount.Redis(pair.url, timeout=20) as redis:
        redis.ping()
        before = call(redis)
        pair.demote()
        pair.move()
        after = call(redis)
        assert type(after) is type(before)
        # From now on nothing is refused.
        assert redis.execute("SET", "later", "1") == b"OK"
        assert pair.direct[1].execute("EXISTS", "later") == 1
        assert pair.direct[0].execute("EXISTS", "later") == 0


@pytest.mark.parametrize("call", CALLS)
def test_a_call_waits_for_the_new_primary_and_is_applied_once(pair: Pair, call: Call) -> None:
    for server in pair.servers:
        created(hotcount.Redis(server.url))
    with hotcount.Redis(pair.url, timeout=20) as redis:
        redis.ping()
        pair.demote()
        moves = threading.Timer(0.5, pair.move)
        moves.start()
        call(redis)
        moves.join()
    calls = pair.direct[1].execute("INFO", "commandstats").decode()
    with hotcount.Redis(pair.servers[1].url) as once:
        kept = hotcount.Counter(once).get("k")
    assert kept in (0, 1), calls
    assert pair.direct[1].execute("GET", "down") in (None, b"-1"), calls


@pytest.mark.parametrize("call", CALLS)
def test_while_it_stays_read_only_a_call_is_unavailable(pair: Pair, call: Call) -> None:
    created(hotcount.Redis(pair.servers[0].url))
    with hotcount.Redis(pair.url, timeout=1) as redis:
        redis.ping()
        pair.demote()
        with pytest.raises(hotcount.HotcountError) as caught:
            call(redis)
        errors = getattr(caught.value, "errors", None)
        for error in errors.values() if errors else [caught.value]:
            if isinstance(error, hotcount.UnavailableError):
                assert "READONLY" in str(error)
            elif isinstance(error, hotcount.OutcomeUnknownError):
                # It passed during one more try.
                assert "before the deadline" in str(error)
            else:
                # It passed during a dial, or before a busy machine had sent all of a batch.
                assert isinstance(error, hotcount.DeadlineError)
                assert "nothing was applied" in str(error)
        assert redis.execute("EXISTS", "later") == 0, "reads are served"


def test_threads_that_share_a_connection_lose_and_repeat_nothing(pair: Pair) -> None:
    with hotcount.Redis(pair.url, timeout=30) as redis:
        counter = hotcount.Counter(redis)

        def work(index: int) -> int:
            for number in range(200):
                if index == 0 and number == 50:
                    pair.demote()
                    pair.move()
                counter.add("k")
            return 200

        done = sum(together(work, 16))
    counts = []
    for direct in pair.direct:
        value = direct.execute("GET", "count:k")
        counts.append(int(value or 0))
    assert sum(counts) == done
    assert counts[1] > 0


@pytest.mark.parametrize("new_loop", LOOPS)
def test_the_tasks_of_a_loop_lose_and_repeat_nothing(pair: Pair, new_loop: LoopFactory) -> None:
    async def work() -> int:
        async with hotcount.aio.Redis(pair.url, timeout=30) as redis:
            counter = hotcount.aio.Counter(redis)
            limited = hotcount.aio.Counter(redis, prefix="limited", ttl=600)

            async def one() -> None:
                for _ in range(50):
                    await counter.add("k")
                    await limited.add("k")

            async def alone() -> None:
                for _ in range(50):
                    await redis.execute(*down)

            async def demote() -> None:
                await asyncio.sleep(0)
                await asyncio.get_running_loop().run_in_executor(None, pair.demote)
                pair.move()

            await asyncio.gather(demote(), alone(), alone(), *(one() for _ in range(20)))
            return len(await counter.add_many([f"many{n}" for n in range(50)]))

    loop = new_loop()
    # A loop without readers has no second connection, so it takes no command that goes alone.
    down = (
        ["DECRBY", "down", 1] if isinstance(loop, LoopWithoutReaders) else ["MODULE.DECR", "down"]
    )
    try:
        assert loop.run_until_complete(work()) == 50
    finally:
        loop.close()
    for key in ("count:k", "limited:k"):
        assert sum(int(direct.execute("GET", key) or 0) for direct in pair.direct) == 20 * 50
    assert sum(int(direct.execute("GET", "down") or 0) for direct in pair.direct) == -2 * 50


def test_writers_of_a_replica_do_not_storm_it_and_readers_are_served(pair: Pair) -> None:
    pair.demote()
    began = time.monotonic()
    until = began + 5
    with hotcount.Redis(pair.url, timeout=2) as redis:

        def read(_: int) -> int:
            served = 0
            while time.monotonic() < until:
                redis.execute("GET", "k")
                served += 1
            return served

        def write(_: int) -> int:
            refused = 0
            while time.monotonic() < until:
                with pytest.raises(hotcount.HotcountError) as caught:
                    redis.execute("SET", "k", "1")
                if isinstance(caught.value, hotcount.OutcomeUnknownError):
                    # The deadline passed during the last of its tries.
                    assert "before the deadline" in str(caught.value)
                else:
                    assert isinstance(caught.value, hotcount.UnavailableError)
                    assert "READONLY" in str(caught.value)
                    refused += 1
            return refused

        done = together(lambda index: (write, read)[index % 2](index), 8)
    assert sum(done[::2]) > 0
    assert min(done[1::2]) > 10
    # The first one, and 2n + 3 in n seconds; the last calls end after `until`.
    assert pair.proxy.connections <= 1 + 2 * (time.monotonic() - began) + 3
