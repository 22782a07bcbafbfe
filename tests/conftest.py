"""Backends for the contract tests, and private servers.

A contract test names a concept's fixture (counter_store, database) and runs on every backend; one
that joins later is one more param below.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import shutil
import signal
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hotcount
import pytest
import redis

from tests.faults import rows
from tests.faults.proxy import FaultProxy
from tests.support import hang_guard, mysql_server
from tests.support.eventually import eventually
from tests.support.fired import FaultProofs
from tests.support.galera_trio import GaleraTrio
from tests.support.journal_side import JournalSide
from tests.support.long_tests import mark_long_tests, may_run_on_mysql
from tests.support.loops import run
from tests.support.mariadb_server import MariaDbServer
from tests.support.redis_cluster import RedisCluster, SpareCluster
from tests.support.servers import (
    PostgresDatabase,
    PostgresServer,
    RedisServer,
    free_port,
    make_folder,
)
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides

_numbers = itertools.count()

# A test that takes one of them, itself or through another fixture, carries the marker `server`.
SERVER_FIXTURES = {"redis_server", "own_redis", "postgres_server", "own_postgres", "mariadb_server"}

# Markers of tests that do not run beside others, and options for them alone.
PARTS = ("timed", "alone")

# Folders of files that take some seconds each, however many tests they have.
QUICK_FOLDERS = tuple(Path(__file__).parent / name for name in ("contract", "codebase"))

# A shell without job control starts what it runs in the background with SIGINT ignored, and Python
# then raises no KeyboardInterrupt: tests of Ctrl-C would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

COUNTER_BACKENDS = [
    pytest.param("memory", id="memory"),
    pytest.param("redis", id="redis", marks=pytest.mark.server),
]
DATABASE_BACKENDS = [
    pytest.param("sqlite-file", id="sqlite-file"),
    pytest.param("sqlite-memory", id="sqlite-memory"),
    pytest.param("postgresql", id="postgresql", marks=pytest.mark.server),
    pytest.param("mariadb", id="mariadb", marks=pytest.mark.server),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    hang_guard.pytest_addoption(parser)
    which = parser.getgroup("hotcount").addoption
    which("--beside", action="store_true", help="leave out what cannot run beside other tests")
    which("--timed", action="store_true", help="only tests of the marker timed")
    which("--alone", action="store_true", help="only tests of the marker alone")
    which("--mysql", action="store_true", help="what runs on MariaDB, on MySQL instead")
    which("--faults", metavar="FILE", help="only tests of tests/faults/rows.py; results into FILE")
    which("--fault-rows", metavar="6,18", default="", help="with --faults: of these rows alone")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_guard)
    config.pluginmanager.register(MarkedTests(mysql=config.getoption("--mysql")))
    config.pluginmanager.register(FaultProofs(config, rows.rows_of))
    if config.getoption("--mysql"):
        mysql_server.behind_urls = mysql_server.MySqlServer


def meets_mysql(item: pytest.Item) -> bool:
    """Whether --mysql makes it another test."""
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("mysql_only") is not None or (
        ("mariadb" in item.nodeid.lower() or "mariadb_server" in fixtures)
        and item.get_closest_marker("server") is not None
        and item.get_closest_marker("mariadb_only") is None
    )


@dataclass(frozen=True)
class MarkedTests:
    """Marks tests of servers and long ones before pytest's -m leaves them out, and after
    tests/contract/conftest.py."""

    mysql: bool

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.server)
        mark_long_tests(items, mysql=self.mysql)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file without tests of this run is not read, where the run is of few files."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    parts = [part for part in PARTS if config.getoption(part)]
    if parts and not config.getoption("beside"):
        text = collection_path.read_text()
        return None if any(f"mark.{part}" in text for part in parts) else True
    if config.getoption("--mysql") and config.getoption("-m") == "not long":
        return None if may_run_on_mysql(collection_path) else True
    return None


def part_of(item: pytest.Item) -> str:
    """The option whose run it belongs to."""
    return next((part for part in PARTS if item.get_closest_marker(part)), "beside")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Python looks for garbage again and again while 20,000 tests are made: 3 of 10 s. They stay
    until the end, so no later look includes them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # pytest puts tests together that share a fixture's parameter.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mysql = config.getoption("--mysql")
    parts = {part for part in ("beside", *PARTS) if config.getoption(part)}
    left_out = {
        item
        for item in items
        if (mysql and not meets_mysql(item))
        or (not mysql and item.get_closest_marker("mysql_only") is not None)
        or (parts and part_of(item) not in parts)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    if "beside" in parts or mysql:
        put_long_files_first(items)


def put_long_files_first(items: list[pytest.Item]) -> None:
    """A file's tests run in one process, so none that takes long may be the last to begin. In other
    folders that may be one of many tests, or of a few, which build, load or wait for failovers."""
    tests = Counter(item.path for item in items)
    quick = {path: any(map(path.is_relative_to, QUICK_FOLDERS)) for path in tests}
    items.sort(key=lambda item: (quick[item.path], -tests[item.path]))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An `async def` test runs in a loop of its own, of the kind that its parameter says."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    factory: Any = pyfuncitem.funcargs.get("factory", asyncio.new_event_loop)
    run(factory, pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that tests share: each keeps to keys of its own, and none stops it."""
    with RedisServer(tmp_path_factory.mktemp("redis")).started() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three primaries that tests share: each keeps to keys of its own, and none stops a node."""
    with RedisCluster(tmp_path_factory.mktemp("cluster"), replicas=False).started() as cluster:
        yield cluster


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis for one test, which may stop, kill and configure it."""
    with RedisServer(tmp_path).started() as server:
        yield server


@pytest.fixture
def direct(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    """A store at own_redis beside those that the test is about."""
    with own_redis.redis(timeout=20) as direct:
        yield direct


@pytest.fixture
def plain(own_redis: RedisServer) -> Iterator[redis.Redis]:
    """redis-py's client of own_redis."""
    with redis.Redis(unix_socket_path=str(own_redis.socket), socket_timeout=20) as client:
        yield client


@pytest.fixture
def proxy(own_redis: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(own_redis.socket) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def trio() -> Iterator[GaleraTrio]:
    """Three nodes of Galera, which tests of a file share: what one does to them it takes back."""
    with GaleraTrio.started() as made:
        made.nodes[0].execute("CREATE USER app@'127.0.0.1'")
        made.nodes[0].execute("GRANT ALL ON *.* TO app@'127.0.0.1'")
        yield made


@pytest.fixture
def place(trio: GaleraTrio) -> str:
    """A database of its own, on all nodes."""
    name = f"t{next(_numbers)}"
    trio.nodes[0].execute(f"CREATE DATABASE {name}")
    asked = f"SHOW DATABASES LIKE '{name}'"
    eventually(lambda: all(node.ask(asked) for node in trio.nodes))
    return name


@pytest.fixture(scope="session")
def spare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpareCluster]:
    with closing(SpareCluster(lambda: tmp_path_factory.mktemp("cluster"))) as spare:
        yield spare


@pytest.fixture
def cluster(spare_cluster: SpareCluster) -> Iterator[RedisCluster]:
    """Three primaries and their replicas, for one test."""
    with spare_cluster.taken() as running:
        yield running


@contextmanager
def open_store(
    request: pytest.FixtureRequest, backend: str
) -> Iterator[hotcount.Memory | hotcount.Redis]:
    """One of COUNTER_BACKENDS, with keys that no other test uses."""
    # A literal "{" or ":" in a prefix must do no harm, so every test runs with one.
    prefix = f"t{{{next(_numbers)}}}:"
    if backend == "memory":
        with hotcount.Memory(prefix=prefix) as memory:
            yield memory
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        # Longer than the default: 32 threads share two cores with the server here.
        with hotcount.Redis(server.url, prefix=prefix, timeout=20) as redis:
            yield redis


@pytest.fixture(params=COUNTER_BACKENDS)
def counter_store(request: pytest.FixtureRequest) -> Iterator[hotcount.Memory | hotcount.Redis]:
    """A store for Counter, with keys that no other test uses."""
    with open_store(request, request.param) as store:
        yield store


@pytest.fixture
def database_path() -> Iterator[Path]:
    folder = make_folder("hotcount-sqlite-")
    yield folder / f"{uuid.uuid4().hex}.db"
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that tests share: each has a database of its own, and none stops it."""
    with PostgresServer().started() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for one test, which may stop it; on a loopback port too."""
    with PostgresServer(port=free_port()).started() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> PostgresDatabase:
    """An empty database on the shared server, which goes with it."""
    return postgres_server.create_database()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDbServer]:
    """A MariaDB, or MySQL with --mysql, that tests share: each has a database of its own, and none
    stops it."""
    with mysql_server.new_server().started() as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb_server: MariaDbServer) -> Iterator[str]:
    """The name of an empty database on the shared server."""
    name = mariadb_server.create_database()
    yield name
    mariadb_server.leave_database(name)


@contextmanager
def open_database(request: pytest.FixtureRequest, backend: str) -> Iterator[hotcount.Database]:
    """One of DATABASE_BACKENDS, empty."""
    if backend == "sqlite-file":
        url = f"sqlite:///{request.getfixturevalue('database_path')}"
    elif backend == "postgresql":
        own: PostgresDatabase = request.getfixturevalue("postgres_database")
        url = own.url
    elif backend == "mariadb":
        maria: MariaDbServer = request.getfixturevalue("mariadb_server")
        url = maria.url(request.getfixturevalue("mariadb_database"))
    else:
        url = "sqlite:///:memory:"
    with hotcount.Database(url, timeout=20) as database:
        yield database


@pytest.fixture(params=DATABASE_BACKENDS)
def database(request: pytest.FixtureRequest) -> Iterator[hotcount.Database]:
    """An empty database."""
    with open_database(request, request.param) as database:
        yield database


@pytest.fixture(params=[*COUNTER_BACKENDS, *DATABASE_BACKENDS])
def limit_store(
    request: pytest.FixtureRequest,
) -> Iterator[hotcount.Memory | hotcount.Redis | hotcount.Database]:
    """A store for Limiter, with keys that no other test uses."""
    if request.param in ("memory", "redis"):
        with open_store(request, request.param) as store:
            yield store
        return
    with open_database(request, request.param) as database:
        hotcount.Limiter(database, "1/s").create_table()
        yield database


@pytest.fixture(params=["postgresql", "mariadb"])
def journal_side(request: pytest.FixtureRequest) -> JournalSide:
    """A database with votes whose journal the test looks into."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return JournalSide(postgres=server.create_database())
    maria: MariaDbServer = request.getfixturevalue("mariadb_server")
    return JournalSide(mariadb=(maria, request.getfixturevalue("mariadb_database")))


@pytest.fixture(params=BACKENDS)
def sides(request: pytest.FixtureRequest, database_path: Path) -> Iterator[BothSides]:
    """One database, and an engine of SQLAlchemy's over it; for each kind of database."""
    with closing(both_sides(request, request.param, database_path)) as sides:
        yield sides
