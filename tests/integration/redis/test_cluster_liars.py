"""Nodes that lie: MOVED in circles, maps that make no sense, nodes that answer for slots they lost.
Fakes, because real nodes do none of that on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import hotcount
import pytest

from tests.support.eventually import BUSY
from tests.support.resp_server import RespServer, Words, bulk

Answer = Callable[[Words], bytes]


def slots(*owners: tuple[int, int, int]) -> bytes:
    """CLUSTER SLOTS: (first, last, port) of each range; a port's id is its 40 digits."""
    lines = [b"*%d\r\n" % len(owners)]
    for first, last, port in owners:
        node = b"*3\r\n" + bulk(b"127.0.0.1") + b":%d\r\n" % port + bulk(b"%040d" % port)
        lines.append(b"*3\r\n:%d\r\n:%d\r\n" % (first, last) + node)
    return b"".join(lines)


def nodes(*epochs: tuple[int, int]) -> bytes:
    """CLUSTER NODES: the config epoch of each port."""
    return bulk(
        "".join(
            f"{port:040d} 127.0.0.1:{port}@1 master - 0 0 {epoch} connected\n"
            for port, epoch in epochs
        ).encode()
    )


class FakeNode(RespServer):
    """Answers CLUSTER SLOTS and NODES with `map`, and commands with `answer`."""

    def __init__(self) -> None:
        self.map = (b"*0\r\n", bulk(b""))
        self.answer: Answer = lambda _: b":1\r\n"
        self.commands = 0
        self.maps_asked = 0
        super().__init__(self._respond)

    def _respond(self, _: int, client: socket.socket, words: Words) -> None:
        if words[0] == b"CLUSTER":
            self.maps_asked += words[1] == b"SLOTS"
            client.sendall(self.map[words[1] == b"NODES"])
        else:
            self.commands += 1
            client.sendall(self.answer(words))


@pytest.fixture
def pair() -> Iterator[tuple[FakeNode, FakeNode]]:
    with contextlib.closing(FakeNode()) as one, contextlib.closing(FakeNode()) as other:
        whole = (
            slots((0, 8191, one.port), (8192, 16383, other.port)),
            nodes((one.port, 1), (other.port, 2)),
        )
        one.map = other.map = whole
        yield one, other


def url(*fakes: FakeNode) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{fake.port}" for fake in fakes)


def test_moved_in_circles_ends_at_the_deadline(pair: tuple[FakeNode, FakeNode]) -> None:
    one, other = pair
    # Slot 15495 is that of "a".
    one.answer = lambda _: b"-MOVED 15495 127.0.0.1:%d\r\n" % other.port
    other.answer = lambda _: b"-MOVED 15495 127.0.0.1:%d\r\n" % one.port
    with hotcount.Redis(url(one, other), timeout=1) as store:
        began = time.monotonic()
        # On a busy machine the deadline may pass between a send and its reply.
        with pytest.raises((hotcount.UnavailableError, hotcount.OutcomeUnknownError)):
            hotcount.Counter(store, prefix="").add("a")
        assert 0.5 < time.monotonic() - began < 1 + BUSY
    assert one.commands + other.commands < 60, "it pauses"
    assert one.maps_asked + other.maps_asked < 20


@pytest.mark.parametrize(
    "line",
    [
        b"-MOVED\r\n",
        b"-MOVED 99999 127.0.0.1:1\r\n",
        b"-MOVED 15495 nowhere\r\n",
        b"-MOVED 7 127.0.0.1:1\r\n",
        b"-ASK 15495 ?:7\r\n",
        b"-MOVED 15495 127.0.0.1:70000\r\n",
    ],
)
def test_a_redirection_that_makes_no_sense_is_not_followed(
    pair: tuple[FakeNode, FakeNode], line: bytes
) -> None:
    one, other = pair
    refusals = iter([line] * 3)
    one.answer = other.answer = lambda _: next(refusals, b":1\r\n")
    with hotcount.Redis(url(one, other), timeout=5) as store:
        assert hotcount.Counter(store, prefix="").add("a") == 1


@pytest.mark.parametrize(
    ("slots_reply", "says"),
    [
        (b"*1\r\n:7\r\n", "makes no sense"),
        (b"*1\r\n*3\r\n:5\r\n:99999\r\n*0\r\n", "makes no sense"),
        (b"$3\r\nabc\r\n", "makes no sense"),
        (slots((0, 10, 7000), (5, 20, 7001)), "has two owners"),
        (b"-ERR This instance has cluster support disabled\r\n", "is no node of a cluster"),
        (b"+" + 5000 * b"x" + b"\r\n", "makes no sense"),
    ],
)
def test_a_garbage_map_of_every_node_is_an_error_that_says_so(
    pair: tuple[FakeNode, FakeNode], slots_reply: bytes, says: str
) -> None:
    for fake in pair:
        fake.map = (slots_reply, bulk(b""))
    with hotcount.Redis(url(*pair), timeout=2) as store:
        began = time.monotonic()
        with pytest.raises(hotcount.HotcountError, match=says):
            hotcount.Counter(store).add("a")
        assert time.monotonic() - began < 2 + BUSY


def test_a_garbage_map_of_one_node_harms_nobody(pair: tuple[FakeNode, FakeNode]) -> None:
    one, other = pair
    with contextlib.closing(FakeNode()) as third:
        third.map = other.map
        one.map = (slots((0, 16383, 1), (3, 4, 2)), bulk(b"garbage"))
        with hotcount.Redis(url(one, other, third), timeout=5) as store:
            assert hotcount.Counter(store).add_many(["a", "b", "c"]).tolist() == [1, 1, 1]


def test_an_outdated_map_does_not_win(pair: tuple[FakeNode, FakeNode]) -> None:
    one, other = pair
    # "a" is of `other`, by epoch 2. A node that was cut off says that it is its own, by epoch 1.
    with hotcount.Redis(url(other), timeout=5) as store:
        counter = hotcount.Counter(store, prefix="")
        assert counter.add("a") == 1
        before = one.commands
        one.map = (slots((0, 16383, one.port)), nodes((one.port, 1)))
        # One key of `one` doubts the map until it is asked anew.
        refusals = iter([b"-CLUSTERDOWN down\r\n"] * 5)
        one.answer = lambda words: next(refusals, b":1\r\n")
        other.map = one.map
        assert counter.add("b") == 1  # Slot 3300.
        asked = one.maps_asked + other.maps_asked
        assert asked >= 2
        assert counter.add("a") == 1
        assert one.commands == before + 6
    assert other.commands == 2


def test_a_node_that_was_silent_is_not_believed_alone(pair: tuple[FakeNode, FakeNode]) -> None:
    one, other = pair
    with (
        contextlib.closing(FakeNode()) as successor,
        hotcount.Redis(url(one, other), timeout=8, silence_limit=0.5) as store,
    ):
        counter = hotcount.Counter(store, prefix="")
        assert counter.add_many(["a", "b"]).tolist() == [1, 1]
        # `other` stands still, is replaced, and then answers what lay in its sockets.
        goes_on = threading.Event()

        def late(_: Words) -> bytes:
            after = slots((0, 8191, one.port), (8192, 16383, successor.port))
            one.map = (after, nodes((one.port, 1), (successor.port, 3)))
            other.map = successor.map = one.map
            goes_on.wait(0.7)
            return b":2\r\n"

        other.answer = late
        with pytest.raises(hotcount.OutcomeUnknownError):
            counter.add("a")
        goes_on.set()
        told = 0
        while told == 0:
            # Until the map is there `other` is asked again; what it says counts for nothing.
            with contextlib.suppress(hotcount.OutcomeUnknownError):
                told = counter.add("a")
        assert told == 1, "the successor's answer"
    assert successor.commands == 1
