"""How a client connects: one attempt at a time, in the background, to every address of the name."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hotcount
import hotcount.aio
import pytest

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.listener import Listener
from tests.support.loops import LOOPS, LoopFactory
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import RedisServer, free_port
from tests.support.together import together

pytestmark = pytest.mark.server


class Closer(Listener):
    """A balancer without a backend: it accepts and closes."""

    def serve(self, client: socket.socket) -> None:
        """A return closes the connection."""


def most_dials(began: float) -> float:
    """Two a second, whatever pauses are drawn, and three at once; one more begins at the end."""
    return 2 * (time.monotonic() - began) + 4


def test_fifty_callers_dial_a_balancer_that_closes_no_faster_than_its_backoff() -> None:
    with Closer() as balancer:
        redis = hotcount.Redis(f"redis://127.0.0.1:{balancer.port}", timeout=1)
        began = time.monotonic()
        until = began + 8

        def call(_: int) -> list[type[hotcount.HotcountError]]:
            kinds = []
            while time.monotonic() < until:
                with pytest.raises(hotcount.HotcountError, match=r"closed|reset") as caught:
                    hotcount.Counter(redis).add("k")
                kinds.append(type(caught.value))
            return kinds

        kinds = {kind for own in together(call, 50) for kind in own}
        assert kinds == {hotcount.UnavailableError}
        assert 3 <= balancer.connections <= most_dials(began)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_the_tasks_of_a_loop_dial_a_balancer_no_faster(new_loop: LoopFactory) -> None:
    began = time.monotonic()

    async def work(port: int) -> set[type[hotcount.HotcountError]]:
        redis = hotcount.aio.Redis(f"redis://127.0.0.1:{port}", timeout=1)
        until = began + 5
        kinds = set()

        async def call() -> None:
            while time.monotonic() < until:
                try:
                    await redis.execute("PING")
                except hotcount.HotcountError as error:
                    kinds.add(type(error))

        await asyncio.gather(*(call() for _ in range(50)))
        await redis.aclose()
        return kinds

    with Closer() as balancer:
        loop = new_loop()
        try:
            assert loop.run_until_complete(work(balancer.port)) == {hotcount.UnavailableError}
        finally:
            loop.close()
        assert 2 <= balancer.connections <= most_dials(began)


def test_a_call_between_two_dials_gets_the_error_of_the_last_dial() -> None:
    with hotcount.Redis(f"redis://127.0.0.1:{free_port()}", timeout=0.02) as redis:

        async def in_a_loop() -> None:
            await hotcount.aio.Counter(redis).add("k")

        with pytest.raises(hotcount.UnavailableError, match="refused"):
            redis.ping(timeout=20)
        for _ in range(10):
            for call in (redis.ping, lambda: redis.execute("NOT.KNOWN")):
                with pytest.raises(hotcount.UnavailableError, match="refused"):
                    call()
            with pytest.raises(hotcount.UnavailableError, match="refused"):
                asyncio.run(in_a_loop())


@pytest.fixture
def slow(own_redis: RedisServer) -> Iterator[FaultProxy]:
    """A proxy before a server, which keeps the server's greeting back."""
    with FaultProxy(own_redis.socket) as proxy:
        proxy.hold()
        yield proxy


def test_a_callers_short_deadline_does_not_end_the_dial(slow: FaultProxy) -> None:
    redis = hotcount.Redis(slow.url, timeout=20, connect_timeout=20)

    def call(index: int) -> str:
        if index == 0:
            eventually(lambda: slow.fired > 0)
            for _ in range(20):
                with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
                    redis.execute("PING", timeout=0.01)
            slow.heal()
            return ""
        return str(redis.execute("PING"))

    assert together(call, 4)[1:] == [str(b"PONG")] * 3
    assert slow.connections == 1


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda redis: redis.ping(), id="shared"),
        pytest.param(lambda redis: redis.execute("NOT.KNOWN"), id="alone"),
    ],
)
def test_a_caller_that_waits_for_a_dial_is_told_when_its_client_is_closed(
    slow: FaultProxy, call: Callable[[hotcount.Redis], object]
) -> None:
    redis = hotcount.Redis(slow.url, timeout=10, connect_timeout=20)

    def work(index: int) -> None:
        if index == 0:
            eventually(lambda: slow.fired > 0)
            redis.close()
            return
        with pytest.raises(hotcount.ClosedError):  # And no error of the deadline.
            call(redis)

    together(work, 2)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_calls_of_a_loop_end_before_the_handshake(slow: FaultProxy, new_loop: LoopFactory) -> None:
    async def work() -> None:
        redis = hotcount.aio.Redis(slow.url, timeout=20, connect_timeout=20)
        for _ in range(10):
            with pytest.raises(hotcount.DeadlineError):
                await redis.execute("PING", timeout=0.03)
        slow.heal()
        assert await redis.execute("PING") == b"PONG"
        await redis.aclose()

    loop = new_loop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
    assert slow.connections == 1


def test_a_command_alone_takes_the_connection_of_an_earlier_one(slow: FaultProxy) -> None:
    redis = hotcount.Redis(slow.url, timeout=20, connect_timeout=20)
    for _ in range(5):
        with pytest.raises(hotcount.DeadlineError):
            redis.execute("NOT.KNOWN", timeout=0.03)
    slow.heal()
    with pytest.raises(hotcount.ReplyError, match="unknown command"):
        redis.execute("NOT.KNOWN")
    assert slow.connections == 1


def test_a_dial_that_nobody_answers_is_tried_again(own_redis: RedisServer) -> None:
    with FaultProxy(own_redis.socket) as proxy:
        proxy.black_hole()
        redis = hotcount.Redis(proxy.url, timeout=0.8, connect_timeout=0.2)
        with pytest.raises(hotcount.HotcountError, match="connect_timeout") as caught:
            redis.ping()
        assert isinstance(caught.value, (hotcount.DeadlineError, hotcount.UnavailableError))
        assert "nothing was applied" in str(caught.value)
        proxy.heal()
        redis.ping(timeout=20)
        assert proxy.connections >= 2


def test_loops_that_connect_at_once_do_not_wait_for_each_other(own_redis: RedisServer) -> None:
    """With a greeting that takes 0.3 s the last of 8 would wait 2.4 s."""
    with FaultProxy(own_redis.socket) as proxy:
        proxy.delay(0.3)
        redis = hotcount.Redis(proxy.url, timeout=20, connect_timeout=20)

        def in_a_loop(_: int) -> float:
            async def work() -> None:
                async with hotcount.aio.Redis(proxy.url, timeout=20, connect_timeout=20) as own:
                    await own.execute("PING")

            started = time.monotonic()
            asyncio.run(work())
            return time.monotonic() - started

        redis.ping()  # Keeps the client, which all loops share.
        took = together(in_a_loop, 8)
        assert proxy.connections == 9
        one = min(took)
        assert max(took) < 4 * one, took


def test_dials_side_by_side_that_fail_together_cost_one_pause(own_redis: RedisServer) -> None:
    """At half a second each, 16 of them would keep the next one back for 7 s."""
    loops = 16
    end = threading.Event()
    held: list[None] = []

    def meet_the_end() -> None:
        held.append(None)
        end.wait(30)
        raise ConnectionError

    with FaultProxy(own_redis.socket) as proxy:
        redis = hotcount.Redis(proxy.url, timeout=30, connect_timeout=30)
        redis.ping()
        proxy.before_each(meet_the_end)

        def in_a_loop(index: int) -> None:
            async def work() -> None:
                with pytest.raises(hotcount.UnavailableError, match=r"closed|reset"):
                    await hotcount.aio.Counter(redis).get("k")

            if index == 0:
                eventually(lambda: len(held) == loops)
                end.set()
                return
            asyncio.run(work())

        together(in_a_loop, 1 + loops)
        proxy.heal()

        async def later() -> int:
            return int(await hotcount.aio.Counter(redis).add("k", timeout=4))

        assert asyncio.run(later()) == 1


# -- names --------------------------------------------------------------------------------------

# What a resolver does, done by the test: names of more than one address, and one that hangs.
RESOLVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>
typedef int (*resolver)(const char*, const char*, const struct addrinfo*, struct addrinfo**);
int getaddrinfo(const char* host, const char* port, const struct addrinfo* hints,
                struct addrinfo** found) {
    resolver real = (resolver)dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL) return real(host, port, hints, found);
    if (strcmp(host, "hangs.test") == 0) { sleep(4); return EAI_AGAIN; }
    if (strcmp(host, "two.test") != 0) return real(host, port, hints, found);
    int failed = real("127.0.0.2", port, hints, found);
    if (failed == 0) failed = real("127.0.0.1", port, hints, &(*found)->ai_next);
    return failed;
}
void freeaddrinfo(struct addrinfo* list) {
    void (*real)(struct addrinfo*) = (void (*)(struct addrinfo*))dlsym(RTLD_NEXT, "freeaddrinfo");
    while (list != NULL) {
        struct addrinfo* next = list->ai_next;
        list->ai_next = NULL;
        real(list);
        list = next;
    }
}
"""


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resolver")
    source = folder / "resolver.c"
    source.write_text(RESOLVER)
    library = folder / "resolver.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def run_with(resolver: Path, program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={"LD_PRELOAD": str(resolver), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["refuses", "black hole", "never answers", "closes"])
def test_every_address_of_a_name_is_tried(tmp_path: Path, resolver: Path, first: str) -> None:
    port = free_port()
    server = RedisServer(tmp_path, port=port).start()
    taken: list[socket.socket] = []
    try:
        if first != "refuses":
            listener = socket.create_server(("127.0.0.2", port), backlog=0)
            taken.append(listener)
        if first == "black hole":  # A queue of connections that is full answers nobody.
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.2", port))
                taken.append(filler)
        if first == "closes":
            threading.Thread(target=close_all, args=(listener,), daemon=True).start()
        program = (
            "import hotcount, sys\n"
            "redis = hotcount.Redis(sys.argv[1], timeout=20, connect_timeout=2)\n"
            "print(redis.ping(), redis.stats()['connects'])\n"
        )
        assert run_with(resolver, program, f"redis://two.test:{port}") == "True 1"
        fired("other address")
    finally:
        for each in taken:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        server.stop()


# The resolver hangs for 4 s on a name, which keeps no other from being asked.
@pytest.mark.parametrize(("names", "seconds"), [("two.test", 10), ("hangs.test,127.0.0.1", 3)])
def test_every_address_of_a_seed_is_asked_for_the_map(
    tmp_path: Path, resolver: Path, names: str, seconds: int
) -> None:
    with RedisCluster(tmp_path, replicas=False).started() as cluster:
        program = (
            "import hotcount, sys\n"
            "redis = hotcount.Redis(sys.argv[1], timeout=int(sys.argv[2]))\n"
            "print(hotcount.Counter(redis).add('a'))\n"
        )
        seeds = f"redis+cluster://{names}:{cluster.nodes[0].port}"
        assert run_with(resolver, program, seeds, seconds) == "1"
        fired("other address")


def close_all(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def test_while_the_resolver_hangs_callers_leave_and_the_loop_goes_on(resolver: Path) -> None:
    program = """if True:
        import asyncio, time, hotcount, hotcount.aio
        started = time.monotonic()
        redis = hotcount.Redis("redis://hangs.test")
        try:
            redis.ping(timeout=0.2)
        except hotcount.DeadlineError as error:
            assert "nothing was applied" in str(error)
        print(time.monotonic() - started < 2)

        async def work():
            redis = hotcount.aio.Redis("redis://hangs.test")
            call = redis.ping(timeout=1.5)
            started = time.monotonic()
            await asyncio.sleep(0.01)
            print(not call.done() and time.monotonic() - started < 1.4)
            try:
                await call
            except hotcount.DeadlineError:
                print(time.monotonic() - started < 3)

        asyncio.run(work())
    """
    assert run_with(resolver, program).split() == ["True"] * 3


def test_a_program_that_is_executed_inherits_no_connection(own_redis: RedisServer) -> None:
    redis = own_redis.redis()
    redis.ping()
    with pytest.raises(hotcount.ReplyError, match="unknown command"):
        redis.execute("NOT.KNOWN")  # Over a connection of its own.
    program = (
        "import os, stat\n"
        "for fd in range(3, 256):\n"
        "    try: mode = os.fstat(fd).st_mode\n"
        "    except OSError: continue\n"
        "    if stat.S_ISSOCK(mode): print(fd)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], close_fds=False, capture_output=True, text=True
    )
    assert done.stdout == ""


def test_a_caller_whose_connection_another_took_is_given_the_next(own_redis: RedisServer) -> None:
    def work(redis: hotcount.Redis) -> None:
        for _ in range(3):
            with pytest.raises(hotcount.ReplyError, match="unknown command"):
                redis.execute("NOT.KNOWN")

    for _ in range(100):
        with own_redis.redis(timeout=10) as redis:
            together(lambda _, redis=redis: work(redis), 8)  # type: ignore[misc]
