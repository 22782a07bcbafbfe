"""A private PgBouncer for tests, in transaction mode before a private PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg

from tests.support.fired import fired
from tests.support.server_process import ServerProcess
from tests.support.servers import PostgresServer, unprivileged_user

_PORT = 6432


class PgBouncer(ServerProcess):
    """One pgbouncer on a unix socket: each transaction gets any of a few sessions of the server.

    A missing one is an error, not a reason to skip: scripts/setup installs it.
    """

    def __init__(self, server: PostgresServer, *, sessions: int = 2, config: str = "") -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            raise RuntimeError("pgbouncer is not installed; run scripts/setup")
        self._program = program
        # It refuses root.
        self._user = unprivileged_user("postgres")
        self.server = server
        self.folder = Path(tempfile.mkdtemp(prefix="hotcount-pgb-"))
        self._config = self.folder / "pgbouncer.ini"
        self._config.write_text(
            f"""[databases]
* = host={server.folder} port={server.port or 5432}
[pgbouncer]
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 500
auth_type = trust
auth_file = {self.folder}/users
unix_socket_dir = {self.folder}
unix_socket_mode = 0777
listen_port = {_PORT}
{config}
"""
        )
        self.add_role(server.superuser)
        if self._user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, self._user)

    def add_role(self, role: str) -> None:
        """Lets it in; it has to be the server's as well. Before start()."""
        with (self.folder / "users").open("a") as users:
            users.write(f'"{role}" ""\n')

    def url(self, database: str = "postgres", *, user: str = "", options: str = "") -> str:
        login = user or self.server.superuser
        return f"postgresql://{login}@/{database}?host={self.folder}&port={_PORT}{options}"

    def start(self) -> PgBouncer:
        fired("pooler")
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, str(self._config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._user,
                cwd="/",
            )
        self.await_start(self.folder / "server.log")
        return self

    def accepts(self) -> bool:
        try:
            with self.connect() as session:
                session.execute("SELECT 1", prepare=False)
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A session of another client's, which prepares nothing."""
        session = psycopg.connect(
            host=str(self.folder), port=_PORT, user=self.server.superuser, dbname=database
        )
        session.prepare_threshold = None
        return session

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
