"""A private MySQL for tests, and the choice between MariaDB and MySQL.

pytest's --mysql puts MySQL behind MariaDB's fixtures and behind new_server(). `scripts/setup mysql`
fetches MySQL 8.0.31; HOTCOUNT_MYSQL names the folder of another version (bin/mysqld, share).
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import make_folder

_SMALL = "--innodb-redo-log-capacity=8M"
FETCHED = Path(__file__).parents[2] / ".venv" / "mysql"

# tests/conftest.py sets it for --mysql.
behind_urls: type[MariaDbServer] = MariaDbServer


def mysql_folder() -> Path | None:
    """Where MySQL is; None where it is not."""
    folder = Path(os.environ.get("HOTCOUNT_MYSQL") or FETCHED)
    return folder if (folder / "bin" / "mysqld").exists() else None


class MySqlServer(MariaDbServer):
    """One mysqld, with MariaDbServer's methods and its options as far as MySQL has them."""

    scheme = "mysql"

    def __init__(self, *, port: int = 0, config: tuple[str, ...] = ()) -> None:
        home = mysql_folder()
        if home is None:
            raise RuntimeError("MySQL is not there; run scripts/setup mysql")
        self._home = home
        private = home / "lib" / "private"  # Its own OpenSSL and protobuf.
        self._environment = {**os.environ}
        if private.exists():
            self._environment["LD_LIBRARY_PATH"] = str(private)
        self.folder = make_folder("hotcount-mysql-")
        self.socket = self.folder / "m.sock"
        self.port = port
        self._command = [
            *(str(home / "bin" / "mysqld"), "--no-defaults", f"--basedir={home}"),
            # Debian's MySQL looks for these in the system, where MariaDB's may be.
            f"--lc-messages-dir={home / 'share'}",
            f"--character-sets-dir={home / 'share' / 'charsets'}",
            f"--plugin-dir={home / 'lib' / 'plugin'}",
            "--secure-file-priv=NULL",
            f"--datadir={self.folder / 'data'}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        self._config = [
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            f"--tmpdir={self.folder}",
            *(("--bind-address=127.0.0.1", f"--port={port}") if port else ("--skip-networking",)),
            *("--skip-name-resolve", "--skip-log-bin", "--mysqlx=OFF"),
            # As anybody would run it who wants to keep a commit.
            *("--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON"),
            *("--innodb-buffer-pool-size=128M", "--max-connections=300"),
            *("--performance-schema=OFF", "--innodb-file-per-table=OFF", _SMALL),
            *config,
        ]
        self._fill_system_tables()

    def _fill_system_tables(self) -> None:
        # It takes 5 s, so each server begins with a copy.
        made = self._home / "tables"
        with (self._home / "tables.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                fresh = self.folder / "data"
                command = [*self._command, "--initialize-insecure", _SMALL]
                done = subprocess.run(
                    command, capture_output=True, text=True, env=self._environment
                )
                if done.returncode != 0:
                    raise RuntimeError(f"mysqld --initialize-insecure failed: {done.stderr}")
                (fresh / "auto.cnf").unlink()  # It has the server's UUID.
                shutil.copytree(fresh, made.with_suffix(".new"))
                made.with_suffix(".new").rename(made)
                return
        shutil.copytree(made, self.folder / "data")


def new_server(*, port: int = 0, config: tuple[str, ...] = ()) -> MariaDbServer:
    """A server for one test or file: MariaDB, or MySQL with --mysql."""
    return behind_urls(port=port, config=config)


def is_mysql() -> bool:
    """Whether this run is one with --mysql."""
    return behind_urls is MySqlServer
