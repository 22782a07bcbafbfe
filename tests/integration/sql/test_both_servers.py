"""Locks and ends of sessions, rights and forks, as PostgreSQL and MariaDB have them alike."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import hotcount
import pytest

from tests.support.eventually import BUSY, eventually
from tests.support.journal_side import TABLES, JournalSide
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import in_background
from tests.support.servers import PostgresServer
from tests.support.sql_votes import make_votes, open_votes
from tests.support.together import in_child, together

pytestmark = pytest.mark.server


def test_a_user_with_read_rights_only_counts_and_is_refused_votes(
    side: JournalSide, strategy: str
) -> None:
    side.made(strategy).cast(1, 7)
    url, _ = side.login("SELECT", *TABLES, "vote_count", "vote_live")
    readers = open_votes(url, strategy)
    assert int(readers.count(1)) == 1
    with pytest.raises(hotcount.PermissionDeniedError, match="denied") as caught:
        readers.cast(1, 8)
    assert caught.value.code == ("42501" if side.dialect == "postgresql" else "1142")


def test_a_lock_held_elsewhere_costs_the_deadline_and_nothing_else(
    side: JournalSide, strategy: str
) -> None:
    votes = side.made(strategy)
    votes.cast(1, 7)
    with side.session() as other:
        other.execute("SELECT id FROM item WHERE id = 1 FOR UPDATE")
        other.execute("SELECT val FROM vote WHERE item_id = 1 AND user_id = 7 FOR UPDATE")
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, -1, timeout=0.5)
        assert 0.4 < time.monotonic() - started < 0.5 + BUSY
        # The session that waited is gone, and with it the locks that it held while it did.
        eventually(lambda: side.waits() == 0)
        assert votes.cast(2, 7, timeout=5).changed
        patient = in_background(lambda: votes.cast(1, 8))
        assert not patient.is_over(0.1)
    assert patient().changed
    assert votes.cast(1, 7, -1).previous == 1
    assert votes.reconcile(dry_run=True) == []


@contextmanager
def own(kind: str) -> Iterator[tuple[PostgresServer | MariaDbServer, str]]:
    """A server that the test may stop, and the URL of a database there."""
    if kind == "postgresql":
        with PostgresServer().started() as postgres:
            yield postgres, postgres.create_database().url
    else:
        with new_server().started() as maria:
            yield maria, maria.url(maria.create_database())


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_server_that_was_away_is_found_again(kind: str, strategy: str) -> None:
    with own(kind) as (server, url):
        votes = make_votes(url, strategy)
        votes.cast(1, 1)
        server.kill()
        with pytest.raises(hotcount.UnavailableError):
            votes.cast(1, 2)
        server.start()
        assert votes.cast(1, 2).changed
        # Restarted while the connection was idle: nobody notices.
        server.stop()
        server.start()
        assert votes.cast(1, 3).changed
        assert int(votes.count(1)) == 3


def test_a_forked_child_votes_in_sessions_of_its_own(side: JournalSide, strategy: str) -> None:
    votes = make_votes(side.own_url, strategy)
    votes.cast(1, 1)
    before = set(side.sessions())

    def child() -> tuple[bool, int, bool]:
        voted = votes.cast(1, 2).changed
        return voted, int(votes.count(1)), set(side.sessions()) > before

    assert in_child(child) == (True, 2, True)
    # Neither ended by the child nor joined by it.
    eventually(lambda: set(side.sessions()) == before)
    assert votes.cast(1, 3).changed
    assert int(votes.count(1)) == 3


PARENT_WITH_CHILD = """
import os, sys, time
import hotcount
votes = hotcount.Votes(hotcount.Database(sys.argv[1]), None, "naive")
votes.cast(1, 1)
votes.count(1)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
time.sleep(600)
"""


def test_a_child_does_not_keep_its_dead_parents_sessions_open(side: JournalSide) -> None:
    """Or a parent that dies would leave its locks to a child that knows nothing of them."""
    make_votes(side.own_url).cast(1, 2)
    mine = set(side.sessions())
    with subprocess.Popen(
        [sys.executable, "-c", PARENT_WITH_CHILD, side.own_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert set(side.sessions()) > mine
        parent.kill()
        eventually(lambda: set(side.sessions()) <= mine, 5)
        os.kill(child, 0)  # It lives.


def test_no_deadlock_reaches_a_caller(side: JournalSide, strategy: str) -> None:
    votes = make_votes(side.url, strategy)

    def vote(index: int) -> int:
        # A timeout of its own makes it a database of its own, as in another process.
        own = open_votes(side.url, strategy, timeout=30 + index % 4)
        changed = 0
        for round in range(10):
            items = [1, 2, 3] if (index + round) % 2 else [3, 2, 1]
            # Fresh votes of one's own, and ones that everybody fights over.
            changed += sum(own.cast_many(items, [1000 * index + round, 7, 8]).changed)
        return changed

    changed = sum(together(vote, 16))
    assert sum(map(int, votes.count_many([1, 2, 3], consistency="exact"))) == changed
    votes.flush()
    assert votes.reconcile(dry_run=True) == []
    assert side.number("SELECT SUM(vote_count) FROM item") == changed
    assert side.number("SELECT SUM(val) FROM vote") == changed
