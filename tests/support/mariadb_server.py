"""A private MariaDB for tests: started in a temporary folder, stopped by its pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql  # type: ignore[import-untyped]

from tests.support.server_process import ServerProcess
from tests.support.servers import make_folder

MariaDbError = pymysql.err.Error
_SCRIPTS = Path("/usr/share/mysql")


class MariaDbServer(ServerProcess):
    """One mariadbd with everything durable, on a unix socket, and on a loopback port where asked
    for. A missing one is an error, not a reason to skip: scripts/setup installs it.
    """

    scheme = "mariadb"
    _environment: dict[str, str] | None = None

    def __init__(self, *, port: int = 0, config: tuple[str, ...] = ()) -> None:
        program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
        if program is None:
            raise RuntimeError("mariadbd is not installed; run scripts/setup")
        self.folder = make_folder("hotcount-maria-")
        self.socket = self.folder / "m.sock"
        self.port = port
        self._command = [
            program,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            # A server that begins removes the temporary tables of all others in it.
            f"--tmpdir={self.folder}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        self._config = [
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            *(("--bind-address=127.0.0.1", f"--port={port}") if port else ("--skip-networking",)),
            "--skip-name-resolve",
            "--skip-log-bin",
            # As anybody would run it who wants to keep a commit.
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-doublewrite=ON",
            "--innodb-buffer-pool-size=128M",
            "--max-connections=300",
            "--performance-schema=OFF",
            # Of tables, not of rows: each test makes some and drops them.
            "--innodb-file-per-table=OFF",
            "--sync-frm=OFF",
            *config,
        ]
        self._fill_system_tables()

    def _fill_system_tables(self) -> None:
        # What mariadb-install-db does, which needs a program of a package with a service.
        (self.folder / "data" / "mysql").mkdir(parents=True)
        script = "USE mysql;\nSET @auth_root_socket = NULL;\n" + "".join(
            (_SCRIPTS / name).read_text()
            for name in (
                "mysql_system_tables.sql",
                "mysql_performance_tables.sql",
                "mysql_system_tables_data.sql",
            )
        )
        done = subprocess.run(
            [*self._command, "--bootstrap", "--log-warnings=0", "--net-buffer-length=16K"],
            input=script,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"mariadbd --bootstrap failed: {done.stderr}")

    def url(self, database: str, *, user: str = "root", password: str = "") -> str:
        login = f"{user}:{quote(password, safe='')}" if password else user
        return f"{self.scheme}://{login}@/{database}?unix_socket={self.socket}"

    def tcp_url(self, database: str, *, login: str = "root") -> str:
        return f"{self.scheme}://{login}@127.0.0.1:{self.port}/{database}"

    def start(self) -> MariaDbServer:
        self.socket.unlink(missing_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *self._config],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        self.await_start(self.folder / "server.log")
        return self

    def accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            try:
                probe.connect(str(self.socket))
                return probe.recv(1) != b""  # It greets those that it lets in.
            except OSError:
                return False

    def connect(self, database: str | None = None, **options: Any) -> Any:
        """A session of another client's, which commits when told."""
        options.setdefault("user", "root")
        return pymysql.connect(
            unix_socket=str(self.socket), database=database, charset="utf8mb4", **options
        )

    def execute(
        self, sql: str, parameters: tuple[Any, ...] = (), *, database: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Runs one statement, commits it, returns its rows."""
        with self.connect(database) as session, session.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            session.commit()
            return list(cursor.fetchall())

    def row_waits(self) -> int:
        """How many statements of this server wait for a row that another transaction holds."""
        # Not INNODB_TRX: whoever asks it more often than ten times a second gets old answers.
        ((_, waits),) = self.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return int(waits)

    def errors_given(self) -> Counter[str]:
        """Deadlocks, which MySQL does not count, and waits for rows."""
        try:
            rows = self.execute("SHOW GLOBAL STATUS LIKE 'Innodb_%'")
        except pymysql.err.Error:
            return Counter()
        names = {"Innodb_deadlocks": "mariadb 1213", "Innodb_row_lock_waits": "mariadb row waits"}
        return Counter({names[name]: int(value) for name, value in rows if name in names})

    def sessions(self, database: str) -> list[int]:
        """The numbers of the sessions that use a database."""
        rows = self.execute(
            "SELECT id FROM information_schema.processlist WHERE db = %s", (database,)
        )
        return [row[0] for row in rows]

    def create_database(self) -> str:
        """A fresh database; its name."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def leave_database(self, name: str) -> None:
        """Ends its sessions: what a test left behind must not keep the next one waiting.

        The tables stay until the server goes; dropping them takes longer than most tests.
        """
        for session in self.sessions(name):
            with suppress(pymysql.err.OperationalError):  # It may have gone by itself.
                self.execute(f"KILL {session}")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
