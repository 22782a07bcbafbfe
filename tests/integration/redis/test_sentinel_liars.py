"""Sentinels that lie, are late or send garbage, and a process that stood still: fakes, because real
Sentinels do none of that on demand."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import hotcount
import pytest
from hotcount import _doctor

from tests.support.eventually import eventually, stand_still
from tests.support.listener import end
from tests.support.resp_server import RespServer, Words, bulk

SERVICE = "votes"


class FakePrimary(RespServer):
    """Answers INCRBY with 1 as long as `answers` is set; calls itself a primary."""

    def __init__(self) -> None:
        self.adds = 0
        self.answers = threading.Event()
        self.answers.set()
        super().__init__(self._respond)

    def _respond(self, _: int, client: socket.socket, words: Words) -> None:
        if words[0] == b"ROLE":
            client.sendall(b"*3\r\n" + bulk(b"master") + b":0\r\n*0\r\n")
            return
        self.adds += 1
        self.answers.wait(30)
        client.sendall(b":1\r\n")


class FakeSentinel(RespServer):
    """Names `primary` with `epoch`, or sends `garbage` to whatever it is asked."""

    def __init__(self, primary: int, epoch: int = 1, garbage: bytes = b"") -> None:
        self.primary = primary
        self.epoch = epoch
        self.garbage = garbage
        self.away = False
        self.subscribed = 0
        self.flags = "master"
        self.delay = 0.0
        super().__init__(self._respond)

    def hang_up(self, *, away: bool = True) -> None:
        """It ends its connections; `away`: and each new one at its first command."""
        self.away = away
        for connection in self._open:
            end(connection)

    def _respond(self, _: int, client: socket.socket, words: Words) -> None:
        if self.away:
            raise OSError("away")
        if words[0] == b"SUBSCRIBE":
            self.subscribed += 1
            client.sendall(b"*3\r\n" + bulk(b"subscribe") + bulk(words[1]) + b":1\r\n")
        elif words[0] == b"ECHO":
            client.sendall(bulk(words[1]))
        elif self.garbage:
            client.sendall(self.garbage)
        elif words[1] == b"MASTER":
            time.sleep(self.delay)
            fields: dict[str, object] = {"ip": "127.0.0.1", "port": self.primary}
            fields |= {"flags": self.flags, "config-epoch": self.epoch, "num-other-sentinels": 2}
            fields |= {"num-slaves": 1, "down-after-milliseconds": 1000, "quorum": 2}
            texts = [str(each).encode() for pair in fields.items() for each in pair]
            client.sendall(b"*%d\r\n" % len(texts) + b"".join(map(bulk, texts)))
        else:
            port = str(self.primary).encode()
            client.sendall(b"*2\r\n" + bulk(b"127.0.0.1") + bulk(port))


def subscribes_again(sentinel: FakeSentinel, before: int) -> bool:
    return sentinel.subscribed > before


@contextlib.contextmanager
def fakes(*extra: bytes) -> Iterator[tuple[FakePrimary, list[FakeSentinel], str]]:
    """Two Sentinels that tell the truth, and one for each garbage."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(FakePrimary())
        stack.callback(primary.answers.set)
        sentinels = [
            stack.enter_context(FakeSentinel(primary.port, garbage=garbage))
            for garbage in (b"", b"", *extra)
        ]
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in sentinels)
        yield primary, sentinels, f"redis+sentinel://{hosts}/{SERVICE}"


ADD_TWICE = """
import sys, hotcount
with hotcount.Redis(sys.argv[1], timeout=30, silence_limit=60) as redis:
    counter = hotcount.Counter(redis)
    print(counter.add("k"), flush=True)
    sys.stdin.readline()
    try:
        counter.add("k")
        print("acknowledged")
    except hotcount.OutcomeUnknownError as error:
        print("unknown:", error)
"""


def stopped_in_its_second_add(
    program: str, url: str, primary: FakePrimary, seconds: float = 3
) -> subprocess.Popen[str]:
    """Has stood still for these seconds; its add has no reply yet.

    The Sentinels' last answers, which count for 2.5 s, are too old after the default.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin
    assert child.stdout
    assert child.stdout.readline() == "1\n"
    primary.answers.clear()
    child.stdin.write("\n")
    child.stdin.flush()
    eventually(lambda: primary.adds == 2, 20)
    stand_still(child.pid)
    time.sleep(seconds)
    return child


@pytest.mark.server
@pytest.mark.parametrize("pause", [0.12, 0.4, 0.8, 1.2, 1.6, 3])
def test_a_process_that_stood_still_asks_before_it_believes_a_reply(pause: float) -> None:
    """Its primary was replaced meanwhile, and the reply lies in its socket before the news."""
    with fakes(b"") as (primary, sentinels, url):
        child = stopped_in_its_second_add(ADD_TWICE, url, primary, pause / 2)
        with FakePrimary() as successor:
            for sentinel in sentinels:
                sentinel.primary = successor.port
                sentinel.epoch = 2
                sentinel.delay = 0.2
            primary.answers.set()
            time.sleep(pause / 2)
            child.send_signal(signal.SIGCONT)
            said, _ = child.communicate(timeout=30)
    assert said.startswith("unknown:")
    assert "replaced it by" in said


@pytest.mark.server
def test_a_reply_counts_after_a_standstill_if_the_elected_sentinel_is_gone() -> None:
    """The others name a primary of before the failover, which says nothing against the new one."""
    with fakes(b"") as (_, sentinels, url), FakePrimary() as successor:
        sentinels[0].primary, sentinels[0].epoch = successor.port, 2
        child = stopped_in_its_second_add(ADD_TWICE, url, successor, 0.6)
        sentinels[0].hang_up()
        successor.answers.set()
        time.sleep(0.2)
        child.send_signal(signal.SIGCONT)
        said, _ = child.communicate(timeout=30)
    assert said == "acknowledged\n"


# The gaps between its beats, of which the first is the pause.
ADD_BESIDE_A_BEAT = """
import asyncio, sys, time, hotcount.aio
async def main():
    async with hotcount.aio.Redis(sys.argv[1], timeout=30, silence_limit=60) as redis:
        counter = hotcount.aio.Counter(redis)
        print(await counter.add("k"), flush=True)
        sys.stdin.readline()
        adding = asyncio.ensure_future(counter.add("k"))
        gaps, last = [], time.monotonic()
        while not adding.done():
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - last)
            last += gaps[-1]
        print(adding.result(), *sorted(gaps, reverse=True)[:2])
asyncio.run(main())
"""


@pytest.mark.server
def test_a_loop_goes_on_while_a_reply_waits_for_the_sentinels() -> None:
    """The process stood still, and no Sentinel tells whether the reply counts."""
    with fakes(b"") as (primary, sentinels, url):
        child = stopped_in_its_second_add(ADD_BESIDE_A_BEAT, url, primary)
        late(sentinels)
        primary.answers.set()
        time.sleep(0.2)
        child.send_signal(signal.SIGCONT)
        said, _ = child.communicate(timeout=30)
    answer, pause, gap = map(float, said.split())
    assert answer == 1
    assert pause > 3
    # Asking the Sentinels takes a second.
    assert gap < 0.7


GARBAGE = [
    b"*-1\r\n",
    b"$-1\r\n",
    b"*2\r\n$1\r\nh\r\n$2\r\n-1\r\n",
    b"*2\r\n:1\r\n:2\r\n",
    b"*0\r\n",
    b"+OK\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"*1000000000\r\n",
    b"$2147483647\r\nx",
    b"\xff\x00\r\n",
    b":1\r\n:2\r\n:3\r\n:4\r\n:5\r\n",
]


@pytest.mark.server
@pytest.mark.parametrize("garbage", GARBAGE)
def test_one_sentinel_that_sends_garbage_makes_no_difference(garbage: bytes) -> None:
    with fakes(garbage) as (_, __, url), hotcount.Redis(url, timeout=10) as redis:
        assert hotcount.Counter(redis).add("k") == 1


@pytest.mark.server
@pytest.mark.parametrize("garbage", GARBAGE)
def test_the_doctor_says_which_sentinel_sends_garbage(garbage: bytes) -> None:
    with fakes(garbage) as (_, sentinels, url):
        found = _doctor.examine(url, 1, {})
    told = [each for each in found if each.check == "sentinel"]
    assert [each.state for each in told] == ["warning"]
    assert f"127.0.0.1:{sentinels[2].port}" in told[0].found


def late(sentinels: list[FakeSentinel]) -> None:
    for each in sentinels:
        each.garbage = b"$5\r\n"  # Of a reply that never ends.


def heal(sentinels: list[FakeSentinel]) -> None:
    for each in sentinels:
        each.garbage = b""


def gone(sentinels: list[FakeSentinel]) -> None:
    for each in sentinels:
        each.hang_up()


@pytest.mark.server
def test_calls_wait_for_sentinels_that_are_late() -> None:
    with fakes(b"") as (_, sentinels, url):
        late(sentinels)
        with hotcount.Redis(url, timeout=20) as redis:
            healed = threading.Timer(4, heal, [sentinels])
            healed.start()
            assert hotcount.Counter(redis).add("k") == 1
            healed.join()


@pytest.mark.server
@pytest.mark.parametrize("leave", [late, gone])
def test_a_connection_goes_on_without_its_sentinels(
    leave: Callable[[list[FakeSentinel]], None],
) -> None:
    with fakes(b"") as (_, sentinels, url), hotcount.Redis(url, timeout=10) as redis:
        counter = hotcount.Counter(redis)
        counter.add("k")
        leave(sentinels)
        until = time.monotonic() + 5
        while time.monotonic() < until:
            assert counter.add("k") == 1
            time.sleep(0.005)
        assert redis.stats()["connects"] == 1


@pytest.mark.server
def test_a_lost_subscription_is_renewed_at_once() -> None:
    """What a Sentinel publishes meanwhile ends the connections of a replaced primary."""
    with fakes(b"") as (_, sentinels, url), hotcount.Redis(url, timeout=10) as redis:
        hotcount.Counter(redis).add("k")
        time.sleep(1.5)
        took = []
        for sentinel in sentinels:
            before = sentinel.subscribed
            began = time.monotonic()
            sentinel.hang_up(away=False)
            eventually(partial(subscribes_again, sentinel, before))
            took.append(time.monotonic() - began)
        # Each would rest for a second.
        assert min(took) < 0.5, took


@pytest.mark.server
def test_a_look_that_sees_a_failover_ends_the_connection() -> None:
    """One that was made while the elected Sentinel was late, after its message."""
    with fakes(b"") as (_, sentinels, url), hotcount.Redis(url, timeout=2) as redis:
        counter = hotcount.Counter(redis)
        counter.add("k")
        sentinels[0].flags = "master,failover_in_progress"
        time.sleep(1.5)
        with pytest.raises(hotcount.UnavailableError, match="are replacing"):
            counter.add("k")
        # The others go on naming the old primary, and their answers come first.
        sentinels[0].delay = 0.4
        with pytest.raises(hotcount.UnavailableError, match="are replacing"):
            counter.add("k")
        sentinels[0].flags = "master"
        assert counter.add("k") == 1  # What the fake server answers.


@pytest.mark.server
def test_a_failover_that_only_a_dead_sentinel_knew_of_counts_for_some_seconds() -> None:
    with (
        fakes(b"") as (primary, sentinels, url),
        FakePrimary() as successor,
        hotcount.Redis(url, timeout=10) as redis,
    ):
        sentinels[0].primary, sentinels[0].epoch = successor.port, 2
        counter = hotcount.Counter(redis)
        assert counter.add("k") == 1
        sentinels[0].hang_up()
        until = time.monotonic() + 4
        while time.monotonic() < until:
            assert counter.add("k") == 1
            time.sleep(0.005)
        assert (primary.adds, successor.adds > 1) == (0, True)
        # Then the others have given it up, or replaced the old primary by a failover of their own.
        until = time.monotonic() + 30
        while primary.adds == 0:
            assert time.monotonic() < until
            with contextlib.suppress(hotcount.HotcountError):
                counter.add("k")
            time.sleep(0.005)
