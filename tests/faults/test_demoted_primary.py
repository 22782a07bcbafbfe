"""A primary that is demoted keeps its connections; the address leads to another server later."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import psycopg
import pytest

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql, new_server
from tests.support.servers import PostgresServer
from tests.support.together import in_threads

pytestmark = pytest.mark.server

STRATEGIES = pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])
DATABASE = "app"


class Node:
    """One of two servers that an application's address may lead to, as another client sees it."""

    def __init__(self, kind: str) -> None:
        self.server: PostgresServer | MariaDbServer
        if kind == "postgres":
            postgres = PostgresServer()
            self.server = postgres
            self.socket = postgres.folder / ".s.PGSQL.5432"
        else:
            maria = new_server()
            self.server = maria
            self.socket = maria.socket
        self.server.start()
        self.empty()

    def empty(self) -> None:
        if isinstance(self.server, MariaDbServer):
            self.server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            self.server.execute(f"CREATE DATABASE {DATABASE}")
            # Whoever may do anything may write to a server that is read only.
            self.server.execute("CREATE USER IF NOT EXISTS app@localhost")
            self.server.execute(f"GRANT ALL ON {DATABASE}.* TO app@localhost")
        else:
            self.server.psql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        with open_votes(self.own_url(), "batched") as votes:
            votes.create_tables()
            votes.add_items([1, 2])
        with hotcount.SlottedCounter(hotcount.Database(self.own_url())) as counter:
            counter.create_table()

    def own_url(self) -> str:
        if isinstance(self.server, MariaDbServer):
            return self.server.url(DATABASE)
        return self.server.url()

    def demote(self, demoted: bool = True) -> None:
        if demoted:
            fired("demoted")
        if isinstance(self.server, MariaDbServer):
            # On MySQL as operators demote there: nobody at all may write.
            setting = "super_read_only" if is_mysql() and demoted else "read_only"
            self.server.execute(f"SET GLOBAL {setting} = {int(demoted)}")
        else:
            state = "on" if demoted else "off"
            self.server.psql(f"ALTER SYSTEM SET default_transaction_read_only = {state}")
            self.server.psql("SELECT pg_reload_conf()")
            asked = "SHOW default_transaction_read_only"
            server = self.server
            eventually(lambda: server.psql(asked) == state)

    def column(self, sql: str) -> list[int]:
        if isinstance(self.server, MariaDbServer):
            return [int(row[0]) for row in self.server.execute(sql, database=DATABASE)]
        return [int(line) for line in self.server.psql(sql).split()]

    def users(self) -> list[int]:
        return self.column("SELECT user_id FROM vote_live")


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def nodes(request: pytest.FixtureRequest) -> Iterator[tuple[Node, Node]]:
    made: list[Node] = []
    try:
        made += [Node(request.param)]
        made += [Node(request.param)]
        yield made[0], made[1]
    finally:
        for node in made:
            node.server.remove()


@pytest.fixture
def address(nodes: tuple[Node, Node]) -> Iterator[FaultProxy]:
    """Leads to the first server, a primary, with the second one ready; both empty."""
    for node in nodes:
        node.demote(False)
        node.empty()
    with FaultProxy(nodes[0].socket) as made:
        yield made


def url_of(nodes: tuple[Node, Node], address: FaultProxy) -> str:
    if isinstance(nodes[0].server, MariaDbServer):
        return f"mariadb://app@127.0.0.1:{address.port}/{DATABASE}"
    return f"postgresql://hotcount@127.0.0.1:{address.port}/postgres?sslmode=disable"


def open_votes(url: str, strategy: str, timeout: float = 30) -> hotcount.Votes:
    database = hotcount.Database(url, timeout=timeout)
    return hotcount.Votes(database, None, strategy)  # type: ignore[arg-type]


def prepare(nodes: tuple[Node, Node], strategy: str) -> None:
    for node in nodes:
        with open_votes(node.own_url(), strategy) as votes:
            votes.create_tables()


def call_amid_the_change(
    nodes: tuple[Node, Node], address: FaultProxy, call: Callable[[int], Any], over: range
) -> None:
    """Begins the calls before the address leads to the new primary, and ends them."""
    nodes[0].demote()
    connections = address.connections
    done = in_threads(call, over)
    eventually(lambda: address.connections > connections)
    address.server = nodes[1].socket
    done()


@STRATEGIES
def test_votes_find_the_new_primary_within_their_deadline(
    nodes: tuple[Node, Node], address: FaultProxy, strategy: str
) -> None:
    prepare(nodes, strategy)
    old, new = nodes
    with open_votes(url_of(nodes, address), strategy) as votes:
        # So that there are several connections, each with its statements prepared.
        in_threads(lambda user: votes.cast(1, user), range(8))()
        call_amid_the_change(nodes, address, lambda user: votes.cast(1, user), range(100, 116))
        # And those that stayed idle meanwhile.
        in_threads(lambda user: votes.cast(2, user), range(200, 208))()
        assert sorted(old.users()) == [*range(8)]
        assert sorted(new.users()) == [*range(100, 116), *range(200, 208)]
        assert int(votes.count(1, consistency="exact")) == 16
        assert votes.reconcile(dry_run=True) == []


@STRATEGIES
def test_who_only_reads_counts_at_the_new_primary_too(
    nodes: tuple[Node, Node], address: FaultProxy, strategy: str
) -> None:
    prepare(nodes, strategy)
    old, new = nodes
    url = url_of(nodes, address)
    # Of other options: a process shares what it knows of a server otherwise.
    with open_votes(url, strategy, timeout=31) as reads, open_votes(url, strategy) as votes:
        votes.cast(1, 1)
        in_threads(lambda _: reads.count_many([1, 2]), range(8))()
        old.demote()
        assert int(reads.count(1)) == 1, "there is no other server yet"
        address.server = new.socket
        for user in (100, 101, 102):
            votes.cast(1, user)
        eventually(lambda: int(reads.count(1, consistency="exact")) == 3)
        assert [int(n) for n in reads.count_many([1, 2])] == [3, 0]


@STRATEGIES
@pytest.mark.parametrize("nodes", ["postgres"], indirect=True)
def test_who_only_reads_has_no_old_count_once_the_name_leads_to_the_new_primary(
    nodes: tuple[Node, Node], address: FaultProxy, strategy: str
) -> None:
    prepare(nodes, strategy)
    old, new = nodes
    url = url_of(nodes, address)
    with open_votes(url, strategy, timeout=31) as reads, open_votes(url, strategy) as votes:
        votes.cast(1, 1)
        in_threads(lambda _: reads.count_many([1, 2]), range(8))()
        old.demote()
        address.server = new.socket
        for user in (100, 101, 102):
            votes.cast(1, user)
        counts: list[int] = []
        in_threads(lambda _: counts.append(int(reads.count(1))), range(8))()
        assert counts == [3] * 8


def test_slotted_counters_find_the_primary(nodes: tuple[Node, Node], address: FaultProxy) -> None:
    old, new = nodes
    with hotcount.Database(url_of(nodes, address), timeout=30) as database:
        counter = hotcount.SlottedCounter(database)
        in_threads(lambda _: counter.add("k"), range(8))()
        call_amid_the_change(nodes, address, lambda _: counter.add("k"), range(8))
        in_threads(lambda _: counter.add("k"), range(8))()
        slots = "SELECT SUM(count) FROM hotcount_slot"
        assert old.column(slots) == [8]
        assert new.column(slots) == [16]
        assert counter.get("k") == 16


@STRATEGIES
def test_calls_go_on_after_a_new_primary_comes_late(
    nodes: tuple[Node, Node], address: FaultProxy, strategy: str
) -> None:
    prepare(nodes, strategy)
    old, new = nodes
    with open_votes(url_of(nodes, address), strategy) as votes:
        votes.cast(1, 1)
        old.demote()
        with pytest.raises(hotcount.UnavailableError):
            votes.cast(1, 99, timeout=0.5)
        # Connections are closed as soon as they are made.
        address.server = Path("/nonexistent/socket")
        done = in_threads(lambda user: votes.cast(1, user), range(100, 104))
        refused = address.refused
        eventually(lambda: address.refused > refused + 4)
        address.server = new.socket
        done()
        assert sorted(new.users()) == [*range(100, 104)]


@STRATEGIES
def test_without_a_new_primary_the_end_is_unavailable_and_nothing_is_applied(
    nodes: tuple[Node, Node], address: FaultProxy, strategy: str
) -> None:
    prepare(nodes, strategy)
    old, _ = nodes
    with open_votes(url_of(nodes, address), strategy) as votes:
        votes.cast(1, 1)
        old.demote()
        connections = address.connections
        started = time.monotonic()
        with pytest.raises(hotcount.UnavailableError, match=r"nothing was applied") as caught:
            votes.cast(1, 2, timeout=1)
        assert caught.value.code in ("25006", "1290")
        assert time.monotonic() - started < 10
        # With pauses in between: not as fast as the server refuses.
        assert address.connections - connections < 60
        assert int(votes.count(1)) == 1, "it still reads"
        old.demote(False)
        votes.cast(1, 2)
    assert sorted(old.users()) == [1, 2]


@STRATEGIES
def test_tables_are_made_on_the_new_primary_within_the_deadline(
    nodes: tuple[Node, Node], address: FaultProxy, strategy: str
) -> None:
    _, new = nodes
    with hotcount.Database(url_of(nodes, address), timeout=30) as database:
        votes = hotcount.Votes(
            database,
            strategy=strategy,  # type: ignore[arg-type]
            item_table="later_item",
            vote_table="later_vote",
        )
        call_amid_the_change(nodes, address, lambda _: votes.create_tables(), range(1))
        votes.add_items([1])
        votes.cast(1, 1)
    assert new.column("SELECT user_id FROM later_vote") == [1]


def test_a_counters_table_is_made_there_too(nodes: tuple[Node, Node], address: FaultProxy) -> None:
    _, new = nodes
    with hotcount.Database(url_of(nodes, address), timeout=30) as database:
        counter = hotcount.SlottedCounter(database, table="later_slot")
        call_amid_the_change(nodes, address, lambda _: counter.create_table(), range(1))
        counter.add("k")
    assert new.column("SELECT count FROM later_slot") == [1]


@pytest.mark.parametrize("nodes", ["postgres"], indirect=True)
def test_what_the_old_primary_still_commits_does_not_end_the_search_for_the_new_one(
    nodes: tuple[Node, Node], address: FaultProxy
) -> None:
    """MariaDB is not read only before every transaction under way has ended."""
    prepare(nodes, "naive")
    old, new = nodes
    assert isinstance(old.server, PostgresServer)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with open_votes(url_of(nodes, address), "naive") as votes:
        votes.cast(2, 1)
        with psycopg.connect(old.own_url()) as other:
            other.execute("SELECT FROM item WHERE id = 1 FOR UPDATE")
            late = in_threads(lambda user: votes.cast(1, user), range(50, 51))
            eventually(lambda: old.column(waiting) == [1])
            old.demote()
            connections = address.connections
            refused = in_threads(lambda user: votes.cast(2, user), range(60, 61))
            eventually(lambda: address.connections > connections + 1)
            # The one that commits late keeps its connection; others are closed at once.
            address.server = Path("/nonexistent/socket")
        late()
        closed = address.refused
        eventually(lambda: address.refused > closed + 2)
        address.server = new.socket
        refused()
    assert sorted(old.users()) == [1, 50]
    assert new.users() == [60]
