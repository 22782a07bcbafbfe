"""hotcount.Redis(credentials=...): who is asked for the login of a connection, and when."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.programs import captured
from tests.support.resp_server import RespServer, hello
from tests.support.servers import RedisServer
from tests.support.together import in_child, together

pytestmark = pytest.mark.server

USER = "app"
FIRST = "first-canary"
RIGHTS = ("on", f">{FIRST}", "~*", "+@all")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path, config=("--user", USER, *RIGHTS)).started() as running:
        yield running


def end_connections(server: RedisServer) -> None:
    """Of the user, so that it has to log in again."""
    with server.redis() as admin:
        admin.execute("CLIENT", "KILL", "USER", USER)


def succeeds(call: Callable[[], Any]) -> bool:
    try:
        return bool(call())
    except hotcount.HotcountError:
        return False


class Vault:
    """Where the password stands now; counts who asks."""

    def __init__(self, password: str = FIRST) -> None:
        self.password = password
        self.asked = 0

    def __call__(self) -> tuple[str, str]:
        self.asked += 1
        return USER, self.password


def test_each_connection_asks_anew(server: RedisServer) -> None:
    vault = Vault()
    with (
        hotcount.Redis(server.url, timeout=20, credentials=vault) as redis,
        hotcount.Redis(server.url, timeout=20, credentials=vault) as again,
    ):
        assert vault.asked == 0, "it connects when it is first used"
        assert redis.execute("ACL", "WHOAMI") == again.execute("ACL", "WHOAMI") == USER.encode()
        assert vault.asked == 1, "objects of one URL and callable share a connection"
        end_connections(server)
        eventually(lambda: succeeds(redis.ping))
        assert vault.asked == 2


def test_a_password_that_changes_under_load_fails_no_call(server: RedisServer) -> None:
    vault = Vault()
    over = threading.Event()
    rounds = 12
    acknowledged: list[int] = []

    def rotate() -> None:
        with server.redis() as admin:
            for number in range(rounds):
                old, new = vault.password, f"canary-{number}"
                admin.execute("ACL", "SETUSER", USER, f">{new}")
                vault.password = new
                admin.execute("ACL", "SETUSER", USER, f"<{old}")
                admin.execute("CLIENT", "KILL", "USER", USER)
                fired("other password")
                time.sleep(0.05)
        over.set()

    def add(redis: Any) -> int:
        """How many adds have no known outcome: their connection was ended."""
        counter, unknown = hotcount.Counter(redis), 0
        while not over.is_set():
            try:
                counter.add("k")
                acknowledged.append(1)
            except hotcount.OutcomeUnknownError:
                unknown += 1
        return unknown

    async def add_in_loop() -> int:
        counter, unknown = aio.Counter(redis), 0
        while not over.is_set():
            try:
                await counter.add("k")
                acknowledged.append(1)
            except hotcount.OutcomeUnknownError:
                unknown += 1
        return unknown

    with hotcount.Redis(server.url, timeout=20, credentials=vault) as redis:
        work: list[Callable[[], int]] = [
            functools.partial(add, redis),
            functools.partial(add, redis),
            lambda: asyncio.run(add_in_loop()),
        ]
        thread = threading.Thread(target=rotate)
        thread.start()
        unknown = sum(together(lambda index: work[index](), len(work)))
        thread.join()
        assert vault.asked >= rounds
        stored = hotcount.Counter(redis).get("k")
    assert len(acknowledged) <= stored <= len(acknowledged) + unknown


REFUSED = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
ENDED = b""
GREETED = hello("7.0.15")


@contextlib.contextmanager
def greeter(*answers: bytes) -> Iterator[RespServer]:
    """Answers its connections so, one after the other; the last answer stays."""
    left = list(answers)

    def greet(client: socket.socket) -> None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer == ENDED:
            client.shutdown(socket.SHUT_RDWR)
        elif fake.connections <= len(answers):
            client.sendall(answer)

    with RespServer(lambda *_: None) as fake:
        fake.greet = greet
        yield fake


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        pytest.param([ENDED, GREETED], 1, id="ended"),
        pytest.param([REFUSED, ENDED, GREETED], 2, id="refused then ended"),
        pytest.param([ENDED, REFUSED, GREETED], 2, id="ended then refused"),
    ],
)
def test_each_step_of_a_new_password_may_cost_a_dial_one_connection(
    answers: list[bytes], asked: int
) -> None:
    passwords = ["old-canary", FIRST]
    with greeter(*answers) as fake:
        vault = functools.partial(passwords.pop, 0)
        with hotcount.Redis(fake.url, timeout=20, credentials=lambda: (USER, vault())) as redis:
            assert redis.ping() is True
        assert (fake.connections, 2 - len(passwords)) == (len(answers), asked)


def test_a_refused_password_is_asked_for_once_more(server: RedisServer) -> None:
    answers = ["old-canary", FIRST]
    with hotcount.Redis(
        server.url, timeout=20, credentials=lambda: (USER, answers.pop(0))
    ) as redis:
        assert redis.ping() is True
    assert answers == []
    wrong = Vault("wrong-canary")
    with hotcount.Redis(server.url, timeout=20, credentials=wrong) as redis:
        with pytest.raises(hotcount.AuthError) as caught:
            redis.ping()
        assert (caught.value.code, wrong.asked) == ("WRONGPASS", 2)
        assert "canary" not in repr(caught.value)
        wrong.password = FIRST
        eventually(lambda: succeeds(redis.ping))


def test_what_it_raises_is_told_to_the_callers_and_nothing_is_applied(server: RedisServer) -> None:
    fails = [True]

    def credentials() -> tuple[str, str]:
        if fails:
            raise LookupError("no token")
        return USER, FIRST

    with hotcount.Redis(server.url, timeout=20, credentials=credentials) as redis:
        counter = hotcount.Counter(redis)
        with pytest.raises(hotcount.AuthError, match=r"credentials\(\) raised LookupError: no tok"):
            counter.add("k")
        fails.clear()
        eventually(lambda: succeeds(lambda: counter.add("k") == 1))


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (FIRST, "returned str, not"),
        ((FIRST,), "returned a tuple of 1, not"),
        ((USER, 7), "returned a tuple with a int, not"),
        ((USER, ""), "returned an empty password, not"),
        ((USER, "\ud800canary"), "returned text that is not Unicode, not"),
    ],
)
def test_another_return_value_is_a_config_error_that_does_not_show_it(
    server: RedisServer, returned: Any, says: str
) -> None:
    with (
        hotcount.Redis(server.url, timeout=20, credentials=lambda: returned) as redis,
        pytest.raises(hotcount.ConfigError, match=says) as caught,
    ):
        redis.ping()
    assert "canary" not in repr(caught.value)


@pytest.mark.parametrize(
    ("url", "given", "error", "says"),
    [
        ("redis://h", (USER, FIRST), TypeError, "credentials must be a callable that returns"),
        ("redis://:canary@h", Vault(), hotcount.ConfigError, "credentials takes the place of"),
        ("redis://h?credentials=canary", None, hotcount.ConfigError, "credentials is an argument"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(
    url: str, given: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        hotcount.Redis(url, credentials=given)
    assert "canary" not in str(caught.value)


def test_one_that_hangs_ends_the_attempt_and_holds_one_thread(server: RedisServer) -> None:
    goes_on = threading.Event()
    inside = [0, 0]

    def credentials() -> tuple[str, str]:
        inside[0] += 1
        inside[1] = max(inside)
        goes_on.wait(60)
        inside[0] -= 1
        return USER, FIRST

    with hotcount.Redis(
        server.url, timeout=0.8, connect_timeout=0.1, credentials=credentials
    ) as redis:
        begun = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match=r"credentials\(\) did not return within"):
            redis.ping()
        assert time.monotonic() - begun < 20
        with pytest.raises(hotcount.DeadlineError):
            redis.ping()
        assert inside == [1, 1]
        goes_on.set()
        eventually(lambda: succeeds(redis.ping))


def test_no_repr_and_no_log_shows_what_it_knows(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    def credentials(password: str) -> tuple[str, str]:
        return USER, password

    source = functools.partial(credentials, "bound-canary")
    with caplog.at_level(logging.DEBUG), hotcount.Redis(server.url, credentials=source) as redis:
        assert redis.credentials is source
        assert repr(redis).endswith("credentials=***)")
        assert hotcount.Redis(server.url).credentials is None
        with pytest.raises(hotcount.AuthError) as caught:
            redis.ping()
        shown = [repr(redis), repr(hotcount.Counter(redis)), repr(caught.value), caplog.text]
    assert "canary" not in "".join(shown)


def test_a_forked_child_asks_for_its_own_connection(server: RedisServer) -> None:
    vault = Vault()
    with hotcount.Redis(server.url, timeout=20, credentials=vault) as redis:
        assert redis.ping()

        def child() -> tuple[bytes, int]:
            return redis.execute("ACL", "WHOAMI"), vault.asked

        assert in_child(child) == (USER.encode(), 2)
        assert vault.asked == 1


HANGS = """
import sys, threading, hotcount
inside = threading.Event()
def credentials():
    inside.set()
    threading.Event().wait()
redis = hotcount.Redis(sys.argv[1], timeout=30, credentials=credentials)
threading.Thread(target=redis.ping, daemon=True).start()
inside.wait()
"""


def test_one_that_hangs_does_not_keep_the_interpreter(server: RedisServer) -> None:
    done = captured([sys.executable, "-c", HANGS, server.url])
    assert (done.returncode, done.stderr) == (0, "")
