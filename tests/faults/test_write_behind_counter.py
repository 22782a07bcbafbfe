"""A WriteBehindCounter beside faults: what was acknowledged is counted once, and never twice."""

import signal
import sqlite3
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import hotcount
import psycopg
import pytest

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.redis_pair import RedisPair
from tests.support.servers import PostgresDatabase, RedisServer, calls_of
from tests.support.together import beside

pytestmark = pytest.mark.server

KEYS = [f"k{i}" for i in range(10)]
THREADS = 4
MEMORY = "sqlite:///:memory:"


def counter(
    database: hotcount.Database | str, redis: RedisServer | str, **options: float
) -> hotcount.WriteBehindCounter:
    url = redis if isinstance(redis, str) else redis.url
    cache = hotcount.Redis(url, timeout=options.pop("timeout", 20.0))
    views = hotcount.WriteBehindCounter(database, cache, flush_interval=0.02, **options)  # type: ignore[arg-type]
    views.create_tables()
    return views


def sum_of(views: hotcount.WriteBehindCounter) -> int:
    return sum(int(views.get(key)) for key in KEYS)


class Program:
    """tests.support.viewing_program, which writes down its acknowledged adds."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.log = folder / name
        database, cache, ack = arguments
        command = [sys.executable, "-m", "tests.support.viewing_program", database, cache, ack]
        self._process = subprocess.Popen(
            [*command, str(self.log), str(THREADS)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def has_acknowledged(self, adds: int) -> bool:
        return self.acknowledged() >= adds

    def acknowledged(self) -> int:
        last: dict[str, int] = {}
        for line in self.log.read_text().splitlines():
            thread, _, done = line.partition(" ")
            if done:
                last[thread] = int(done)
        return sum(last.values())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
        assert self._process.stdout is not None
        said = self._process.stdout.read()
        self._process.stdout.close()
        assert said == "", said


def settled(views: hotcount.WriteBehindCounter) -> int:
    """The sum once all is in SQL."""
    worker = views.sync_worker()
    eventually(lambda: worker.run_once(timeout=60).scanned == 0, 30)
    counts = [views.get(key) for key in KEYS]
    assert all(count.pending == 0 for count in counts)
    return sum(int(count) for count in counts)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, database_path: Path) -> str:
    """The URL of an empty database that other processes can open."""
    if request.param == "sqlite":
        return f"sqlite:///{database_path}"
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_database").url)
    server = request.getfixturevalue("mariadb_server")
    return str(server.url(request.getfixturevalue("mariadb_database")))


@pytest.mark.parametrize("ack", ["cache", "sql"])
def test_kill_9_of_writers(url: str, own_redis: RedisServer, tmp_path: Path, ack: str) -> None:
    views = counter(url, own_redis)

    def work(ended: threading.Event) -> None:
        worker = views.sync_worker()
        while not ended.is_set():
            worker.run_once(timeout=60)

    acknowledged = programs = 0
    with beside(work, work):
        for number in range(2):
            program = Program(tmp_path, f"log{number}", url, own_redis.url, ack)
            eventually(partial(program.has_acknowledged, 200), 60)
            program.kill()
            acknowledged += program.acknowledged()
            programs += 1
    assert acknowledged <= settled(views) <= acknowledged + programs * THREADS


def test_kill_9_of_workers_loses_and_doubles_nothing(url: str, own_redis: RedisServer) -> None:
    views = counter(url, own_redis)
    command = [sys.executable, "-m", "hotcount", "sync", "--views", "--db", url]
    command += ["--cache", own_redis.url, "--interval", "0.001"]
    done = 0
    worker = None
    for _ in range(2):
        worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        before = done
        while views.stats()["unapplied_cells"] > 0 or done - before < 50:
            views.add(KEYS[done % 10])
            done += 1
            # Until it has saved something, in its middle of which it is killed.
            if done - before >= 50 and any(views.get(key).pending == 0 for key in KEYS):
                break
        worker.kill()
        worker.communicate()
    assert settled(views) == done


def test_a_sync_command_saves_all_and_ends(url: str, own_redis: RedisServer) -> None:
    views = counter(url, own_redis)
    views.add("k0", 7)
    command = [sys.executable, "-m", "hotcount", "sync", "--views", "--once", "--db", url]
    done = subprocess.run([*command, "--cache", own_redis.url], capture_output=True, text=True)
    assert (done.returncode, "saved 1" in done.stdout) == (0, True), done.stderr
    assert (views.get("k0").value, views.get("k0").pending) == (7, 0)


def test_what_flushall_takes_is_resent(database: hotcount.Database, own_redis: RedisServer) -> None:
    views = [counter(database, own_redis) for _ in range(2)]
    admin = own_redis.redis()
    for n in range(1, 4):
        for each in views:
            for key in KEYS:
                each.add(key)
                each.add(key, ack="local")
        if n == 2:
            views[0].sync_worker().run_once()
        admin.execute("FLUSHALL")
        for each in views:
            assert each.flush().pending == 0
        assert sum_of(views[0]) == 40 * n
    # Without a flush by hand as well.
    admin.execute("FLUSHALL")
    reader = counter(database, own_redis)  # It has none of its own: Redis has all.
    eventually(lambda: sum_of(reader) == 120)
    assert settled(views[0]) == 120
    assert views[0].stats()["losses"] >= 1


def test_a_redis_killed_without_persistence_loses_nothing(own_redis: RedisServer) -> None:
    views = counter(MEMORY, own_redis, timeout=0.5)
    for key in KEYS:
        views.add(key, 3)
    own_redis.kill()
    with pytest.raises(hotcount.UnavailableError):
        views.add("k0", 1000)
    for key in KEYS:
        views.add(key, 2, ack="local")
        views.add(key, 1, ack="sql")
    own_redis.start()
    eventually(lambda: views.stats()["pending_cells"] == 0)
    assert settled(views) == 60


def test_an_add_that_never_left_is_not_counted(own_redis: RedisServer) -> None:
    views = counter(MEMORY, own_redis, timeout=0.5)
    views.add("k0")
    own_redis.stop()
    for _ in range(3):
        with pytest.raises(hotcount.UnavailableError):
            views.add("k0", 100)
        with pytest.raises(hotcount.UnavailableError):
            views.add("k1", 100)
    own_redis.start()
    assert views.flush().pending == 0
    assert settled(views) == 1


@pytest.mark.parametrize("direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT], ids=["sent", "answer"])
def test_a_cut_at_any_byte(own_redis: RedisServer, proxy: FaultProxy, direction: int) -> None:
    views = counter(MEMORY, proxy.url, timeout=0.3)
    views.add("k0")
    counted = 1
    cuts = range(0, 330, 33) if direction == CLIENT_TO_SERVER else range(0, 10, 3)
    for cut in cuts:
        proxy.cut_after(cut, direction)
        try:
            views.add("k0")
            counted += 1
        except hotcount.OutcomeUnknownError:
            counted += 1  # It stays in this process, which sends it again.
        except (hotcount.UnavailableError, hotcount.DeadlineError):
            pass  # Nothing was counted.
        proxy.heal()
        eventually(lambda: views.flush().pending == 0)
    assert settled(views) == counted


def test_an_add_to_a_paused_redis_is_counted_once(own_redis: RedisServer) -> None:
    views = counter(MEMORY, own_redis, timeout=0.3)
    views.add("k0")
    own_redis.send_signal(signal.SIGSTOP)
    with pytest.raises((hotcount.OutcomeUnknownError, hotcount.UnavailableError)) as failed:
        views.add("k0", 10)
    views.add("k0", 100, ack="sql")
    own_redis.send_signal(signal.SIGCONT)
    eventually(lambda: views.flush().pending == 0)
    unknown = isinstance(failed.value, hotcount.OutcomeUnknownError)
    assert settled(views) == 101 + 10 * unknown


def test_a_redis_without_memory_refuses_the_add(own_redis: RedisServer) -> None:
    views = counter(MEMORY, own_redis)
    views.add("k0")
    admin = own_redis.redis()
    admin.execute("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(hotcount.HotcountError, match="OOM"):
        views.add("k1", 5)
    admin.execute("CONFIG", "SET", "maxmemory", "0")
    assert settled(views) == 1


def test_a_key_that_its_index_has_lost_is_found_again(own_redis: RedisServer) -> None:
    views = counter(MEMORY, own_redis)
    views.add("k0", 3)
    admin = own_redis.redis()
    (cells,) = admin.execute("KEYS", "views:*:c:k0")
    shard = cells.rpartition(b":c:")[0]
    # Its own data is there; without the name the process sends again what SQL lacks.
    admin.execute("DEL", shard + b":keys", shard + b":id")
    eventually(lambda: admin.execute("EXISTS", shard + b":keys") == 1)
    assert settled(views) == 3


def test_a_shard_with_a_broken_index_stops_no_other(own_redis: RedisServer) -> None:
    views = counter(MEMORY, own_redis)
    keys = [f"b{i}" for i in range(64)]
    for key in keys:
        views.add(key)
    # The first flush does not know the shards' names and sends every cell again. Without this one,
    # that of the counter's thread may follow the round below, whose cells are then saved twice.
    views.flush()
    admin = own_redis.redis()
    (first, *_) = sorted(admin.execute("KEYS", "views:*:keys"))
    inside = admin.execute("SMEMBERS", first)
    admin.execute("RENAME", first, "aside")
    admin.execute("SET", first, "text")
    worker = views.sync_worker()
    with pytest.raises(hotcount.WrongTypeError):
        worker.run_once()
    waiting = {key.encode() for key in keys if views.get(key).pending}
    assert waiting == set(inside)
    admin.execute("RENAME", "aside", first)
    assert worker.run_once().saved == len(inside)


def test_cells_make_room_faster_than_keys_come(own_redis: RedisServer, database_path: Path) -> None:
    views = counter(f"sqlite:///{database_path}", own_redis, max_cells=30_000)
    for i in range(30_000):
        views.add(f"page:{i}", ack="local")
    with pytest.raises(hotcount.CapacityError):
        views.add("page:more", ack="local")
    views.flush()
    views.sync_worker().run_once()
    # SQL is asked once a second.
    eventually(lambda: views.stats()["unapplied_cells"] == 0, 15)
    views.add("page:more", ack="local")
    assert views.stats()["cells"] < 30_000


def test_a_database_that_stands_still_keeps_no_local_add_from_redis(
    postgres_database: PostgresDatabase, own_redis: RedisServer
) -> None:
    database = hotcount.Database(postgres_database.url, timeout=60)
    views = counter(database, own_redis)
    # Another process, as far as Redis is concerned: its database is empty.
    other = counter(MEMORY, own_redis)
    views.add("k0", ack="local")
    with psycopg.connect(postgres_database.url) as admin:
        names = admin.execute(
            "SELECT string_agg(tablename, ',') FROM pg_tables"
            " WHERE tablename LIKE 'hotcount_views%'"
        ).fetchone()
        assert names is not None
        admin.execute(f"LOCK TABLE {names[0]} IN ACCESS EXCLUSIVE MODE")
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        eventually(lambda: admin.execute(waits).fetchone() != (0,), 20)
        for done in range(2, 5):
            views.add("k0", ack="local")
            eventually(lambda done=done: int(other.get("k0")) == done, 20)  # type: ignore[misc]
            assert admin.execute(waits).fetchone() != (0,)
        admin.rollback()


def test_what_a_promoted_replica_lacks_is_sent_again(tmp_path: Path) -> None:
    pair = RedisPair(tmp_path)
    try:
        views = counter(MEMORY, pair.proxy.url)
        at_replica = hotcount.WriteBehindCounter(MEMORY, pair.replica.url)
        at_replica.create_tables()
        for key in KEYS:
            views.add(key)
        eventually(lambda: sum_of(at_replica) == 10, 20)
        pair.promote()
        for key in KEYS:
            views.add(key)
            views.add(key, ack="local")
        views.flush()
        assert sum_of(at_replica) == 10
        pair.fail_over()
        eventually(lambda: sum_of(at_replica) == 30, 20)
        assert settled(views) == 30
    finally:
        pair.stop()


LEAVES = """
import hotcount, sys
views = hotcount.WriteBehindCounter(sys.argv[1], sys.argv[2], flush_interval=60)
views.create_tables()
for _ in range(7):
    views.add("k0", ack="local")
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["there", "away"])
def test_a_program_that_ends_tells(own_redis: RedisServer, database_path: Path, how: str) -> None:
    command = [sys.executable, "-c", LEAVES, f"sqlite:///{database_path}", own_redis.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        if how == "away":
            own_redis.stop()
        _, said = program.communicate("\n")
    lost = "7 adds were not sent before the counter was closed: they are lost"
    assert (program.returncode, lost in said) == (0, how == "away"), said
    if how == "there":
        assert settled(counter(f"sqlite:///{database_path}", own_redis)) == 7


def test_a_second_round_waits_for_the_first(own_redis: RedisServer, database_path: Path) -> None:
    views = counter(hotcount.Database(f"sqlite:///{database_path}", timeout=60), own_redis)
    views.add("k0")
    worker = views.sync_worker()
    admin = own_redis.redis()
    holder = sqlite3.connect(database_path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    done: list[int] = []
    first = threading.Thread(target=lambda: done.append(worker.run_once(timeout=60).saved))
    first.start()
    eventually(lambda: calls_of(admin, "sscan") > 0)
    with pytest.raises(hotcount.DeadlineError, match="another round"):
        worker.run_once(timeout=0.1)
    holder.rollback()
    first.join()
    holder.close()
    assert done == [1]


@pytest.mark.long
@pytest.mark.parametrize("stands_still", ["redis", "database"])
def test_a_worker_whose_server_stands_still_ends_in_10_s_when_it_is_stopped(
    own_redis: RedisServer, postgres_database: PostgresDatabase, stands_still: str
) -> None:
    views = counter(hotcount.Database(postgres_database.url, timeout=60), own_redis)
    views.add("k0")
    answers = iter([False] * 2)  # Stopped as soon as it has begun its first shard.
    stop = threading.Event()
    stop.is_set = lambda: next(answers, True)  # type: ignore[method-assign]
    running = threading.Thread(target=views.sync_worker().run, args=[stop])
    with psycopg.connect(postgres_database.url) as admin:
        if stands_still == "redis":
            own_redis.send_signal(signal.SIGSTOP)
        else:
            admin.execute("LOCK TABLE hotcount_views IN ACCESS EXCLUSIVE MODE")
            answers = iter([False] * 17)  # Of all shards, in one of which the key is.
        try:
            running.start()
            running.join(20)
            ended = not running.is_alive()
        finally:
            own_redis.send_signal(signal.SIGCONT)
    running.join()
    assert ended
    assert settled(views) == 1
