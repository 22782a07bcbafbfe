"""A primary and its standby, and what becomes of votes when the standby is promoted under them; or
three nodes of Galera, with votes on all of them, of which one ends.

    .venv/bin/python -m tests.support.failover --kind postgresql --end kill --runs 3

prints, for each run, how long no vote succeeded, how many calls ended unknown or failed, and how
many acknowledged votes were lost or counted twice. The standby confirms each commit (synchronous
replication on PostgreSQL, semi-synchronous on MariaDB), so that none may be lost. With --kind
galera nobody promotes: that is the time at which the other two nodes go on without the first.
"""

import argparse
import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import hotcount
from hotcount._votes_base import Strategy

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.galera_trio import GaleraTrio
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql
from tests.support.replicas import MAKERS, Replicated

ITEMS = 100
THREADS = 32
# How a primary ends: it dies, it stands still, or the network swallows what is said to it.
ENDS = ("kill", "stop", "black_hole")


class Pair:
    """A primary and a standby, each behind a proxy of its own."""

    def __init__(self, kind: str, *, synchronous: bool = True) -> None:
        self.kind = kind
        self.servers: Replicated = MAKERS[kind]()
        self.servers.create_database()
        if isinstance(primary := self.servers.primary, MariaDbServer):
            # Whoever may do anything may write to a server that is read only.
            primary.execute("CREATE USER app@localhost")
            primary.execute(f"GRANT ALL ON {self.database}.* TO app@localhost")
        # The MySQL that the tests fetch has no semi-synchronous replication.
        if synchronous and not self._is_mysql():
            self.wait_for_standby()
        self.proxies = [FaultProxy(self._socket(server)) for server in self._both()]

    def _is_mysql(self) -> bool:
        return self.kind == "mariadb" and is_mysql()

    def _both(self) -> tuple[Any, Any]:
        return self.servers.primary, self.servers.replica

    @staticmethod
    def _socket(server: Any) -> Any:
        return (
            server.socket if isinstance(server, MariaDbServer) else server.folder / ".s.PGSQL.5432"
        )

    def wait_for_standby(self) -> None:
        """Commits wait for the standby from here on."""
        primary, standby = self._both()
        if isinstance(primary, MariaDbServer):
            standby.execute("SET GLOBAL rpl_semi_sync_slave_enabled = 1")
            standby.execute("STOP SLAVE IO_THREAD")
            standby.execute("START SLAVE IO_THREAD")
            primary.execute("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
            primary.execute("SET GLOBAL rpl_semi_sync_master_timeout = 600000")
            clients = "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"
            primary.execute("SET GLOBAL rpl_semi_sync_master_enabled = 1")
            eventually(lambda: primary.execute(clients)[0][1] == "1")
        else:
            # Not on the command line, which the standby would have too.
            primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.psql("SELECT pg_reload_conf()")
            sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            eventually(lambda: primary.psql(sync) == "1")

    def urls(self) -> list[str]:
        """One for each host that takes votes from the beginning."""
        return [self.url()]

    def url(self, *ports: int, options: str = "", password: str = "") -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports or self.ports)
        secret = f":{password}" if password else ""
        if self.kind == "mariadb":
            scheme = "mysql" if self._is_mysql() else "mariadb"
            return f"{scheme}://app{secret}@{hosts}/{self.database}?prepare=true{options}"
        search = f"options=-csearch_path%3D{self.schema}"
        return f"postgresql://hotcount{secret}@{hosts}/postgres?sslmode=disable&{search}{options}"

    @property
    def database(self) -> str:
        """MariaDB's, or MySQL's."""
        return self.servers.primary_url.partition("?")[0].rpartition("/")[2]

    @property
    def schema(self) -> str:
        """PostgreSQL's."""
        return self.servers.primary_url.partition("search_path%3D")[2].partition("&")[0]

    @property
    def ports(self) -> list[int]:
        return [proxy.port for proxy in self.proxies]

    def end_primary(self, how: str) -> None:
        primary, standby = self._both()
        if self._is_mysql():
            done = primary.execute("SELECT @@global.gtid_executed")[0][0]
            standby.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 30)", (done,))
        if how == "kill":
            primary.kill()
        elif how == "stop":
            primary.send_signal(signal.SIGSTOP)
        else:
            for direction in (0, 1):
                self.proxies[0].black_hole(direction)

    def demote_primary(self) -> None:
        """It keeps its connections and takes no writes any more."""
        fired("demoted")
        primary = self.servers.primary
        if isinstance(primary, MariaDbServer):
            primary.execute("SET GLOBAL read_only = 1")
            return
        primary.psql("ALTER SYSTEM SET default_transaction_read_only = on")
        primary.psql("SELECT pg_reload_conf()")
        eventually(lambda: primary.psql("SHOW default_transaction_read_only") == "on")

    def promote(self) -> None:
        """Returns when the standby takes writes."""
        self.servers.promote()
        standby = self.servers.replica
        if not isinstance(standby, MariaDbServer):
            eventually(lambda: standby.psql("SELECT pg_is_in_recovery()") == "f")

    def column(self, sql: str) -> list[int]:
        """As the standby has it."""
        standby = self.servers.replica
        if isinstance(standby, MariaDbServer):
            return [int(row[0]) for row in standby.execute(sql, database=self.database)]
        return [int(line) for line in standby.psql(sql, schema=self.schema).split()]

    def remove(self) -> None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            self.servers.primary.send_signal(signal.SIGCONT)
        for proxy in self.proxies:
            proxy.close()
        self.servers.remove()


class Trio:
    """Three nodes of Galera, each behind a proxy, with what promotion() uses of a Pair."""

    def __init__(self) -> None:
        self.trio = GaleraTrio()
        self.nodes = self.trio.nodes
        for sql in ("DATABASE v", "USER app@localhost"):
            self.nodes[0].execute(f"CREATE {sql}")
        self.nodes[0].execute("GRANT ALL ON v.* TO app@localhost")
        self.proxies = [FaultProxy(node.socket) for node in self.nodes]
        self.ports = [proxy.port for proxy in self.proxies]

    def urls(self) -> list[str]:
        return [self.url(*self.ports[first:], *self.ports[:first]) for first in range(3)]

    def url(self, *ports: int) -> str:
        return f"mariadb://app@{','.join(f'127.0.0.1:{port}' for port in ports)}/v"

    def end_primary(self, how: str) -> None:
        """The first node."""
        node = self.nodes[0]
        if how == "kill":
            node.kill()
        elif how == "stop":
            node.send_signal(signal.SIGSTOP)
        else:
            for direction in (0, 1):
                self.proxies[0].black_hole(direction)
            node.set_provider("gmcast.isolate=1")

    def promote(self) -> None:
        """Returns when the others take votes without it."""
        eventually(lambda: all(node.status("cluster_size") == "2" for node in self.nodes[1:]), 60)

    def column(self, sql: str) -> list[int]:
        return [int(row[0]) for row in self.nodes[1].execute(sql, database="v")]

    def remove(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.nodes[0].send_signal(signal.SIGCONT)
        for proxy in self.proxies:
            proxy.close()
        self.trio.remove()


@contextmanager
def started_trio() -> Iterator[Trio]:
    trio = Trio()
    try:
        yield trio
    finally:
        trio.remove()


@contextmanager
def started(kind: str, *, synchronous: bool = True) -> Iterator[Pair]:
    pair = Pair(kind, synchronous=synchronous)
    try:
        yield pair
    finally:
        pair.remove()


@dataclass
class Outcome:
    """What callers were told, and what the new primary has."""

    acknowledged: int = 0
    unknown: int = 0
    not_applied: int = 0
    lost: int = 0
    doubled: int = 0
    unknown_applied: int = 0
    # The longest time without a success after the primary's end, and what of it came after the
    # promotion; in seconds.
    outage: float = 0.0
    after_promotion: float = 0.0
    errors: list[str] = field(default_factory=list)


class Load:
    """Casts votes of new users at a rate, each at its time, from threads that share `votes`."""

    def __init__(self, votes: list[hotcount.Votes], rate: float, timeout: float) -> None:
        self._votes = votes
        self._rate = rate
        self._timeout = timeout
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._cast, args=(k,)) for k in range(THREADS)]
        self.acknowledged: dict[int, float] = {}
        self.unknown: set[int] = set()
        self.refused: dict[int, str] = {}

    def _cast(self, first: int) -> None:
        begin = time.monotonic()
        user = first
        votes = self._votes[first % len(self._votes)]
        while not self._stop.is_set():
            due = begin + user / self._rate
            if (early := due - time.monotonic()) > 0:
                self._stop.wait(early)
                continue
            try:
                votes.cast(user % ITEMS, user, timeout=self._timeout)
                told = time.monotonic()
                with self._lock:
                    self.acknowledged[user] = told
            except hotcount.OutcomeUnknownError:
                with self._lock:
                    self.unknown.add(user)
            except hotcount.HotcountError as error:
                with self._lock:
                    self.refused[user] = str(error)
            user += THREADS

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def promotion(
    pair: Pair | Trio, end: str, *, strategy: Strategy = "batched", rate: float = 2000,
    seconds: float = 3, timeout: float = 10,
) -> Outcome:  # fmt: skip
    """Votes at the rate; the primary ends; half a second later the standby is promoted."""
    votes = [
        hotcount.Votes(hotcount.Database(url, timeout=timeout), strategy=strategy)
        for url in pair.urls()
    ]
    votes[0].create_tables()
    votes[0].add_items(range(ITEMS))
    load = Load(votes, rate, timeout)
    load.start()
    time.sleep(seconds)
    ended = time.monotonic()
    pair.end_primary(end)
    time.sleep(0.5)
    pair.promote()
    promoted = time.monotonic()
    eventually(lambda: max(load.acknowledged.values(), default=0.0) > promoted, 30)
    time.sleep(seconds)
    load.stop()
    return audit(pair, load, ended, promoted)


def audit(pair: Pair | Trio, load: Load, ended: float, promoted: float) -> Outcome:
    made = Outcome(len(load.acknowledged), len(load.unknown), len(load.refused))
    made.errors = sorted(set(load.refused.values()))[:3]
    # On a busy machine votes succeed before promote() has heard that the standby takes them.
    told = sorted(load.acknowledged.values())
    gaps = ((after - before, after) for before, after in pairwise(told) if after > ended)
    outage, first = max(gaps, default=(0.0, promoted))
    made.outage = round(outage, 3)
    made.after_promotion = round(max(0.0, first - promoted), 3)
    with hotcount.Database(pair.url(pair.ports[1])) as direct, hotcount.Votes(direct) as votes:
        live = set(pair.column("SELECT user_id FROM vote_live"))
        counts = votes.count_many(range(ITEMS), consistency="exact")
        for item, count in enumerate(counts):
            made.doubled += abs(int(count) - sum(user % ITEMS == item for user in live))
        made.doubled += len(votes.reconcile(dry_run=True))
    made.lost = len(load.acknowledged.keys() - live)
    made.doubled += len(live - load.acknowledged.keys() - load.unknown)
    made.unknown_applied = len(load.unknown & live)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=[*sorted(MAKERS), "galera"], default="postgresql")
    parser.add_argument("--end", choices=ENDS, default="kill")
    parser.add_argument("--strategy", default="batched")
    parser.add_argument("--rate", type=float, default=2000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for run in range(options.runs):
        with started_trio() if options.kind == "galera" else started(options.kind) as pair:
            made = promotion(pair, options.end, strategy=options.strategy, rate=options.rate)
        if options.json:
            print(json.dumps({"run": run + 1, **asdict(made)}))
            continue
        print(
            f"{options.kind} {options.end} run {run + 1}: {made.acknowledged} acknowledged, "
            f"{made.unknown} unknown, {made.not_applied} not applied, {made.lost} lost, "
            f"{made.doubled} doubled; first success {made.after_promotion} s after the promotion, "
            f"{made.outage} s without one"
        )
        for error in made.errors:
            print("   ", error)


if __name__ == "__main__":
    main()
