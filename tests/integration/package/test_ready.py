"""ready() and `hotcount ready`: what a probe is told of servers in each condition."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.commands import run
from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.servers import (
    PostgresServer,
    PostgresStandby,
    RedisServer,
    cluster_node,
    free_port,
)

Situation = Callable[[Path], AbstractContextManager[str]]


def asked(url: str, for_: Any, **options: Any) -> bool:
    """What both kinds of the store say; both must say the same."""

    async def awaited() -> bool:
        async with aio.connect(url, **options) as there:
            return await there.ready(for_)

    with hotcount.connect(url, **options) as store:
        said = store.ready(for_)
    assert asyncio.run(awaited()) == said
    return said


def told(url: str, *arguments: str) -> tuple[int, str]:
    """The exit code of the command, and what it prints, in one line."""
    done = run("ready", url, "--timeout", "5", *arguments)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.returncode, done.stdout


def redis_with(*config: str) -> Situation:
    @contextmanager
    def start(folder: Path) -> Iterator[str]:
        with RedisServer(folder, config=config).started() as server:
            yield server.url

    return start


@contextmanager
def all_slots(folder: Path) -> Iterator[str]:
    with cluster_node(folder) as server:
        yield server.url


@contextmanager
def some_slots(folder: Path) -> Iterator[str]:
    """A node of a healthy cluster, as it says; the other half has somebody else."""
    config = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    with RedisServer(folder, config=config).started() as server, server.redis() as redis:
        redis.execute("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        eventually(lambda: b"cluster_state:ok" in redis.execute("CLUSTER", "INFO"))
        yield server.url


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def sentinel(folder: Path) -> Iterator[str]:
    port = free_port()
    (folder / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor likes 127.0.0.1 {free_port()} 1\n"
    )
    program = shutil.which("redis-server")
    assert program is not None
    command = [program, str(folder / "sentinel.conf"), "--sentinel", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: accepts(port))
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()


def redis_user(*rights: str) -> Situation:
    @contextmanager
    def start(folder: Path) -> Iterator[str]:
        with RedisServer(folder).started() as server, server.redis() as redis:
            redis.execute("ACL", "SETUSER", "app", "reset", "on", ">p", *rights)
            yield server.login("app", "p")

    return start


@contextmanager
def wrong_password(folder: Path) -> Iterator[str]:
    with RedisServer(folder).started() as server:
        yield server.login("app", "canary")


@contextmanager
def failing_disk(folder: Path) -> Iterator[str]:
    gone = folder / "gone"
    gone.mkdir()
    config = ("--dir", str(gone), "--save", "1 1")
    with RedisServer(folder, config=config).started() as server, server.redis(timeout=5) as redis:
        gone.rmdir()
        redis.execute("SET", "k", "v")
        failed = b"rdb_last_bgsave_status:err"
        eventually(lambda: failed in redis.execute("INFO", "persistence"))
        assert redis.execute("GET", "k") == b"v"
        yield server.url


@contextmanager
def nobody(folder: Path) -> Iterator[str]:
    yield f"redis+unix://:canary@{folder}/nobody.sock"


REPLICA = ("--replicaof", "127.0.0.1 1")
FULL = ("--maxmemory", "100kb", "--maxmemory-policy", "noeviction")
# Whether it is ready for writes and for reads, and what the reason says.
REDIS: dict[str, tuple[Situation, bool, bool, str]] = {
    "primary": (redis_with(), True, True, ""),
    "replica": (redis_with(*REPLICA), False, True, "read-only replica"),
    "writable replica": (redis_with(*REPLICA, "--replica-read-only", "no"), True, True, ""),
    "full": (redis_with(*FULL), False, True, "takes no writes now: OOM"),
    "failing disk": (failing_disk, False, True, "MISCONF"),
    "alone": (redis_with("--min-replicas-to-write", "1"), False, True, "NOREPLICAS"),
    "cluster of one": (all_slots, True, True, ""),
    "node without slots": (redis_with("--cluster-enabled", "yes"), False, False, "state fail"),
    "half of a cluster": (some_slots, False, False, "a node of a Redis Cluster"),
    "Sentinel": (sentinel, False, False, "a Sentinel"),
    "user who may": (redis_user("~likes:*", "+@all"), True, True, ""),
    "user who may hardly": (redis_user("~*", "+ping", "+hello"), True, True, ""),
    "user who may not PING": (redis_user("~*", "+@read", "+@write", "+@scripting"), True, True, ""),
    "wrong password": (wrong_password, False, False, "WRONGPASS"),
    "nobody": (nobody, False, False, "nobody.sock"),
}


@pytest.mark.server
@pytest.mark.parametrize("name", REDIS)
def test_a_redis_is_ready_for_what_it_would_do(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    situation, writes, reads, why = REDIS[name]
    with situation(tmp_path) as url:
        assert asked(url, "writes", timeout=5) == writes
        lines = [record.getMessage() for record in caplog.records]
        reasons = [line for line in lines if line.startswith("not ready: ")]
        assert len(reasons) == (0 if writes else 2)
        assert all(why in reason for reason in reasons)
        assert asked(url, "reads", timeout=5) == reads
        code, line = told(url)
        assert code == (0 if writes else 1)
        assert (why or "ready for writes") in line
        assert told(url, "--for", "reads")[0] == (0 if reads else 1)
        assert "canary" not in line + caplog.text


def test_a_trial_leaves_no_key_and_changes_none(own_redis: RedisServer) -> None:
    with own_redis.redis(prefix="app:", timeout=5) as redis:
        assert redis.ready()
        assert redis.execute("DBSIZE") == 0
        redis.execute("SET", "app:hotcount:ready", "mine", "EX", 100)
        assert redis.ready()
        assert redis.execute("GET", "app:hotcount:ready") == b"mine"
        assert redis.execute("TTL", "app:hotcount:ready") > 0
        redis.execute("DEL", "app:hotcount:ready")
        redis.execute("RPUSH", "app:hotcount:ready", "mine")
        assert redis.ready()


@pytest.mark.server
def test_without_a_greeting_a_replica_is_found_by_the_trial(tmp_path: Path) -> None:
    with redis_with(*REPLICA)(tmp_path) as url:
        assert not asked(url, "writes", protocol=2, timeout=5)
        assert asked(url, "reads", protocol=2, timeout=5)


def test_a_server_that_stands_still_is_not_ready_within_the_timeout(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis:
        assert redis.ready()
        with own_redis.stopped():
            began = time.monotonic()
            assert not redis.ready(timeout=0.3)
            assert time.monotonic() - began < 5
        eventually(redis.ready)
        own_redis.kill()
        assert not redis.ready(timeout=0.3)
        own_redis.start()
        eventually(redis.ready)


def test_a_standby_and_a_session_that_reads_only_take_no_writes(
    own_postgres: PostgresServer,
) -> None:
    database = own_postgres.create_database()
    reader = database.role("default_transaction_read_only = on")
    assert asked(database.url, "writes")
    assert told(database.url)[0] == 0
    url = database.url_for(reader)
    assert (asked(url, "writes", timeout=2), asked(url, "reads")) == (False, True)
    with PostgresStandby(own_postgres).started() as standby:
        url = standby.url()
        assert (asked(url, "writes", timeout=2), asked(url, "reads")) == (False, True)
        code, line = told(url)
        assert (code, "standby" in line or "read-only" in line) == (1, True)
        assert told(url, "--for", "reads")[0] == 0
    with hotcount.Database(database.url, timeout=5) as ours:
        assert ours.ready("reads")
        own_postgres.psql("ALTER SYSTEM SET default_transaction_read_only = on")
        own_postgres.psql("SELECT pg_reload_conf()")
        eventually(lambda: not ours.ready())
        # The session that began before is given up, and another one reads.
        assert ours.ready("reads")
        own_postgres.stop(signal.SIGINT)
        assert (ours.ready(), ours.ready("reads")) == (False, False)
    code, line = told(database.url)
    assert (code, line.startswith("postgresql://")) == (1, True)


def test_a_mariadb_that_reads_only_takes_no_writes(mariadb_server: MariaDbServer) -> None:
    url = mariadb_server.url("mysql")
    assert asked(url, "writes")
    mariadb_server.execute("SET GLOBAL read_only = 1")
    try:
        assert (asked(url, "writes"), asked(url, "reads")) == (False, True)
        assert told(url)[0] == 1
    finally:
        mariadb_server.execute("SET GLOBAL read_only = 0")
    assert told(url) == (0, f"{url.partition('?')[0].replace('root@', '')}: ready for writes\n")


@pytest.mark.server
def test_a_mariadb_whose_innodb_reads_only_takes_no_writes() -> None:
    with new_server(config=("--innodb-read-only",)).started() as server:
        url = server.url("mysql")
        assert (asked(url, "writes"), asked(url, "reads")) == (False, True)


HOLDS_THE_LOCK = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
before = file.execute("PRAGMA user_version").fetchone()
file.execute("PRAGMA user_version = 7")
file.execute("BEGIN IMMEDIATE")
print(before, flush=True)
sys.stdin.readline()
"""


def test_a_file_is_ready_unless_it_is_read_only_or_held(tmp_path: Path) -> None:
    file = tmp_path / "votes.db"
    url = f"sqlite:///{file}"
    code, line = told(url)
    assert (code, line) == (1, f"{url}: there is no such file\n")
    assert not file.exists()
    with hotcount.Database(url) as database:
        hotcount.SlottedCounter(database).create_table()
        changes = file.stat().st_mtime_ns
        assert database.ready()
        assert asked(f"{url}?mode=ro", "writes") is False
        assert asked(f"{url}?mode=ro", "reads") is True
        assert file.stat().st_mtime_ns == changes
        with subprocess.Popen(
            [sys.executable, "-c", HOLDS_THE_LOCK, file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "(0,)\n"
            assert not database.ready(timeout=0.2)
            assert database.ready("reads", timeout=0.2)
            other.communicate("\n", timeout=60)
        assert database.ready()
    with closing(sqlite3.connect(file)) as other_reader:
        assert other_reader.execute("PRAGMA user_version").fetchone() == (7,)
    if os.geteuid() != 0:
        file.chmod(0o400)
        assert asked(url, "writes") is False


def test_a_file_that_was_removed_is_ready_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "votes.db"
    with hotcount.Database(f"sqlite:///{file}") as database:
        assert database.ready()
        file.unlink()
        assert (database.ready(), database.ready("reads")) == (False, False)


@pytest.mark.parametrize("url", ["SQLITE:///votes.db", "sqlite:///:memory:votes.db"])
def test_no_spelling_of_a_url_makes_a_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(url) == (1, f"{url}: there is no such file\n")
    assert list(tmp_path.iterdir()) == []


async def test_of_many_that_ask_at_once_none_gets_an_error(tmp_path: Path) -> None:
    """More than a loop has threads for calls that wait."""
    file = tmp_path / "votes.db"
    async with aio.Database(f"sqlite:///{file}") as database:
        assert await database.ready()
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asked = [database.ready(timeout=0.2) for _ in range(20)]
            assert await asyncio.gather(*asked) == 20 * [False]
        assert await database.ready(timeout=20)


@pytest.mark.parametrize("kind", ["int", "str", "uuid"])
def test_with_votes_the_tables_must_be_there(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/votes.db"
    id_type: Any = {"int": int, "str": str, "uuid": uuid.UUID}[kind]
    hotcount.Database(url).close()
    of = ("--item-table", "post", "--item-type", kind)
    assert told(url) == (0, f"{url}: ready for writes\n")
    code, line = told(url, "--votes", "slotted", *of)
    assert (code, "no such table" in line) == (1, True)
    with hotcount.Votes(url, strategy="slotted", item_table="post", item_type=id_type) as votes:
        votes.create_tables()
    assert told(url, "--votes", "slotted", *of) == (0, f"{url}: ready for writes\n")
    code, line = told(url, "--votes", *of)
    assert (code, "strategy batched" in line) == (1, True)
    with closing(sqlite3.connect(tmp_path / "votes.db")) as file:
        for (name,) in file.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'view'"
        ).fetchall():
            file.execute(f"DROP VIEW {name}")
        file.execute("DROP TABLE vote")
    code, line = told(url, "--votes", "slotted", *of)
    assert (code, "no such table: vote" in line) == (1, True)
    assert run("ready", url, "--votes", "--item-table", "").returncode == 2


@pytest.mark.parametrize("url", ["memory://", "sqlite:///:memory:"])
def test_bad_questions_are_refused(url: str) -> None:
    store: Any = hotcount.connect(url)
    assert (store.ready(), store.ready("reads"), store.ready(for_="writes", timeout=1)) == (
        *(True, True, True),
    )
    with pytest.raises(hotcount.ConfigError, match=r"^for_ is 'both'.*'reads'.*'writes'"):
        store.ready("both")
    with pytest.raises(TypeError, match=r"^for_ must be"):
        store.ready(1)
    with pytest.raises(hotcount.ConfigError, match=r"^timeout"):
        store.ready(timeout=0)
    store.close()
    with pytest.raises(hotcount.ClosedError):
        store.ready()


def test_the_command_says_all_in_json_and_refuses_bad_usage(tmp_path: Path) -> None:
    away = f"redis+unix://{tmp_path}/nobody.sock"
    done = run("ready", "--json", "memory://", away)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["ready"], found["for"]) == (False, "writes")
    fine, bad = found["targets"]
    assert fine == {"target": "memory://", "ready": True, "reason": None}
    assert (bad["target"], bad["ready"]) == (away, False)
    assert "nobody.sock" in bad["reason"]
    assert json.loads(run("ready", "--json", "memory://").stdout)["ready"] is True
    for usage in (["gopher://x"], [], ["memory://", "--for", "both"], ["memory://", "--timeout=0"]):
        done = run("ready", *usage)
        assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("stdout", "code", "says"), [("/dev/full", 3, "No space left"), ("pipe", 1, "")]
)
def test_an_output_that_takes_nothing_is_not_taken_for_an_answer(
    stdout: str, code: int, says: str, tmp_path: Path
) -> None:
    away = f"redis+unix://{tmp_path}/nobody.sock"
    command = [sys.executable, "-m", "hotcount", "ready", away]
    if stdout == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(stdout, os.O_WRONLY)
    try:
        buffered = {name: each for name, each in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, env=buffered
        )
    finally:
        os.close(writer)
    assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (code, True, False)


def test_the_log_keeps_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    from hotcount.cli import main

    logger = logging.getLogger("hotcount")
    before = (list(logger.handlers), logger.propagate)
    assert main(["ready", "memory://"]) == 0
    kept = [each for each in logger.handlers if not isinstance(each, logging.NullHandler)]
    assert (kept, logger.propagate) == before
    assert capsys.readouterr().out == "memory://: ready for writes\n"
