"""A primary with one asynchronous replica, of each kind of server, and what may happen to it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import hotcount

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql, new_server
from tests.support.servers import PostgresServer, PostgresStandby, free_port


class Replicated:
    """The two servers. A test has a database of its own: create_database() makes it the one of
    primary_url and replica_url.
    """

    primary_url: str
    replica_url: str
    # For a fault to be made in either way.
    primary: PostgresServer | MariaDbServer
    replica: PostgresServer | MariaDbServer

    def create_database(self) -> None:
        """Returns when the replica has it."""
        raise NotImplementedError

    def forbid_heartbeats(self) -> None:
        """Updates of the heartbeat's row fail from now on."""
        raise NotImplementedError

    def stop_applying(self) -> None:
        """What the primary commits from here on does not show on the replica."""
        raise NotImplementedError

    def go_on_applying(self) -> None:
        raise NotImplementedError

    @contextlib.contextmanager
    def applying_stopped(self) -> Iterator[None]:
        self.stop_applying()
        try:
            yield
        finally:
            self.go_on_applying()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """No process of the replica's server runs; its sessions stay open."""
        pids = self._pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        assert self.replica._process is not None
        server = self.replica._process.pid
        children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True)
        return [server, *map(int, children.stdout.split())]

    def promote(self) -> None:
        """The replica takes writes of its own, and nothing of the primary's any more."""
        raise NotImplementedError

    def elsewhere(self) -> str:
        """The URL of an empty database on the replica's server."""
        raise NotImplementedError

    def remove(self) -> None:
        self.replica.remove()
        self.primary.remove()


class ReplicatedPostgres(Replicated):
    def __init__(self) -> None:
        self.primary: PostgresServer = PostgresServer().start()
        self.replica: PostgresServer = PostgresStandby(self.primary).start()

    def create_database(self) -> None:
        made = self._database = self.primary.create_database()
        schema = f"options=-csearch_path%3D{made.schema}"
        self.primary_url = made.url
        self.replica_url = self.replica.url(options=f"&{schema}")
        names = "SELECT count(*) FROM pg_namespace WHERE nspname = "
        eventually(lambda: self.replica.psql(f"{names}'{made.schema}'") == "1")

    def forbid_heartbeats(self) -> None:
        self._database.psql(
            "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RAISE EXCEPTION ''not today''; END'; "
            "CREATE TRIGGER forbid BEFORE UPDATE ON vote_meta FOR EACH ROW "
            "WHEN (NEW.name = 'heartbeat') EXECUTE FUNCTION forbid()"
        )

    def stop_applying(self) -> None:
        self.replica.psql("SELECT pg_wal_replay_pause()")
        paused = "SELECT pg_get_wal_replay_pause_state()"
        eventually(lambda: self.replica.psql(paused) == "paused")

    def go_on_applying(self) -> None:
        self.replica.psql("SELECT pg_wal_replay_resume()")

    def promote(self) -> None:
        self.replica.psql("SELECT pg_promote()")

    def elsewhere(self) -> str:
        return self.replica.url("template1")


# MariaDB's words of replication, and MySQL's.
_GTIDS = ("--gtid-strict-mode=1",), ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")
_FOLLOW = (
    "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='replica', "
    "MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
    "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, "
    "SOURCE_USER='replica', SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1",
)
_REPLICA = "SLAVE", "REPLICA"


class ReplicatedMariaDb(Replicated):
    """MariaDB, or MySQL with --mysql."""

    def __init__(self) -> None:
        port = free_port()
        self._words = int(is_mysql())
        common = ("--log-bin=binlog", "--sync-binlog=1", *_GTIDS[self._words])
        self.primary: MariaDbServer = new_server(port=port, config=(*common, "--server-id=1"))
        self.replica: MariaDbServer = new_server(
            config=(*common, "--server-id=2", "--read-only=1", "--relay-log=relay")
        )
        self.primary.start()
        self.replica.start()
        self.primary.execute("CREATE USER replica@'%'")
        self.primary.execute("GRANT REPLICATION SLAVE ON *.* TO replica@'%'")
        self.replica.execute(_FOLLOW[self._words].format(port=port))
        self._replication("START")

    def _replication(self, do: str, threads: str = "") -> None:
        self.replica.execute(f"{do} {_REPLICA[self._words]} {threads}")

    def create_database(self) -> None:
        name = self._database = self.primary.create_database()
        self.primary_url = self.primary.url(name)
        self.replica_url = self.replica.url(name)
        eventually(lambda: (name,) in self.replica.execute("SHOW DATABASES"))

    def forbid_heartbeats(self) -> None:
        self.primary.execute(
            "CREATE TRIGGER forbid BEFORE UPDATE ON vote_meta FOR EACH ROW IF NEW.name = "
            "'heartbeat' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'; END IF",
            database=self._database,
        )

    def stop_applying(self) -> None:
        self._replication("STOP", "SQL_THREAD")

    def go_on_applying(self) -> None:
        self._replication("START", "SQL_THREAD")

    def promote(self) -> None:
        self._replication("STOP")
        self.replica.execute("SET GLOBAL read_only = 0")

    def elsewhere(self) -> str:
        return self.replica.url("mysql")


MAKERS = {"postgresql": ReplicatedPostgres, "mariadb": ReplicatedMariaDb}


def open_votes(
    pair: Replicated, strategy: str = "batched", *, read_max_lag: float = 30, **options: Any
) -> hotcount.Votes:
    """With item 1, which has one vote."""
    options.setdefault("read_url", pair.replica_url)
    database = hotcount.Database(pair.primary_url, timeout=20)
    votes = hotcount.Votes(
        database,
        strategy=strategy,  # type: ignore[arg-type]
        read_max_lag=read_max_lag,
        **options,
    )
    votes.create_tables()
    votes.add_items([1, 2])
    votes.cast(1, 100)
    return votes


def await_replica(votes: hotcount.Votes, value: int = 1) -> hotcount.Count:
    """The first count of item 1 that the replica answers, and with that value."""
    counts = [votes.count(1)]

    def answers() -> bool:
        counts.append(votes.count(1))
        return counts[-1].source == "replica" and counts[-1] == value

    eventually(answers)
    return counts[-1]


def await_primary(votes: hotcount.Votes) -> None:
    eventually(lambda: votes.count(1).source == "sql")


def check_age(count: hotcount.Count, acknowledged: list[float]) -> int:
    """1 if the replica has answered."""
    known = len(acknowledged) - 1
    if count.source != "replica":
        return 0
    while known > 0 and acknowledged[known] >= count.as_of:
        known -= 1
    assert count >= known, f"{count} votes as of {count.as_of}, when {known} were acknowledged"
    return 1
