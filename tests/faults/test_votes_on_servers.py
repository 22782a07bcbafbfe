"""Votes on PostgreSQL and MariaDB: a client dies, the server dies, a COMMIT is not answered; and
all of it at once, beside others that lock items (tests/support/vote_storm.py).

After each: the live votes are those acknowledged and some of those whose outcome is unknown, the
counts are the live votes, and doing everything again brings in the rest and changes nothing else.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import psycopg
import pytest

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.servers import PostgresDatabase, PostgresServer
from tests.support.together import in_threads
from tests.support.vote_storm import ITEMS, Storm, exact_counts

pytestmark = pytest.mark.server

Server = PostgresServer | MariaDbServer

# Each run takes most of a second: a few in every `make test`, all of them in `make test-all`.
RUNS = pytest.mark.parametrize("runs", [4, pytest.param(30, marks=pytest.mark.long)])
KINDS = pytest.mark.parametrize("kind", ["postgres", "mariadb"])
VOTERS = 8
ITEM = 1


@pytest.fixture
def server(kind: str) -> Iterator[Server]:
    """A server that the test may kill."""
    made: Server = PostgresServer() if kind == "postgres" else new_server()
    try:
        yield made.start()
    finally:
        made.remove()


class Target:
    """A database of its own on a server, seen by another client than ours."""

    def __init__(self, server: Server, socket: Path) -> None:
        self.server = server
        self.socket = socket
        self._postgres: PostgresDatabase | None = None
        if isinstance(server, MariaDbServer):
            self._name = server.create_database()
            self.url = server.url(self._name)
        else:
            self._postgres = server.create_database()
            self.url = self._postgres.url

    def through(self, proxy: FaultProxy) -> str:
        if isinstance(self.server, MariaDbServer):
            return f"mariadb://root@127.0.0.1:{proxy.port}/{self._name}"
        assert self._postgres is not None
        options = f"sslmode=disable&options=-csearch_path%3D{self._postgres.schema}"
        login = self.server.superuser
        return f"postgresql://{login}@127.0.0.1:{proxy.port}/postgres?{options}"

    def connect(self) -> Any:
        """Another client's session, which commits when told."""
        if isinstance(self.server, MariaDbServer):
            return self.server.connect(self._name)
        return psycopg.connect(self.url)

    def live_users(self) -> set[int]:
        sql = f"SELECT user_id FROM vote_live WHERE item_id = {ITEM}"
        if isinstance(self.server, MariaDbServer):
            return {int(row[0]) for row in self.server.execute(sql, database=self._name)}
        assert self._postgres is not None
        return {int(line) for line in self._postgres.psql(sql).split()}

    def sessions(self) -> int:
        """But for the one that asks."""
        if isinstance(self.server, MariaDbServer):
            return len(self.server.sessions(self._name))
        sql = "SELECT COUNT(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
        return int(self.server.psql(sql))


@pytest.fixture
def target(server: Server) -> Target:
    unix = server.socket if isinstance(server, MariaDbServer) else server.folder / ".s.PGSQL.5432"
    made = Target(server, unix)
    with open_votes(made.url) as votes:
        votes.create_tables()
        votes.add_items([ITEM])
    return made


def open_votes(url: str, strategy: str = "batched", timeout: float = 10) -> hotcount.Votes:
    database = hotcount.Database(url, timeout=timeout)
    return hotcount.Votes(database, strategy=strategy)  # type: ignore[arg-type]


def check(target: Target, accepted: set[int], unknown: set[int]) -> None:
    """What the module's first lines say; `unknown` may be applied or not."""
    live = target.live_users()
    assert accepted <= live, "an acknowledged vote is lost"
    assert live <= accepted | unknown, "a vote that nobody cast"
    with open_votes(target.url) as votes:
        assert int(votes.count(ITEM)) == len(live)
        assert votes.reconcile(dry_run=True) == []
        again = sorted(accepted | unknown)
        changed = votes.cast_many([ITEM] * len(again), again).changed
        assert sum(changed) == len(again) - len(live)
        assert int(votes.count(ITEM)) == len(again)


VOTE_FOR_EVER = """
import hotcount, itertools, os, sys, threading
votes = hotcount.Votes(hotcount.Database(sys.argv[1], timeout=30))
users = itertools.count(int(sys.argv[2]))
def work():
    while True:
        user = next(users)
        os.write(1, b"? %d\\n" % user)
        votes.cast(1, user)
        os.write(1, b"! %d\\n" % user)
for _ in range(8):
    threading.Thread(target=work).start()
"""


@KINDS
@RUNS
def test_no_vote_is_lost_or_doubled_when_clients_are_killed(target: Target, runs: int) -> None:
    accepted: set[int] = set()
    unknown: set[int] = set()
    for run in range(runs):
        clients = [
            subprocess.Popen(
                [sys.executable, "-c", VOTE_FOR_EVER, target.url, str((2 * run + k) * 10_000_000)],
                stdout=subprocess.PIPE,
            )
            for k in range(2)
        ]
        said = []
        for client in clients:
            assert client.stdout is not None
            said.append(client.stdout.readline())
        time.sleep(0.02 + 0.01 * (run % 10))
        for client in clients:
            client.send_signal(signal.SIGKILL)
        for first, client in zip(said, clients):
            with client:
                assert client.stdout is not None
                lines = (first + client.stdout.read()).split(b"\n")[:-1]
            accepted |= {int(line[2:]) for line in lines if line.startswith(b"!")}
            unknown |= {int(line[2:]) for line in lines if line.startswith(b"?")}
        # The server finds out about the dead by and by: what they sent may still be carried out.
        wait_for_quiet(target)
        check(target, accepted, unknown - accepted)
        accepted |= unknown
    assert accepted


def wait_for_quiet(target: Target) -> None:
    deadline = time.monotonic() + 20
    while left := target.sessions():
        assert time.monotonic() < deadline, f"{left} sessions are still there"
        time.sleep(0.02)


@KINDS
@RUNS
def test_no_vote_is_lost_or_doubled_when_the_server_is_killed(target: Target, runs: int) -> None:
    accepted: set[int] = set()
    unknown: set[int] = set()
    failures: list[BaseException] = []
    stop = threading.Event()
    going = threading.Event()

    def vote(votes: hotcount.Votes, first: int) -> None:
        user = first
        while not stop.is_set():
            try:
                votes.cast(ITEM, user, timeout=2)
                accepted.add(user)
                going.set()
            except hotcount.OutcomeUnknownError:
                unknown.add(user)
            except (hotcount.UnavailableError, hotcount.DeadlineError):
                time.sleep(0.005)  # Certainly not applied: the check holds us to it.
            except BaseException as failure:
                failures.append(failure)
                return
            user += VOTERS

    server = target.server
    with open_votes(target.url) as votes:
        for run in range(runs):
            stop.clear()
            going.clear()
            first = run * 10_000_000
            ended = in_threads(partial(vote, votes), range(first, first + VOTERS))
            assert going.wait(20), failures
            time.sleep(0.02 + 0.01 * (run % 10))
            server.kill()
            stop.set()
            ended()
            assert failures == []
            server.start()
            check(target, accepted, unknown)
            accepted |= unknown
            unknown.clear()


# 100 kills take minutes:
# .venv/bin/python -m pytest -m "" tests/faults/test_votes_on_servers.py -k kills_of_everybody
@KINDS
@pytest.mark.parametrize(
    "kills", [10, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]
)
def test_kills_of_everybody_beside_random_locks_lose_no_vote_and_no_count(
    target: Target, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_votes(target.url) as votes:
        votes.add_items(range(1, ITEMS + 1))

    def restart() -> None:
        target.server.kill()
        target.server.start()

    storm = Storm(target.url, target.connect, restart, seed=kills)
    storm.run(kills)
    with capsys.disabled():
        print(f"\n{storm.figures()}")
    assert storm.kills.total() == kills
    assert storm.kills["server"] == kills // 10
    assert storm.snapshots > 0
    assert storm.locks > 0

    # What the dead have sent may still be carried out.
    wait_for_quiet(target)
    # Nobody is left who could fold, and exact reads are right all the same.
    with target.connect() as session, session.cursor() as cursor:
        counts, sums = exact_counts(cursor)
        assert {item: n for item, n in counts.items() if n} == {i: n for i, n in sums.items() if n}
        cursor.execute("SELECT item_id, user_id, val FROM vote_live")
        live = {(int(row[0]), int(row[1])): int(row[2]) for row in cursor.fetchall()}
    assert storm.ledger.differences(live) == []
    with open_votes(target.url) as votes:
        items = list(range(1, ITEMS + 1))
        assert [int(count) for count in votes.count_many(items)] == [
            sums.get(item, 0) for item in items
        ]
        assert votes.flush().pending == 0
        assert votes.reconcile(dry_run=True) == []
    with target.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT id, vote_count FROM item")
        shown = {int(row[0]): int(row[1] or 0) for row in cursor.fetchall()}
    assert shown == {item: sums.get(item, 0) for item in items}


@pytest.fixture
def proxy(target: Target) -> Iterator[FaultProxy]:
    with FaultProxy(target.socket) as made:
        yield made


@KINDS
@pytest.mark.parametrize("strategy", ["naive", "batched"])
def test_a_commit_whose_answer_is_lost(target: Target, proxy: FaultProxy, strategy: str) -> None:
    if strategy != "batched":
        with open_votes(target.url, strategy) as votes:
            votes.create_tables()
    accepted: set[int] = set()
    outcomes: set[str] = set()
    user = 0
    with open_votes(target.through(proxy), strategy) as votes:
        # Wherever the answers of a vote are cut: the statement's, the commit's, or behind both.
        for passed in range(0, 480, 6):
            # So that a connection is there, with its statements known.
            votes.cast(ITEM, user)
            accepted.add(user)
            user += 1
            fired = proxy.fired
            proxy.cut_after(passed, SERVER_TO_CLIENT)
            try:
                votes.cast(ITEM, user)
                outcomes.add("done")
            except hotcount.OutcomeUnknownError:
                outcomes.add("unknown")
            except hotcount.UnavailableError:
                outcomes.add("not applied")
                proxy.heal()
                assert user not in target.live_users()
            proxy.heal()
            if proxy.fired == fired:
                outcomes.add("behind")
            assert votes.cast(ITEM, user).value == 1
            accepted.add(user)
            user += 1
            assert int(votes.count(ITEM)) == len(accepted)
    assert "unknown" in outcomes
    assert "behind" in outcomes, "no cut was late enough: the commit's answer was not reached"
    assert target.live_users() == accepted
