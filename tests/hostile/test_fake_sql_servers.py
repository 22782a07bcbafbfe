"""What a server gets out of a client by asking for it in the handshake, and what it can break."""

from __future__ import annotations

import ctypes
import hashlib
import ssl
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
    FULL_AUTHENTICATION,
    OK,
    FakeServer,
    Peer,
    RsaKey,
    Talk,
    asks_for,
    asks_for_all,
    error,
    greeting,
    message,
    packet,
    postgres,
    read_packet,
    refuses,
    self_signed,
    switch_to,
)
from tests.support.programs import run_python

TYPED = (hotcount.UnavailableError, hotcount.AuthError, hotcount.DeadlineError)
TYPED_ALL = (*TYPED, hotcount.ConfigError, hotcount.DatabaseError, hotcount.PermissionDeniedError)


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


def test_a_postgres_that_is_too_old_is_refused_by_name() -> None:
    says_its_version = message(b"S", b"server_version\0" + b"11.22\0")
    ready = message(b"Z", b"I")
    with FakeServer(postgres(says(asks_for(0) + says_its_version + ready))) as server:
        refusal = cannot_open(postgres_url(server))
    assert isinstance(refusal, hotcount.ConfigError)
    assert "the server is PostgreSQL 11.22; hotcount needs 12.0.0 or later" in str(refusal)


NATIVE, CACHING = "mysql_native_password", "caching_sha2_password"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> RsaKey:
    return RsaKey(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


# The method that it greets with, and what it sends then.
WAYS_TO_ASK_FOR_ALL: dict[str, tuple[str, list[bytes]]] = {
    "full authentication": (CACHING, [FULL_AUTHENTICATION]),
    "full authentication after a switch": (NATIVE, [switch_to(CACHING), FULL_AUTHENTICATION]),
    "full authentication, switched to again": (CACHING, [switch_to(CACHING), FULL_AUTHENTICATION]),
    "an answer of two bytes": (CACHING, [FULL_AUTHENTICATION + b"\x04"]),
    "an OK in place of an answer": (CACHING, [OK]),
    "a key that nobody asked for": (CACHING, []),
}
for method in ("mysql_clear_password", "dialog", "sha256_password", CACHING):
    WAYS_TO_ASK_FOR_ALL[f"{method} by its greeting"] = (method, [])
    WAYS_TO_ASK_FOR_ALL[f"{method} by a switch"] = (NATIVE, [switch_to(method)])


@pytest.mark.parametrize("delivery", ["in turn", "at once", "bytewise"])
@pytest.mark.parametrize("options", ["", "?ssl_verify=false"])
@pytest.mark.parametrize("way", WAYS_TO_ASK_FOR_ALL.values(), ids=WAYS_TO_ASK_FOR_ALL.keys())
def test_mysql_gets_no_readable_password_where_it_has_not_shown_who_it_is(
    key: RsaKey,
    tls: tuple[ssl.SSLContext, Path],
    way: tuple[str, list[bytes]],
    options: str,
    delivery: str,
) -> None:
    greets, packets = way
    context = tls[0] if options else None
    talk = asks_for_all(*packets, greets=greets, key=key, delivery=delivery, tls=context)
    with FakeServer(talk) as server:
        refusal = cannot_open(maria_url(server, options))
        assert not server.got_the_password()
    assert isinstance(refusal, hotcount.AuthError)
    for words in ("was not sent", "?ssl_ca=FILE", "?ssl_fingerprint=HEX", "Unix socket"):
        assert words in str(refusal)


def test_the_same_server_reads_the_password_of_a_client_that_does_not_mind(key: RsaKey) -> None:
    library = ctypes.CDLL("libmariadb.so.3")
    library.mysql_init.restype = ctypes.c_void_p
    library.mysql_error.restype = ctypes.c_char_p
    session = ctypes.c_void_p(library.mysql_init(None))
    connect_timeout, verify = 0, 21
    library.mysql_options(session, connect_timeout, ctypes.byref(ctypes.c_uint(1)))
    library.mysql_options(session, verify, ctypes.byref(ctypes.c_char(0)))
    talk = asks_for_all(FULL_AUTHENTICATION, greets=CACHING, key=key)
    with FakeServer(talk) as server:
        where = (b"127.0.0.1", b"me", CANARY.encode(), None, server.port, None)
        library.mysql_real_connect(session, *where, ctypes.c_ulong(0))
        said = library.mysql_error(session)
        library.mysql_close(session)
        # A library that was built with GnuTLS cannot encrypt the password.
        assert server.got_the_password() or b"GnuTLS" in said


def test_a_refused_login_leaves_no_error_of_openssl_for_the_threads_next_user(key: RsaKey) -> None:
    talk = asks_for_all(FULL_AUTHENTICATION, greets=CACHING, key=key)
    with FakeServer(talk) as server:
        cannot_open(maria_url(server))
    assert ctypes.CDLL("libcrypto.so.3").ERR_peek_error() == 0


LOGIN_WITHOUT_FILES = """
import resource, sys, hotcount
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    hotcount.Database(sys.argv[1])
except hotcount.AuthError as refused:
    print(refused)
"""


def test_mysql_gets_no_password_where_the_system_has_no_room_for_a_file_of_one_byte(
    key: RsaKey,
) -> None:
    talk = asks_for_all(FULL_AUTHENTICATION, greets=CACHING, key=key)
    with FakeServer(talk) as server:
        done = run_python("-c", LOGIN_WITHOUT_FILES, maria_url(server))
        assert done.returncode == 0, done.stderr
        assert not server.got_the_password()
    # The method itself is refused, before the server can ask for more.
    assert "was not sent" in done.stdout
    assert "first login" not in done.stdout


def fingerprint_of(certificate: Path) -> str:
    return hashlib.sha1(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest()


def with_another_digit(fingerprint: str, at: int) -> str:
    other = "1" if fingerprint[at] == "0" else "0"
    return fingerprint[:at] + other + fingerprint[at + 1 :]


@pytest.mark.parametrize("at", [0, 1, 20, 38, 39])
def test_mysql_learns_nothing_behind_a_certificate_of_another_fingerprint(
    key: RsaKey, tls: tuple[ssl.SSLContext, Path], at: int
) -> None:
    context, certificate = tls
    talk = asks_for_all(greets="mysql_clear_password", key=key, tls=context)
    with FakeServer(talk) as server:
        pin = with_another_digit(fingerprint_of(certificate), at)
        refusal = cannot_open(maria_url(server, f"?ssl_fingerprint={pin}"))
        assert not server.got_the_password()
        assert b"me\0" not in server.received
    assert isinstance(refusal, hotcount.UnavailableError)


def test_mysql_learns_nothing_without_tls_where_the_url_has_a_fingerprint(key: RsaKey) -> None:
    talk = asks_for_all(greets="mysql_clear_password", key=key)
    with FakeServer(talk) as server:
        refusal = cannot_open(maria_url(server, f"?ssl_fingerprint={'0' * 40}"))
        assert server.received == b""
    assert isinstance(refusal, hotcount.UnavailableError)


@pytest.mark.parametrize("separator", ["", ":"])
@pytest.mark.parametrize("method", [CACHING, "mysql_clear_password"])
def test_mysql_gets_the_password_behind_the_certificate_of_the_urls_fingerprint(
    key: RsaKey, tls: tuple[ssl.SSLContext, Path], method: str, separator: str
) -> None:
    context, certificate = tls
    pin = fingerprint_of(certificate).upper()
    pin = separator.join(pin[at : at + 2] for at in range(0, 40, 2))
    packets = [FULL_AUTHENTICATION] if method == CACHING else []
    talk = asks_for_all(*packets, greets=method, key=key, tls=context)
    with FakeServer(talk) as server:
        with pytest.raises(hotcount.HotcountError):
            hotcount.Database(maria_url(server, f"?ssl_fingerprint={pin}"), timeout=1)
        assert server.got_the_password()


def test_a_sha_2_fingerprint_is_held_to_or_refused_by_name(
    key: RsaKey, tls: tuple[ssl.SSLContext, Path]
) -> None:
    context, certificate = tls
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest()
    talk = asks_for_all(greets="mysql_clear_password", key=key, tls=context)
    for given, right in ((with_another_digit(pin, 63), False), (pin, True)):
        with FakeServer(talk) as server:
            with pytest.raises(hotcount.HotcountError) as caught:
                hotcount.Database(maria_url(server, f"?ssl_fingerprint={given}"), timeout=1)
            unknown = isinstance(caught.value, hotcount.ConfigError)
            assert not unknown or "libmariadb 3.3" in str(caught.value)
            assert server.got_the_password() == (right and not unknown)


def test_mysql_on_a_loopback_address_has_to_show_who_it_is_too(
    key: RsaKey, tls: tuple[ssl.SSLContext, Path]
) -> None:
    talk = asks_for_all(greets="mysql_clear_password", key=key, tls=tls[0])
    with FakeServer(talk) as server:
        cannot_open(maria_url(server, "?ssl=true"))
        assert not server.got_the_password()


def test_mariadb_gets_a_clear_text_password_over_a_unix_socket(tmp_path: Path, key: RsaKey) -> None:
    path = tmp_path / "fake.sock"
    talk = asks_for_all(switch_to("mysql_clear_password"), greets=NATIVE, key=key)
    with FakeServer(talk, unix=path) as server:
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
