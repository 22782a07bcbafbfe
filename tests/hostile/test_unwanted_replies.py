"""A server that never answers properly, for every route that a call can take: the call ends by its
deadline, is never given another's reply, and costs no more memory than it may."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable

import hotcount
import pytest
from hotcount import aio

from tests.support.resp_server import RespServer, Words, bulk
from tests.support.together import in_child, together

TIMEOUT = 0.4
SLACK = 0.1 + 1.5  # The promise, and a machine that is busy with other things.

Attack = Callable[[RespServer, socket.socket], None]
Route = Callable[[str], object]


def flood(chunk: bytes, begin: bytes = b"") -> Attack:
    """The same bytes for as long as somebody reads them."""
    many = chunk * max(1, 65536 // len(chunk))

    def attack(server: RespServer, client: socket.socket) -> None:
        client.sendall(begin)
        while not server.closing.is_set():
            client.sendall(many)

    return attack


def drip(chunk: bytes, begin: bytes = b"") -> Attack:
    """A little, again and again, that comes to no reply."""

    def attack(server: RespServer, client: socket.socket) -> None:
        client.sendall(begin)
        while not server.closing.wait(0.01):
            client.sendall(chunk)

    return attack


def once(answer: bytes) -> Attack:
    return lambda _, client: client.sendall(answer)


ENDLESS = {
    "pushes": flood(b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n"),
    "a push without an end": flood(b":1\r\n", b">16000000\r\n"),
    "attributes": flood(b"|1\r\n+ttl\r\n:3600\r\n"),
    "attributes inside of an array": flood(b"|1\r\n+a\r\n+b\r\n", b"*2\r\n:1\r\n"),
    "a line": flood(b"x", b"+"),
    "a number": flood(b"1", b":"),
    "a string": flood(b"x", b"$500000000\r\n"),
    "an array": flood(b":1\r\n", b"*10000000\r\n"),
    "arrays in an array": flood(b"*3\r\n*0\r\n*0\r\n_\r\n", b"*10000000\r\n"),
    "nested arrays": flood(b"*1\r\n"),
    "a dripping line": drip(b"x", b"+"),
    "a dripping string": drip(b"x", b"$5000\r\n"),
    "dripping pushes": drip(b">1\r\n+message\r\n"),
    "nothing": once(b""),
    "a huge array": once(b"*2147483647\r\n"),
    "a huge map": once(b"%9223372036854775807\r\n"),
    "a huge string": once(b"$2147483647\r\n"),
    "huge arrays, nested": once(b"*8000000\r\n" * 12),
    "half a reply": once(b":1"),
}

# What no add, and no script of ours, is answered by.
OTHER_SHAPES = {
    "a status": b"+OK\r\n",
    "text": b"$2\r\nhi\r\n",
    "nil": b"$-1\r\n",
    "an empty array": b"*0\r\n",
    "an array of texts": b"*2\r\n$1\r\na\r\n$1\r\nb\r\n",
    "nested arrays": b"*1\r\n*1\r\n*0\r\n",
}


def over_redis(call: Callable[[hotcount.Redis], object]) -> Route:
    def route(url: str) -> object:
        with hotcount.Redis(url, timeout=TIMEOUT) as redis:
            return call(redis)

    return route


def awaited(call: Callable[[aio.Redis], Awaitable[object]]) -> Route:
    async def main(url: str) -> object:
        async with aio.Redis(url, timeout=TIMEOUT) as redis:
            return await call(redis)

    return lambda url: asyncio.run(main(url))


TYPED: dict[str, Route] = {
    "add": over_redis(lambda redis: hotcount.Counter(redis).add("k")),
    "hit": over_redis(lambda redis: hotcount.Limiter(redis, "5/minute").hit("k")),
    "add_many": over_redis(lambda redis: hotcount.Counter(redis).add_many(["a", "b", "a"])),
    "hit_many": over_redis(lambda redis: hotcount.Limiter(redis, "5/minute").hit_many(["a", "b"])),
    "upsert": over_redis(lambda redis: hotcount.LiveSets(redis).upsert("k", "m", 1)),
    "add_awaited": awaited(lambda redis: aio.Counter(redis).add("k")),
}
ROUTES: dict[str, Route] = {
    **TYPED,
    "alone": over_redis(lambda redis: redis.execute("MODULE.DO", "k")),
    "alone_awaited": awaited(lambda redis: redis.execute("MODULE.DO", "k")),
}

KNOWN = (hotcount.UnavailableError, hotcount.OutcomeUnknownError, hotcount.DeadlineError)


def key_of(words: Words) -> str:
    """A counter's key as its caller names it."""
    return words[1].decode().rpartition(":")[2]


def errors_of(call: Route, url: str) -> list[BaseException]:
    try:
        answer = call(url)
    except hotcount.BatchError as failure:
        return list(failure.errors.values())
    except hotcount.HotcountError as failure:
        return [failure]
    pytest.fail(f"it took that for an answer: {answer}")


def attacked(attack: Attack) -> RespServer:
    server: RespServer
    server = RespServer(lambda _, client, __: attack(server, client))
    return server


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", ENDLESS)
def test_a_call_ends_by_its_deadline_whatever_comes(name: str, route: str) -> None:
    with attacked(ENDLESS[name]) as server:
        started = time.monotonic()
        errors = errors_of(ROUTES[route], server.url)
        took = time.monotonic() - started
    assert all(isinstance(error, KNOWN) for error in errors), errors
    assert took < TIMEOUT + SLACK


@pytest.mark.parametrize("name", ENDLESS)
def test_a_handshake_ends_by_the_deadline_whatever_comes(name: str) -> None:
    def respond(_: int, client: socket.socket, __: Words) -> None:
        pytest.fail("nothing may come before the handshake is over")

    for route in (TYPED["add"], TYPED["add_awaited"]):
        with RespServer(respond, greeting=b"") as server:
            # The greeting itself is the attack.
            def greet(client: socket.socket, server: RespServer = server) -> None:
                ENDLESS[name](server, client)

            server.greet = greet
            started = time.monotonic()
            errors = errors_of(route, server.url)
            took = time.monotonic() - started
        kinds = (hotcount.UnavailableError, hotcount.DeadlineError)
        assert all(isinstance(error, kinds) for error in errors), errors
        assert took < TIMEOUT + SLACK


@pytest.mark.parametrize("route", TYPED)
@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_a_reply_of_another_shape_is_an_error_and_no_value(
    name: str, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.hostile.test_unwanted_replies.TIMEOUT", 30)
    with attacked(once(OTHER_SHAPES[name])) as server:
        for error in errors_of(TYPED[route], server.url):
            assert isinstance(error, KNOWN), repr(error)
            assert isinstance(error, hotcount.OutcomeUnknownError)
            assert "another shape" in str(error)


def test_a_reply_that_does_not_fit_makes_all_calls_under_way_unknown() -> None:
    def respond(number: int, client: socket.socket, words: Words) -> None:
        # Each key has its own number; "bad" is answered by what no add is answered by.
        key = key_of(words)
        client.sendall(b"+OK\r\n" if key == "bad" else b":%d\r\n" % (int(key) * 1000))

    with RespServer(respond) as server, hotcount.Redis(server.url, timeout=20) as redis:
        counter = hotcount.Counter(redis)

        def call(index: int) -> None:
            for turn in range(50):
                key = "bad" if index == 0 else str(index * 100 + turn)
                try:
                    value = counter.add(key)
                except KNOWN:
                    continue
                assert value == int(key) * 1000

        together(call, 8)


@pytest.mark.parametrize("extra", [b":99\r\n", b"$2\r\nhi\r\n", b":9", b"*2\r\n:1\r\n", b"+"])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_an_extra_reply_is_never_given_to_the_next_call(extra: bytes, late: bool) -> None:
    sent = threading.Event()  # The extra one.

    def respond(_: int, client: socket.socket, words: Words) -> None:
        if words[0] == b"ECHO":
            client.sendall(bulk(words[1]))
            return
        # The add's own, then one that nobody asked for.
        own = b":%d\r\n" % int(key_of(words))
        client.sendall(own if late else own + extra)
        if late:
            time.sleep(0.02)
            with contextlib.suppress(OSError):  # The client may have left.
                client.sendall(extra)
            sent.set()

    with RespServer(respond) as server, hotcount.Redis(server.url, timeout=20) as redis:
        counter = hotcount.Counter(redis)
        for key in range(1000, 1020):
            with contextlib.suppress(*KNOWN):  # Where it came while this call was under way.
                assert counter.add(str(key)) == key
            if late:
                # The extra one has come, and a background thread looks at once: tested is what
                # comes after that look.
                assert sent.wait(20)
                sent.clear()
                time.sleep(0.05)

        async def main() -> None:
            async with aio.Redis(server.url, timeout=20) as awaiting:
                awaited = aio.Counter(awaiting)
                for key in range(1000, 1020):
                    with contextlib.suppress(*KNOWN):
                        assert await awaited.add(str(key)) == key
                    if late:
                        assert await asyncio.to_thread(sent.wait, 20)
                        sent.clear()
                        await asyncio.sleep(0.05)

        asyncio.run(main())


@pytest.mark.parametrize("extra", [b":99\r\n", b"+OK\r\n", b":9"])
def test_an_extra_reply_in_the_handshake_is_never_given_to_the_first_call(extra: bytes) -> None:
    def respond(_: int, client: socket.socket, words: Words) -> None:
        client.sendall(b":%d\r\n" % int(key_of(words)))

    greeting = b"-ERR unknown command\r\n" + extra
    with RespServer(respond, greeting=greeting) as server:
        for route in (TYPED["add"], TYPED["add_awaited"]):
            errors = errors_of(route, server.url)
            assert all(isinstance(error, hotcount.UnavailableError) for error in errors), errors


# What is too much is refused on the server's word, and what is dropped is never kept. (How much is
# kept of what may be kept: tests/cpp/redis/reply_reader_test.cpp.)
MEMORY_ATTACKS = {
    **{
        name: ENDLESS[name]
        for name in (
            *("pushes", "a push without an end", "attributes", "attributes inside of an array"),
            *("a line", "a number", "nested arrays"),
            *("a huge array", "a huge map", "a huge string", "huge arrays, nested"),
        )
    },
    "12 million empty arrays": flood(b"*0\r\n", b"*12000000\r\n"),
    "6 million pairs": flood(b"*0\r\n", b"%6000000\r\n"),
    "nulls in arrays in an array": flood(b"*100\r\n" + b"_\r\n" * 100, b"*10000000\r\n"),
}
MOST_GROWTH = 96 << 20


@pytest.mark.parametrize("route", ["sync", "aio", "alone"])
@pytest.mark.parametrize("name", MEMORY_ATTACKS)
def test_replies_that_are_dropped_take_no_memory(name: str, route: str) -> None:
    def peak_growth() -> int:
        # What any first call takes is not counted.
        with RespServer(lambda _, client, words: client.sendall(bulk(words[-1]))) as warm:
            call(warm.url, TIMEOUT)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(2):
            call(server.url, 1)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024

    def call(url: str, timeout: float) -> None:
        command = ("MODULE.DO", "k") if route == "alone" else ("GET", "k")
        if route != "aio":
            with hotcount.Redis(url, timeout=timeout) as redis, contextlib.suppress(*KNOWN):
                redis.execute(*command)
            return

        async def main() -> None:
            async with aio.Redis(url, timeout=timeout) as redis:
                with contextlib.suppress(*KNOWN):
                    await redis.execute(*command)

        asyncio.run(main())

    with attacked(MEMORY_ATTACKS[name]) as server:
        # In a child: peaks of this process are older tests' business.
        assert in_child(peak_growth) < MOST_GROWTH


@pytest.mark.parametrize("name", ["pushes", "a string", "attributes"])
def test_a_flood_does_not_starve_the_loop(name: str) -> None:
    async def main() -> int:
        async with aio.Redis(server.url, timeout=2) as redis:
            call = asyncio.ensure_future(aio.Counter(redis).add("k"))
            turns = 0
            while not call.done():
                await asyncio.sleep(0.001)
                turns += 1
            with pytest.raises(KNOWN):
                await call
            return turns

    with attacked(ENDLESS[name]) as server:
        # A loop that the flood holds is held until the deadline: it turns once or twice.
        assert asyncio.run(main()) > 2


@pytest.mark.parametrize("name", ["pushes", "a string", "dripping pushes"])
@pytest.mark.parametrize("route", ["add", "alone"])
def test_ctrl_c_ends_a_call_while_replies_keep_coming(
    name: str, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.hostile.test_unwanted_replies.TIMEOUT", 30)
    arrived = threading.Event()

    def respond(_: int, client: socket.socket, __: Words) -> None:
        arrived.set()
        ENDLESS[name](server, client)

    def interrupt() -> None:
        arrived.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    with RespServer(respond) as server:
        killer = threading.Thread(target=interrupt)
        killer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ROUTES[route](server.url)
        assert time.monotonic() - started < 10
        killer.join()


def test_a_scan_whose_cursor_never_ends_stops_at_the_deadline() -> None:
    def respond(_: int, client: socket.socket, words: Words) -> None:
        cursor = int(words[1]) + 1
        client.sendall(b"*2\r\n" + bulk(b"%d" % cursor) + b"*0\r\n")

    with RespServer(respond) as server, hotcount.Redis(server.url, timeout=20) as redis:
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError):
            hotcount.LiveSets(redis).sweep("*", timeout=TIMEOUT)
        assert time.monotonic() - started < TIMEOUT + SLACK
