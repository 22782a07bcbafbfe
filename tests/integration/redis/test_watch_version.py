"""WATCH is trusted only from Redis 6.2.5 on: before, EXEC ran although a watched key had expired.

Such a server is not to be had here, so a fake one says its version and does as it did.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import hotcount
import pytest
from hotcount import Upsert

from tests.support.resp_server import RespServer, Words, bulk, hello

NO_HELLO = b"-ERR unknown command 'HELLO'\r\n"


class OldServer(RespServer):
    """A set of 5 s at PTTL that is gone when EXEC runs it; `info` answers INFO.

    EXEC adds the member all the same, as Redis 6.2.1 did: that makes a set without a TTL.
    """

    def __init__(self, greeting: bytes, info: bytes) -> None:
        self.info = info
        self.names: list[bytes] = []
        self.made_without_ttl = False
        super().__init__(self.answer, greeting=greeting)

    def answer(self, _: int, client: socket.socket, words: Words) -> None:
        name = words[0].upper()
        self.names.append(name)
        if name == b"EXEC":
            self.made_without_ttl = True
        answers = {
            b"INFO": self.info,
            b"TYPE": b"+zset\r\n",
            b"PTTL": b":5000\r\n",
            b"ZADD": b"+QUEUED\r\n",
            b"EXEC": b"*1\r\n:1\r\n",
        }
        client.sendall(answers.get(name, b"+OK\r\n"))


@contextmanager
def sets_on(
    greeting: bytes, info: bytes = b"-ERR not to be asked\r\n"
) -> Iterator[tuple[OldServer, hotcount.LiveSets]]:
    with OldServer(greeting, info) as server, hotcount.Redis(server.url, timeout=20) as redis:
        yield server, hotcount.LiveSets(redis, method="watch")


@pytest.mark.parametrize("version", ["6.2.1", "6.2.4", "6.0.16", "5.0.14", "6", "of its own", ""])
@pytest.mark.parametrize("says", ["HELLO", "INFO"])
def test_a_server_whose_exec_overlooks_an_expired_key_is_refused_before_it_is_asked(
    version: str, says: str
) -> None:
    info = bulk(f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n".encode())
    with sets_on(hello(version) if says == "HELLO" else NO_HELLO, info) as (server, sets):
        for _ in range(2):
            with pytest.raises(hotcount.ConfigError, match=r"6\.2\.5.*nothing was applied"):
                sets.upsert("k", "late", 9)
        with pytest.raises(hotcount.ConfigError, match=version or "does not say its version"):
            sets.upsert("k", "late", 9)
        assert set(server.names) <= {b"INFO"}
        assert not server.made_without_ttl
        assert list(sets.upsert_many([("k", "late", 9)], errors="return").errors) == [0]


@pytest.mark.parametrize("version", ["6.2.5", "6.2.14", "7.0.15", "8.0", "10.0.0-rc1"])
def test_a_server_of_that_version_or_a_later_one_is_trusted(version: str) -> None:
    with sets_on(hello(version)) as (server, sets):
        assert sets.upsert("k", "a", 1) is Upsert.APPLIED
        assert b"INFO" not in server.names


def test_info_is_asked_once_for_each_connection() -> None:
    with sets_on(NO_HELLO, bulk(b"# Server\r\nredis_version:7.2.4\r\n")) as (server, sets):
        for _ in range(3):
            assert sets.upsert("k", "a", 1) is Upsert.APPLIED
        assert server.names.count(b"INFO") == 1
        assert server.names.count(b"EXEC") == 3


def test_a_server_that_denies_info_is_not_trusted_and_the_error_says_why() -> None:
    denied = b"-NOPERM this user has no permissions to run the 'info' command\r\n"
    with sets_on(NO_HELLO, denied) as (server, sets):
        with pytest.raises(hotcount.PermissionDeniedError, match=r"does not say.*'info'"):
            sets.upsert("k", "late", 9)
        assert set(server.names) == {b"INFO"}


@pytest.mark.parametrize("info", [b":7\r\n", b"$-1\r\n", bulk(b"# Server\r\n"), b"*0\r\n"])
def test_what_is_no_answer_to_info_applies_nothing(info: bytes) -> None:
    with sets_on(NO_HELLO, info) as (server, sets):
        with pytest.raises(hotcount.UnavailableError, match=r"INFO.*nothing was applied"):
            sets.upsert("k", "late", 9)
        assert set(server.names) == {b"INFO"}
