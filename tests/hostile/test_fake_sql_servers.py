"""What a server gets out of a client by asking for it in the handshake, and what it can break."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import hotcount
import pytest

from tests.faults.proxy import FaultProxy
from tests.hostile.fake_sql_servers import (
    ASKS_FOR_CLEAR_TEXT,
    ASKS_FOR_MD5,
    ASKS_FOR_SCRAM,
    CANARY,
    OK,
    FakeServer,
    Peer,
    Talk,
    error,
    greeting,
    message,
    packet,
    postgres,
    read_packet,
    refuses,
    self_signed,
    switches_to,
)

TYPED = (hotcount.UnavailableError, hotcount.AuthError, hotcount.DeadlineError)
TYPED_ALL = (*TYPED, hotcount.DatabaseError, hotcount.PermissionDeniedError)


def postgres_url(server: FakeServer, options: str = "") -> str:
    return f"postgresql://me:{CANARY}@127.0.0.1:{server.port}/app{options}"


def maria_url(server: FakeServer, options: str = "") -> str:
    return f"mariadb://me:{CANARY}@127.0.0.1:{server.port}/app{options}"


def cannot_open(url: str, *, timeout: float = 5) -> hotcount.HotcountError:
    """The typed error, by the deadline, without the password in it."""
    started = time.monotonic()
    with pytest.raises(hotcount.HotcountError) as caught:
        hotcount.Database(url, timeout=timeout)
    assert time.monotonic() - started < timeout + 5
    assert isinstance(caught.value, TYPED_ALL)
    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value)
    return caught.value


# -- PostgreSQL asks for the password in clear text ---------------------------


def says(*parts: bytes, bytewise: bool = False) -> Callable[[Peer], None]:
    def answer(peer: Peer) -> None:
        for part in parts:
            if bytewise:
                peer.send_bytewise(part)
            else:
                peer.send(part)
        peer.read_on()

    return answer


NOTICE = message(b"N", b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0")
WAYS_TO_ASK = {
    "at once": (ASKS_FOR_CLEAR_TEXT,),
    "with more behind it": (ASKS_FOR_CLEAR_TEXT + NOTICE,),
    "behind a challenge": (ASKS_FOR_SCRAM + ASKS_FOR_CLEAR_TEXT,),
    "behind a challenge, later": (ASKS_FOR_SCRAM, ASKS_FOR_CLEAR_TEXT),
    "behind md5": (ASKS_FOR_MD5, ASKS_FOR_CLEAR_TEXT),
}


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("parts", WAYS_TO_ASK.values(), ids=WAYS_TO_ASK.keys())
@pytest.mark.parametrize("tls", [False, True])
def test_postgres_gets_no_clear_text_password_where_it_has_not_shown_who_it_is(
    tmp_path: Path, parts: tuple[bytes, ...], bytewise: bool, tls: bool
) -> None:
    context = self_signed(tmp_path)[0] if tls else None
    with FakeServer(postgres(says(*parts, bytewise=bytewise), tls=context)) as server:
        refusal = cannot_open(postgres_url(server, "?sslmode=require" if tls else ""))
        assert not server.got_the_password()
        assert server.connections > 0
    if parts[0].startswith(ASKS_FOR_CLEAR_TEXT):
        assert isinstance(refusal, hotcount.AuthError)
        assert "clear text" in str(refusal)
        assert "sslmode=verify-full" in str(refusal)


def test_postgres_gets_no_clear_text_password_in_records_that_come_in_pieces(
    tmp_path: Path,
) -> None:
    # The rest of a record may come between the look into TLS and libpq's own reading.
    context = self_signed(tmp_path)[0]
    talk = says(ASKS_FOR_SCRAM + ASKS_FOR_CLEAR_TEXT, bytewise=True)
    path = tmp_path / "s"
    with FakeServer(postgres(talk, tls=context), unix=path) as server, FaultProxy(path) as proxy:
        url = f"postgresql://me:{CANARY}@127.0.0.1:{proxy.port}/app?sslmode=require"
        proxy.slices(1)
        for _ in range(20):
            assert "clear text" in str(cannot_open(url))
        assert not server.got_the_password()
        assert server.connections == 20


def test_postgres_gets_a_clear_text_password_over_verified_tls(tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path)
    with FakeServer(postgres(says(ASKS_FOR_CLEAR_TEXT), tls=context)) as server:
        url = postgres_url(server, f"?sslmode=verify-full&sslrootcert={certificate}")
        with pytest.raises(hotcount.DeadlineError):
            hotcount.Database(url, timeout=1)
        assert server.got_the_password()


def test_postgres_gets_a_clear_text_password_over_a_unix_socket(tmp_path: Path) -> None:
    with FakeServer(postgres(says(ASKS_FOR_CLEAR_TEXT)), unix=tmp_path / ".s.PGSQL.5432") as server:
        with pytest.raises(hotcount.DeadlineError):
            hotcount.Database(f"postgresql://me:{CANARY}@/app?host={tmp_path}", timeout=1)
        assert server.got_the_password()


# -- MariaDB and MySQL ask for it ---------------------------------------------

CLEAR_METHODS = ["mysql_clear_password", "dialog", "caching_sha2_password", "sha256_password"]


@pytest.mark.parametrize("method", CLEAR_METHODS)
def test_mariadb_gets_no_readable_password_by_a_switch_of_method(method: str) -> None:
    with FakeServer(switches_to(method)) as server:
        refusal = cannot_open(maria_url(server))
        assert not server.got_the_password()
    assert isinstance(refusal, hotcount.AuthError)
    # The method is named where the library has not yet read its packet when we look.
    assert "the password was not sent" in str(refusal)
    assert "verified TLS" in str(refusal)


@pytest.mark.parametrize("method", CLEAR_METHODS)
def test_mariadb_gets_no_readable_password_by_its_greeting(method: str) -> None:
    def talk(peer: Peer) -> None:
        peer.send(greeting(method))
        peer.read_on()

    with FakeServer(talk) as server:
        cannot_open(maria_url(server), timeout=1)
        assert not server.got_the_password()


def test_mariadb_gets_a_clear_text_password_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "fake.sock"
    with FakeServer(switches_to("mysql_clear_password"), unix=path) as server:
        with pytest.raises(hotcount.HotcountError):
            hotcount.Database(f"mariadb://me:{CANARY}@/app?unix_socket={path}", timeout=1)
        assert server.got_the_password()


def test_a_server_that_asks_for_a_file_gets_none(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("what is in the file")
    asked: list[bool] = []

    def talk(peer: Peer) -> None:
        peer.send(greeting())
        number, _ = read_packet(peer)
        peer.send(packet(number + 1, OK))
        while True:
            _, command = read_packet(peer)
            if command[:1] == b"\x16":  # Prepare: no columns, no parameters.
                peer.send(packet(1, b"\x00" + b"\x01\x00\x00\x00" + bytes(7)))
            else:
                asked.append(True)
                peer.send(packet(1, b"\xfb" + str(secret).encode()))

    with FakeServer(talk) as server:
        cannot_open(maria_url(server), timeout=1)
        assert asked, "it never came to the question"
        assert b"what is in the file" not in server.received


# -- what a server says back --------------------------------------------------


@pytest.mark.parametrize("text", [f"no {CANARY} here", CANARY, CANARY * 20])
@pytest.mark.parametrize("code", ["28P01", "28000", "53300", "XX000"])
def test_a_password_that_postgres_says_back_is_in_no_message(text: str, code: str) -> None:
    with FakeServer(postgres(says(refuses(text, code)))) as server:
        refusal = cannot_open(postgres_url(server), timeout=2)
    assert "***" in str(refusal)


@pytest.mark.parametrize("number", [1045, 1040, 1130, 1290])
def test_a_password_that_mariadb_says_back_is_in_no_message(number: int) -> None:
    def talk(peer: Peer) -> None:
        peer.send(greeting())
        answered, _ = read_packet(peer)
        peer.send(packet(answered + 1, error(f"no {CANARY} here", number)))
        peer.read_on()

    with FakeServer(talk) as server:
        refusal = cannot_open(maria_url(server), timeout=2)
    assert "***" in str(refusal)


# -- what a server breaks off, or never ends ------------------------------------


def test_postgres_that_hangs_up_after_any_byte_is_a_typed_error() -> None:
    whole = ASKS_FOR_SCRAM + refuses("no")
    for length in range(len(whole)):

        def answer(peer: Peer, length: int = length) -> None:
            peer.send(whole[:length])

        with FakeServer(postgres(answer)) as server:
            refusal = cannot_open(postgres_url(server))
        assert isinstance(refusal, TYPED)


def test_mariadb_that_hangs_up_after_any_byte_is_a_typed_error() -> None:
    whole = greeting() + packet(2, b"\xfemysql_native_password\0" + b"salt" * 5 + b"\0")
    for length in range(len(whole)):

        def talk(peer: Peer, length: int = length) -> None:
            peer.send(whole[:length])
            if length > len(greeting()):
                read_packet(peer)

        with FakeServer(talk) as server:
            refusal = cannot_open(maria_url(server))
        assert isinstance(refusal, TYPED)


def endless(start: bytes, piece: bytes) -> Callable[[Peer], None]:
    def answer(peer: Peer) -> None:
        peer.send(start)
        while True:
            peer.send(piece)

    return answer


HOSTILE_POSTGRES: dict[str, Callable[[Peer], None]] = {
    "an endless error": endless(b"E\x7f\xff\xff\xff" + b"SFATAL\0M", b"text " * 200),
    "an endless error of the old protocol": endless(b"E", b"text " * 200),
    "endless notices": endless(NOTICE, NOTICE * 20),
    "endless challenges": endless(ASKS_FOR_MD5, ASKS_FOR_MD5 * 20),
    "an impossible length": endless(b"R\xff\xff\xff\xff", b"x"),
    "a length of nothing": endless(b"R\x00\x00\x00\x00", b"R\x00\x00\x00\x00"),
    "noise": endless(bytes(range(256)), bytes(range(256))),
    "silence": Peer.read_on,
}


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("answer", HOSTILE_POSTGRES.values(), ids=HOSTILE_POSTGRES.keys())
def test_postgres_that_does_not_stop_is_a_typed_error(
    tmp_path: Path, answer: Callable[[Peer], None], tls: bool
) -> None:
    context = self_signed(tmp_path)[0] if tls else None
    with FakeServer(postgres(answer, tls=context)) as server:
        refusal = cannot_open(postgres_url(server), timeout=0.5)
        assert len(str(refusal)) < 3000
        assert not server.got_the_password()


def then_silence(start: bytes) -> Talk:
    def talk(peer: Peer) -> None:
        peer.send(start)
        peer.read_on()

    return talk


HOSTILE_MARIADB: dict[str, Talk] = {
    "an endless greeting": endless(b"\xff\xff\xff\x00\x0a", b"version" * 100),
    "an endless error": endless(b"\xff\xff\xff\x00\xff\x15\x04", b"text " * 200),
    "packets of nothing": endless(packet(0, b""), packet(0, b"") * 100),
    "a greeting of one byte": then_silence(packet(0, b"\x0a")),
    "another protocol": then_silence(packet(0, b"\x09old\0" + bytes(40))),
    "noise": endless(bytes(range(256)), bytes(range(256))),
    "silence": Peer.read_on,
}


@pytest.mark.parametrize("talk", HOSTILE_MARIADB.values(), ids=HOSTILE_MARIADB.keys())
def test_mariadb_that_does_not_stop_is_a_typed_error(talk: Talk) -> None:
    with FakeServer(talk) as server:
        refusal = cannot_open(maria_url(server), timeout=0.5)
        assert len(str(refusal)) < 3000
        assert not server.got_the_password()
