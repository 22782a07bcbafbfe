"""Counts of votes on three nodes of a Galera cluster when they are moved or set right: no node sees
another's locks, and each has transactions under way."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import hotcount
import pytest
from hotcount._votes_base import Strategy

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.galera_trio import GaleraNode, GaleraTrio, make_tables, votes_at
from tests.support.mariadb_server import MariaDbError

# MySQL has no Galera.
pytestmark = [pytest.mark.server, pytest.mark.mariadb_only("Galera")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after"),
    [("naive", "batched"), ("batched", "naive"), ("slotted", "naive"), ("batched", "cached")],
)
def test_a_change_of_strategy_misses_no_vote_of_other_nodes(
    trio: GaleraTrio, place: str, before: Strategy, after: Strategy
) -> None:
    make_tables(trio, place, before)
    cache = None if after != "cached" else hotcount.Memory()
    ended = threading.Event()
    users = itertools.count()
    told: list[int] = []
    late: list[int] = []

    def vote(votes: hotcount.Votes, into: list[int]) -> None:
        while not ended.is_set():
            user = next(users)
            try:
                votes.cast(1 + user % 3, user)
            except hotcount.ConfigError:  # The other strategy's turn.
                time.sleep(0.002)
            else:
                into.append(user)

    with ExitStack() as stack:
        voters = [
            threading.Thread(
                target=vote,
                args=(stack.enter_context(votes_at(trio.nodes[1 + n % 2], place, before)), told),
            )
            for n in range(8)
        ]
        if cache is None:
            voters += [
                threading.Thread(
                    target=vote,
                    args=(stack.enter_context(votes_at(trio.nodes[n], place, after)), late),
                )
                for n in (1, 2)
            ]
        for voter in voters:
            voter.start()
        eventually(lambda: len(told) > 200, 60)
        database = stack.enter_context(hotcount.Database(trio.nodes[0].url(place), timeout=60))
        votes = stack.enter_context(hotcount.Votes(database, cache, after))
        votes.create_tables()
        if cache is None:
            eventually(lambda: len(late) > 50, 60)
        ended.set()
        for voter in voters:
            voter.join()
        assert sorted(told + late) == sorted(
            int(user)
            for (user,) in trio.nodes[0].execute("SELECT user_id FROM vote", database=place)
        )
        counted = list(map(int, votes.count_many([1, 2, 3], consistency="exact")))
        assert sum(counted) == len(told) + len(late)
        assert votes.reconcile(dry_run=True) == []


def await_state(node: GaleraNode, state: str) -> None:
    asked = "SELECT STATE FROM information_schema.PROCESSLIST"
    eventually(lambda: (state,) in node.ask(asked))


@contextlib.contextmanager
def applying_nothing(node: GaleraNode) -> Iterator[None]:
    """The node commits nothing meanwhile: neither its own transactions nor those of others."""
    with node.connect() as session, session.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        try:
            yield
        finally:
            cursor.execute("UNLOCK TABLES")


def test_reconciles_at_two_nodes_add_a_difference_once(trio: GaleraTrio, place: str) -> None:
    make_tables(trio, place)
    missed = "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1)"
    trio.nodes[0].execute(missed, database=place)
    with (
        votes_at(trio.nodes[0], place) as here,
        votes_at(trio.nodes[1], place) as there,
        trio.nodes[1].connect(place) as session,
        session.cursor() as cursor,
    ):
        cursor.execute("LOCK TABLES vote_journal READ")
        other = threading.Thread(target=there.reconcile)
        other.start()
        # It has read the difference.
        await_state(trio.nodes[1], "Waiting for table metadata lock")
        here.reconcile()
        cursor.execute("UNLOCK TABLES")
        other.join()
        assert int(here.count(1, consistency="exact")) == 1
        assert there.reconcile(dry_run=True) == []


def test_a_change_of_strategy_that_was_cut_off_is_finished(trio: GaleraTrio, place: str) -> None:
    make_tables(trio, place)
    one_at_a_time = threading.Lock()
    with (
        trio.nodes[0].connect(place, autocommit=True) as session,
        session.cursor() as cursor,
        FaultProxy(trio.nodes[0].socket) as proxy,
        hotcount.Database(f"mariadb://root@127.0.0.1:{proxy.port}/{place}", timeout=60) as database,
    ):

        def cut_once_changed() -> None:
            with one_at_a_time:
                cursor.execute("SELECT value FROM vote_meta WHERE name = 'counted_by'")
                if cursor.fetchall() == ((b"naive",),):
                    proxy.cut()

        proxy.before_each(cut_once_changed)
        with pytest.raises(hotcount.OutcomeUnknownError):
            hotcount.Votes(database, None, "naive").create_tables()
    # As a voter at another node whose COMMIT was under way.
    last = "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1)"
    trio.nodes[1].execute(last, database=place)
    with votes_at(trio.nodes[2], place, "naive") as votes:
        votes.create_tables()
        assert int(votes.count(1)) == 1
        left = "SELECT 1 FROM vote_meta WHERE name = 'moved_at'"
        assert trio.nodes[2].execute(left, database=place) == []


@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1)",
        # A worker of strategy cached, and a process that opens the streams of write_behind.
        "UPDATE item SET vote_count = 9 WHERE id = 1",
        "UPDATE vote_meta SET value = value + 1 WHERE name = 'stream_life'",
    ],
    ids=["vote", "count", "streams"],
)
def test_a_change_refuses_what_another_commits(trio: GaleraTrio, place: str, write: str) -> None:
    # With a foreign key Galera takes the items for a part of the votes.
    database = hotcount.Database(trio.nodes[0].url(place), timeout=30)
    with hotcount.Votes(database, foreign_key=False) as votes:
        votes.create_tables()
        votes.add_items([1])
    streams = "INSERT INTO vote_meta VALUES ('stream_life', '0')"
    trio.nodes[0].execute(streams, database=place)
    told: list[int] = []
    with trio.nodes[1].connect(place) as session, session.cursor() as cursor:

        def commit() -> None:
            try:
                session.commit()
            except MariaDbError as error:
                told.append(error.args[0])

        cursor.execute(write)
        other = threading.Thread(target=commit)
        with applying_nothing(trio.nodes[1]):
            with hotcount.Votes(database, None, "naive", foreign_key=False) as votes:
                votes.create_tables()
            other.start()
            await_state(trio.nodes[1], "Waiting for certification")
        other.join()
        assert told == [1213]
    with hotcount.Votes(database, None, "naive", foreign_key=False) as votes:
        assert int(votes.count(1)) == 0
    database.close()
