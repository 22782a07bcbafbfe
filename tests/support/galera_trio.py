"""Three nodes of a MariaDB Galera cluster on loopback, for tests that kill them and cut them off.

The first node's tables are copied to the others with their place in the cluster's history, so that
each joins by what it has missed (IST), and no state is copied between running servers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
from hotcount._votes_base import Strategy

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.mariadb_server import MariaDbError, MariaDbServer
from tests.support.servers import free_port, make_folder

_PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")
# How soon a node that says nothing is left out: Galera's own default is 5 s and more.
_TIMES = "evs.keepalive_period=PT0.3S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT6S"


# What servers call for a state transfer: a joiner is told that it has its own state already, and a
# donor has nothing to copy.
_TRANSFER = """#!/bin/sh
case "$*" in
    *joiner*) echo "ready 127.0.0.1:1/none"; echo "$GALERA_POSITION" ;;
    *bypass*)
        for word; do
            [ "$before" = --gtid ] && echo "done $word"
            before=$word
        done ;;
    *) exit 1 ;;
esac
"""


def provider() -> str:
    for path in _PROVIDERS:
        if Path(path).exists():
            return path
    raise RuntimeError("Galera is not installed; run scripts/setup")


class GaleraNode(MariaDbServer):
    """A node that knows the group's addresses; started by its trio."""

    def __init__(self, number: int, addresses: list[int], template: Path | None = None) -> None:
        self._template = template
        self.number = number
        own, transfer = addresses[number], free_port()
        group = ",".join(f"127.0.0.1:{port}" for port in addresses)
        options = (
            f"gmcast.listen_addr=tcp://127.0.0.1:{own};ist.recv_addr=127.0.0.1:{transfer};"
            f"gcache.size=16M;pc.recovery=no;{_TIMES}"
        )
        super().__init__(
            port=free_port(),
            config=(
                *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"),
                *("--wsrep-on=ON", f"--wsrep-provider={provider()}"),
                *("--wsrep-cluster-name=hotcount", f"--wsrep-cluster-address=gcomm://{group}"),
                *(f"--wsrep-node-name=n{number}", f"--wsrep-node-address=127.0.0.1:{own}"),
                "--wsrep-sst-method=hotcount",
                f"--wsrep-provider-options={options}",
            ),
        )

    def _fill_system_tables(self) -> None:
        if self._template is None:
            super()._fill_system_tables()
            return
        shutil.copytree(
            self._template,
            self.folder / "data",
            ignore=shutil.ignore_patterns("galera.cache", "gvwstate.dat"),
        )

    def begin(self, *more: str) -> None:
        """Starts it from the place in the history where it ended, also if it was killed."""
        config = self._config
        script = self.folder / "wsrep_sst_hotcount"
        script.write_text(_TRANSFER)
        script.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}
        with contextlib.suppress(FileNotFoundError):
            state = (self.folder / "data" / "grastate.dat").read_text()
            uuid, seqno = re.findall(r"(?:uuid|seqno):\s*(\S+)", state)
            position = self._recovered() if seqno == "-1" else f"{uuid}:{seqno}"
            more = (*more, f"--wsrep-start-position={position}")
            self._environment["GALERA_POSITION"] = position
        self._config = [*config, *more]
        try:
            self.start()
        finally:
            self._config = config
        eventually(self.is_ready, 60)

    def _recovered(self) -> str:
        """Where InnoDB says that a killed node was."""
        self.socket.unlink(missing_ok=True)
        done = subprocess.run(
            [*self._command, *self._config, "--wsrep-recover"], capture_output=True, text=True
        )
        found = re.findall(r"Recovered position: (\S+)", done.stderr + done.stdout)
        if not found:
            raise RuntimeError(f"no position of a killed node: {done.stderr[-2000:]}")
        return str(found[-1])

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Without a COMMIT, which a node refuses that is out of its cluster."""
        with self.connect(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def status(self, name: str) -> str:
        rows = self.ask(f"SHOW GLOBAL STATUS LIKE 'wsrep_{name}'")
        return str(rows[0][1]) if rows else ""

    def is_ready(self) -> bool:
        try:
            return self.status("ready") == "ON" and self.status("local_state_comment") == "Synced"
        except MariaDbError:
            return False

    def set_provider(self, option: str) -> None:
        self.ask(f"SET GLOBAL wsrep_provider_options = '{option}'")


class GaleraTrio:
    def __init__(self) -> None:
        addresses = [free_port() for _ in range(3)]
        self.folder = make_folder("hotcount-galera-")
        self.nodes = [GaleraNode(0, addresses)]
        try:
            # It gets a place in a history before it is copied.
            self.nodes[0].begin("--wsrep-new-cluster")
            self.nodes[0].stop()
            template = shutil.copytree(self.nodes[0].folder / "data", self.folder / "data")
            self.nodes += [GaleraNode(number, addresses, template) for number in (1, 2)]
            self.nodes[0].begin("--wsrep-new-cluster")
            for node in self.nodes[1:]:
                node.begin()
        except BaseException:
            self.remove()
            raise

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[GaleraTrio]:
        trio = cls()
        try:
            yield trio
        finally:
            trio.remove()

    def remove(self) -> None:
        for node in self.nodes:
            if node._process is not None and not node.has_ended():
                node.kill()  # Their data goes with them.
            node.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def await_size(self, size: int) -> None:
        """Waits until every node that runs and is connected sees `size` nodes."""
        up = [node for node in self.nodes if not node.has_ended() and node.is_ready()]
        eventually(lambda: all(node.status("cluster_size") == str(size) for node in up), 60)

    def cut_off(self, number: int) -> None:
        """The network takes the node away from the others, and not from its clients."""
        self.nodes[number].set_provider("gmcast.isolate=1")
        eventually(lambda: self.nodes[number].status("cluster_status") != "Primary", 60)
        fired("cut off")

    def let_back(self, number: int) -> None:
        self.nodes[number].set_provider("gmcast.isolate=0")
        eventually(self.nodes[number].is_ready, 60)


def votes_at(
    node: GaleraNode, place: str, strategy: Strategy = "batched", timeout: float = 30
) -> hotcount.Votes:
    database = hotcount.Database(node.url(place), timeout=timeout)
    return hotcount.Votes(database, None, strategy)


def make_tables(trio: GaleraTrio, place: str, strategy: Strategy = "batched") -> None:
    with votes_at(trio.nodes[0], place, strategy) as votes:
        votes.create_tables()
        votes.add_items([1, 2, 3])
