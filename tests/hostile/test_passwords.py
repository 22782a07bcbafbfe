"""A password shows nowhere: URLs of every shape, and what servers and commands say."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.hostile.passwords import (
    FIRST,
    NOBODY,
    SCHEMES,
    SECOND,
    leaks,
    shapes,
    texts_of_exception,
    texts_of_object,
)
from tests.support.listener import Listener
from tests.support.load_generator import SMALL, program
from tests.support.programs import captured
from tests.support.resp_server import ScriptedServer
from tests.support.servers import RedisServer

PASSWORD = FIRST + SECOND


def concept(url: str) -> Any:
    """What a user would make of it: each takes URLs of its kinds."""
    kind = url.split("://")[0].lower().split("+")[0]
    if kind in ("sqlite", "postgresql", "postgres", "mariadb", "mysql"):
        return hotcount.SlottedCounter(url)
    return hotcount.Counter(url)


OPENERS: tuple[Callable[[str], Any], ...] = (
    hotcount.connect,
    concept,
    lambda url: hotcount.Votes("sqlite:///:memory:", url, strategy="cached"),
)
CLASSES: tuple[Callable[[str], Any], ...] = (
    *(hotcount.Memory, hotcount.Redis, hotcount.Database),
    *(hotcount.aio.Memory, hotcount.aio.Redis, hotcount.aio.Database),
)


def ask(thing: Any) -> None:
    """One call that reaches for the server."""
    of_votes = isinstance(thing, hotcount.Votes)
    for name, arguments in (("ping", ()), ("get", (1, 1) if of_votes else ("k",)), ("count", (1,))):
        if hasattr(thing, name):
            getattr(thing, name)(*arguments, timeout=0.2)


def collect(open_: Callable[[str], Any], url: str) -> Iterator[str]:
    thing = None
    try:
        thing = open_(url)
        if not type(thing).__module__.endswith("aio") and "aio" not in repr(thing):
            ask(thing)
    except (hotcount.HotcountError, TypeError, ValueError) as refused:
        yield from texts_of_exception(refused)
    if thing is None:
        return
    yield from texts_of_object(thing)
    closed = getattr(thing, "close", None)
    if closed is None:
        return
    closed()
    yield repr(thing)
    try:
        ask(thing)
    except hotcount.ClosedError as refused:
        yield from texts_of_exception(refused)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_password_in_a_url_shows_in_no_text(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)  # sqlite:///x makes files.
    found = []
    tried = 0
    # The others are parsed as one of these, and some are slow to open.
    parsers = ("memory", "redis", "redis+unix", "sqlite", "postgresql", "mariadb")
    every = 1 if scheme in parsers else 7
    for number, url in enumerate(itertools.islice(shapes(scheme), 0, None, every)):
        # Every class now and then: what they share is in the others too.
        openers = (*OPENERS, CLASSES[number % len(CLASSES)])
        for open_ in openers:
            tried += 1
            leaked = sorted({text for text in collect(open_, url) if leaks(text)})
            found += [f"{url!r}: {text}" for text in leaked[:1]]
    out, err = capfd.readouterr()
    assert tried > 100
    assert not found, f"{len(found)} of {tried} tries:\n" + "\n".join(found[:20])
    assert not leaks(out + err)


class SpeakingServer(Listener):
    """Says what it is told to, and hangs up."""

    def __init__(self, hello: Callable[[socket.socket], None]) -> None:
        self._hello = hello
        super().__init__()

    def serve(self, client: socket.socket) -> None:
        self._hello(client)


def postgres_refusal(client: socket.socket, password: str = PASSWORD) -> None:
    while True:
        size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
        if not size:
            return
        code = client.recv(size - 4, socket.MSG_WAITALL)[:4]
        if int.from_bytes(code, "big") not in (80877103, 80877104):  # TLS, GSS
            break
        client.sendall(b"N")
    fields = f"SFATAL\0VFATAL\0C28P01\0Mno entry with {password}, x\0D{password}\0\0".encode()
    client.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)


def mariadb_refusal(client: socket.socket) -> None:
    text = b"\xff\x15\x04#28000no entry with " + PASSWORD.encode() + b", x"
    client.sendall(len(text).to_bytes(3, "little") + b"\0" + text)


@pytest.mark.parametrize(
    "make",
    [
        lambda url: hotcount.Limiter("5/second", url),
        lambda url: hotcount.aio.Limiter("5/second", url),
        lambda url: hotcount.PeriodCounter("day", url),
        lambda url: hotcount.SlottedCounter("clicks", url),
        lambda url: hotcount.WriteBehindCounter("hotcount_views", url),
        lambda url: hotcount.WriteBehindCounter("sqlite:///:memory:", "hotcount_views", url),
        lambda url: hotcount.Votes("batched", None, url),
        lambda url: hotcount.Votes("sqlite:///:memory:", "cached", url),
        lambda url: hotcount.aio.Votes("sqlite:///:memory:", "cached", url),
    ],
)
def test_a_store_and_an_option_that_were_swapped_show_no_password(
    make: Callable[[str], Any],
) -> None:
    with pytest.raises(hotcount.ConfigError) as caught:
        make(f"redis://:{PASSWORD}@localhost")
    assert PASSWORD not in str(caught.value)
    assert "expected scheme://" in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda url: hotcount.Votes("sqlite:///:memory:", None, url),
        lambda url: hotcount.Votes("sqlite:///:memory:", item_type=url),
        lambda url: hotcount.Votes("sqlite:///:memory:").count(1, consistency=url),
        lambda url: hotcount.Limiter("memory://", "5/second").hit_many(["a"], errors=url),
        lambda url: hotcount.Limiter("memory://", "5/second", algorithm=url),
        lambda url: hotcount.Memory(when_full=url),
    ],
)
def test_a_url_where_an_option_belongs_shows_no_password(make: Callable[[str], Any]) -> None:
    with pytest.raises(hotcount.ConfigError) as caught:
        make(f"redis://:{PASSWORD}@localhost")
    assert not any(leaks(text) for text in texts_of_exception(caught.value))
    assert caught.value.option


def test_repr_shows_no_password_of_a_url_where_a_name_belongs() -> None:
    url = f"redis://:{PASSWORD}@localhost"
    for made in (
        hotcount.Votes("sqlite:///:memory:", item_table=url),
        hotcount.Limiter("memory://", "5/second", name=url),
    ):
        assert not leaks(repr(made))


@pytest.mark.server
@pytest.mark.parametrize(
    ("scheme", "refusal"), [("postgresql", postgres_refusal), ("mariadb", mariadb_refusal)]
)
def test_a_database_that_quotes_the_password_is_not_quoted(
    scheme: str, refusal: Callable[[socket.socket], None]
) -> None:
    with SpeakingServer(refusal) as database:
        extra = "?sslmode=disable&gssencmode=disable" if scheme == "postgresql" else ""
        url = f"{scheme}://user:{PASSWORD}@127.0.0.1:{database.port}/app{extra}"
        with pytest.raises(hotcount.AuthError, match=r"no entry with \*\*\*, x") as refused:
            hotcount.Database(url, timeout=5)
    assert not any(leaks(text) for text in texts_of_exception(refused.value))


def test_a_redis_that_quotes_the_password_is_not_quoted(tmp_path: Path) -> None:
    def answer(command: list[bytes]) -> bytes:
        quoted = " ".join(f"`{word.decode()}`" for word in command)
        return f"-{PASSWORD} ERR unknown command, with args beginning with: {quoted}\r\n".encode()

    with ScriptedServer(tmp_path, answer) as server:
        for user in ("", "user"):
            url = server.url.replace("://", f"://{user}:{PASSWORD}@")
            with hotcount.Redis(url) as redis, pytest.raises(hotcount.HotcountError) as refused:
                redis.ping()
            assert "***" in str(refused.value)
            assert not any(leaks(text) for text in texts_of_exception(refused.value))


@pytest.mark.server
@pytest.mark.parametrize("found_in", ["PGPASSWORD", "PGPASSFILE"])
def test_a_password_that_libpq_finds_by_itself_is_hidden_like_one_of_a_url(
    found_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = f"of-{found_in}-zq"  # Of no other test: what was ever given is remembered.
    told = password
    if found_in == "PGPASSFILE":
        told = str(tmp_path / "pgpass")
        Path(told).write_text(f"127.0.0.1:*:*:*:{password}\n")
        Path(told).chmod(0o600)
    monkeypatch.setenv(found_in, told)
    with SpeakingServer(functools.partial(postgres_refusal, password=password)) as database:
        address = f"127.0.0.1:{database.port}"
        url = f"postgresql://user@{address}/app?sslmode=disable&gssencmode=disable"
        with pytest.raises(hotcount.AuthError, match=r"no entry with \*\*\*, x") as refused:
            hotcount.Database(url, timeout=5)
    # Whoever else repeats it, an application's own proxy for one.
    with (
        ScriptedServer(tmp_path, lambda _: f"-ERR {password} x\r\n".encode()) as server,
        hotcount.Redis(server.url) as redis,
        pytest.raises(hotcount.HotcountError) as other,
    ):
        redis.ping()
    texts = [*texts_of_exception(refused.value), *texts_of_exception(other.value)]
    assert not [text for text in texts if password in text]


def test_a_wrong_password_shows_in_no_text(redis_server: RedisServer) -> None:
    assert shutil.which("redis-server")
    for user in ("", "user"):
        url = redis_server.url.replace("://", f"://{user}:{PASSWORD}@")
        found = list(collect(hotcount.Redis, url))
        assert any("AuthError" in text for text in found)
        assert not any(map(leaks, found))


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys", "redis+unix", "unix"])
@pytest.mark.parametrize("user", ["name", "name:", "%6eame"])
def test_a_user_without_a_password_is_refused_instead_of_being_the_default_user(
    scheme: str, user: str
) -> None:
    where = "/run/no.sock" if scheme.endswith("unix") else "127.0.0.1:1"
    with pytest.raises(hotcount.ConfigError, match="a user without a password"):
        hotcount.connect(f"{scheme}://{user}@{where}")


ODD = (
    f"redis://user:{FIRST}/{SECOND}@{NOBODY}/0",
    f"redis://user:{FIRST}@{SECOND}@{NOBODY}/0",
    f"postgresql://user:{FIRST}?{SECOND}@{NOBODY}/0",
    f"postgresql://user:{PASSWORD}",
    f"mariadb://user:{PASSWORD}@{NOBODY}/app",
    f"sqlite://user:{PASSWORD}@/app",
    f"{PASSWORD}@{NOBODY}",
)


def commands(url: str) -> Iterator[list[str]]:
    hotcount_ = [sys.executable, "-m", "hotcount"]
    yield [*hotcount_, "sweep", url, "--match", "*"]
    yield [*hotcount_, "sync", "--once", "--timeout", "1", "--db", url, "--cache", url]
    yield [*hotcount_, "sync", f"--db={url}", "--nosuch", url]
    yield [*hotcount_, url]
    short = [*SMALL, "-d", "50ms"]
    yield [program(), "run", "-s", "redis", "--redis", url, *short]
    yield [program(), "run", f"--db={url}", "-s", "naive", *short]
    yield [program(), "run", url, "-s", "naive", *short]
    yield [program(), f"--nosuch={url}"]


@pytest.mark.parametrize("url", ODD)
def test_commands_print_no_password(url: str, tmp_path: Path) -> None:
    for command in commands(url):
        done = captured(command, cwd=tmp_path)
        assert done.returncode != 0
        assert not leaks(done.stdout + done.stderr), f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("form", ["env", "file"])
def test_a_url_from_the_environment_or_a_file_shows_in_no_command_line_and_no_report(
    form: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    with own_redis.redis() as redis:
        redis.execute("ACL", "SETUSER", "loader", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    url = own_redis.url.replace("://", f"://loader:{PASSWORD}@")
    environment = {**os.environ, **({"LOAD_URL": url} if form == "env" else {})}
    if form == "env":
        given = "env:LOAD_URL"
    else:
        # As an editor or a template leaves it.
        (tmp_path / "url").write_text(f" {url} \r\n")
        given = f"file:{tmp_path / 'url'}"
    out = tmp_path / "run"
    load = [program(), "run", "-s", "redis", "--redis", given, "--out", str(out), "-d", "200ms"]
    sweep = [sys.executable, "-m", "hotcount", "sweep", given, "--match", "*"]
    for command in ([*load, *SMALL, "--json"], sweep):
        done = captured(command, env=environment)
        assert done.returncode == 0, done.stderr
        assert not leaks(done.stdout + done.stderr)
    written = [path for path in out.rglob("*") if path.is_file()]
    assert written
    for path in written:
        assert not leaks(path.read_bytes().decode(errors="replace")), path


@pytest.mark.parametrize("given", ["env:NO_SUCH_NAME", "file:/no/such/file"])
def test_a_url_that_is_not_where_it_is_said_to_be_is_bad_usage(given: str) -> None:
    load = [program(), "run", "-s", "redis", "--redis", given]
    sweep = [sys.executable, "-m", "hotcount", "sweep", given, "--match", "*"]
    for command in (load, sweep):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert given.split(":", 1)[1] in done.stderr
