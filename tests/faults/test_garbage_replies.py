"""A server that answers what no Redis would: an error in bounds of memory and time, and the next
call connects again."""

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator

import hotcount
import pytest

from tests.support.eventually import BUSY, eventually
from tests.support.listener import Listener
from tests.support.together import in_child

GREETING = b"+OK\r\n"  # To HELLO: whatever is no error will do.

GARBAGE = [
    pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="tls"),
    pytest.param(bytes(range(256)) * 10, id="all bytes"),
    pytest.param(b"*1\r\n" * 100_000, id="deep nesting"),
    pytest.param(b"%1\r\n" * 10, id="nested maps"),
    pytest.param(b"*9223372036854775807\r\n", id="array of 2^63 - 1"),
    pytest.param(b"*4294967295\r\n", id="array of 2^32 - 1"),
    pytest.param(b"*100000000\r\n", id="array of 10^8"),
    pytest.param(b"*-7\r\n", id="array of -7"),
    pytest.param(b"$9223372036854775807\r\n", id="bulk of 2^63 - 1"),
    pytest.param(b"$99999999999999999999\r\n", id="bulk of 10^20"),
    pytest.param(b"$-5\r\n", id="bulk of -5"),
    pytest.param(b":12x4\r\n", id="no integer"),
    pytest.param(b":99999999999999999999\r\n", id="too large an integer"),
    pytest.param(b"#maybe\r\n", id="no bool"),
    pytest.param(b",abc\r\n", id="no double"),
    pytest.param(b"$3\r\nabcdef\r\n", id="bulk without its end"),
]


class HostileServer(Listener):
    """Greets, and answers everything after that with the same bytes."""

    def __init__(self, answer: bytes, *, greets: bool = True, repeats: bool = False) -> None:
        self.answer = answer
        self.greets = greets
        self.repeats = repeats
        super().__init__()
        self.url = f"redis://127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        while data := client.recv(65536):
            if self.greets and b"HELLO" in data:
                client.sendall(GREETING)
                continue
            client.sendall(self.answer)
            while self.repeats:
                client.sendall(self.answer)


@pytest.fixture(params=GARBAGE)
def hostile(request: pytest.FixtureRequest) -> Iterator[HostileServer]:
    with HostileServer(request.param) as server:
        yield server


def errors_of(call: Callable[[], object]) -> list[BaseException]:
    try:
        call()
    except hotcount.BatchError as failure:
        return list(failure.errors.values())
    except hotcount.HotcountError as failure:
        return [failure]
    return []


TYPED = (
    hotcount.UnavailableError,
    hotcount.OutcomeUnknownError,
    hotcount.DeadlineError,
    hotcount.ReplyError,
)


def test_every_concept_gets_a_typed_error_in_time(hostile: HostileServer) -> None:
    with hotcount.Redis(hostile.url, timeout=0.5) as redis:
        limiter = hotcount.Limiter(redis, "5/minute")
        for call in (
            lambda: limiter.hit("k"),
            lambda: limiter.hit_many(["a", "b"]),
            lambda: hotcount.LiveSets(redis).upsert("k", "a", 1),
            lambda: hotcount.LiveSets(redis).top("k", 5),
            lambda: hotcount.LiveSets(redis).sweep("*"),
            lambda: hotcount.Counter(redis).add("k"),
        ):
            connections = hostile.connections
            started = time.monotonic()
            errors = errors_of(call)
            assert errors, "it took garbage for an answer"
            assert all(isinstance(error, TYPED) for error in errors), errors
            assert time.monotonic() - started <= 0.5 + BUSY
            assert hostile.connections <= connections + 4
        hostile.answer = b":7\r\n"
        # What was given up on is left after its time of grace.
        eventually(lambda: not errors_of(lambda: hotcount.Counter(redis).add("k")))
        assert hotcount.Counter(redis).add("k", timeout=20) == 7


def test_garbage_instead_of_a_greeting_has_applied_nothing() -> None:
    for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*1\r\n" * 1000, b"*4294967295\r\n"):
        with (
            HostileServer(answer, greets=False) as server,
            hotcount.Redis(server.url, timeout=0.5) as redis,
        ):
            with pytest.raises((hotcount.UnavailableError, hotcount.DeadlineError)):
                hotcount.Counter(redis).add("k")
            server.greets = True
            server.answer = b":1\r\n"
            # The dial that was answered by garbage goes on to its own limit.
            assert hotcount.Counter(redis).add("k", timeout=20) == 1


@pytest.mark.parametrize(
    "answer",
    [b"*16777216\r\n" * 8, b"*100000000\r\n" * 8, b"*16777216\r\n" + b":1\r\n" * 10_000],
    ids=["nested", "too many, nested", "many"],
)
def test_a_length_that_a_server_announces_takes_no_memory(answer: bytes) -> None:
    def peak_growth() -> int:
        with hotcount.Redis(server.url, timeout=0.5) as redis:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(3):
                with contextlib.suppress(*TYPED):
                    redis.execute("GET", "k")
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    with HostileServer(answer) as server:
        # In a child: peaks of this process are older tests' business.
        assert in_child(peak_growth) < 200 * 1024, "kilobytes"
