"""A session that lost what was prepared in it, or whose tables are others now: nobody notices."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.listener import Proxy
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import make_votes, open_votes

_EXECUTE = 0x17


class ForgetfulProxy(Proxy):
    """Before MariaDB: one execution in `forget_every` is of a statement that is not there."""

    def __init__(self, server: Path) -> None:
        self.forget_every = 0
        self.forgotten = 0
        self._executed = 0
        super().__init__(server)

    def from_client(self, client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        upstream.sendall(self._other_statement(data))

    def _other_statement(self, data: bytes) -> bytes:
        """The same with another statement's number in each execution that is to fail."""
        if not self.forget_every:
            return data
        out, at = bytearray(data), 0
        while at + 9 <= len(data):
            size = int.from_bytes(data[at : at + 3], "little")
            if data[at + 3] == 0 and data[at + 4] == _EXECUTE:
                self._executed += 1
                if self._executed % self.forget_every == 0:
                    out[at + 5 : at + 9] = b"\xfe\xff\xff\x7f"
                    self.forgotten += 1
            at += 4 + size
        return bytes(out)


@pytest.fixture
def forgetful(mariadb_server: MariaDbServer) -> Iterator[ForgetfulProxy]:
    with ForgetfulProxy(mariadb_server.socket) as made:
        yield made


def test_a_statement_that_mariadb_does_not_know_is_prepared_again(
    mariadb_database: str, forgetful: ForgetfulProxy, strategy: str
) -> None:
    url = f"mariadb://root@127.0.0.1:{forgetful.port}/{mariadb_database}"
    with make_votes(url, strategy) as votes:
        # On MySQL a transaction has five statements: with fewer in between few would end.
        for every in (17, 19, 23) if is_mysql() else (7, 11, 13):
            for user in range(every * 100, every * 100 + 30):
                forgetful.forget_every = every
                assert votes.cast(1, user).changed
                votes.count(1)
        assert forgetful.forgotten > 10
        forgetful.forget_every = 0
        assert int(votes.count(1)) == 90
        assert votes.reconcile(dry_run=True) == []


def test_reads_of_cached_counts_and_of_counters_prepare_again_too(
    mariadb_database: str, forgetful: ForgetfulProxy
) -> None:
    url = f"mariadb://root@127.0.0.1:{forgetful.port}/{mariadb_database}"
    with hotcount.Database(url, timeout=20) as database:
        votes = hotcount.Votes(database, hotcount.Memory(), "cached")
        votes.create_tables()
        votes.add_items([1, 2])
        counter = hotcount.SlottedCounter(database)
        counter.create_table()
        counter.add_many({"a": 1, "b": 1, "c": 1})
        for every in (17, 19, 23):
            forgetful.forget_every = every
            for user in range(every * 100, every * 100 + 10):
                assert votes.cast(1, user).changed
                assert int(votes.count_many([1, 2], consistency="exact")[1]) == 0
                assert counter.get_many(["a", "b", "c"]) == [1, 1, 1]
                votes.count_many([1, 2])
                votes.flush()
                assert votes.reconcile(dry_run=True) == []
        assert forgetful.forgotten > 10
        forgetful.forget_every = 0
        assert int(votes.count(1, consistency="exact")) == 30


def test_a_column_of_another_type_costs_no_call(postgres: PostgresDatabase, strategy: str) -> None:
    votes = make_votes(postgres, strategy)
    for user in range(4):
        votes.cast(1, user)
        votes.count(1)
        votes.count(1, consistency="exact")
    for number, kind in enumerate(("integer", "bigint", "integer"), 1):
        # "cached plan must not change result type" is what the next execution hears. A column that
        # a view shows keeps its type, so ours goes first, and create_tables() makes it again.
        postgres.psql(f"DROP VIEW vote_count; ALTER TABLE item ALTER vote_count TYPE {kind}")
        votes.create_tables()
        for user in range(number * 10, number * 10 + 3):
            votes.count(1)
            assert votes.cast(1, user).changed
            votes.count(1, consistency="exact")
            votes.flush()
    assert int(votes.count(1)) == 13
    assert votes.reconcile(dry_run=True) == []


@contextmanager
def logged(postgres: PostgresDatabase) -> Iterator[Callable[[], str]]:
    """What the server logs of statements in the block, which it is asked to log."""
    log = postgres.server.folder / "server.log"
    postgres.psql("ALTER ROLE hotcount SET log_statement = 'all'")
    before = len(log.read_text())
    try:
        yield lambda: log.read_text()[before:]
    finally:
        postgres.psql("ALTER ROLE hotcount RESET log_statement")


@pytest.mark.parametrize("how", ["keyword", "url"])
def test_without_prepared_statements_none_is_left_in_a_session(
    postgres: PostgresDatabase, how: str
) -> None:
    """A name is one of ours."""
    url = postgres.url_for("hotcount", "&application_name=unprepared")
    options = {"prepare": False} if how == "keyword" else {}
    if how == "url":
        url += "&prepare=false"
    make_votes(postgres)
    with logged(postgres) as said, open_votes(url, **options) as votes:
        votes.cast(1, 1)
        votes.cast(1, 2)
        assert "execute <unnamed>" in said()
        assert "execute hotcount_" not in said()


def test_two_objects_over_the_same_tables_share_what_is_prepared(
    postgres: PostgresDatabase, strategy: Any
) -> None:
    """Their statements are of one text, and so of one name: no session prepares it twice."""
    make_votes(postgres, strategy)
    url = postgres.url_for("hotcount", f"&application_name=shared_{strategy}")
    # One writer and one reader: every object meets what the one before it has prepared.
    with (
        logged(postgres) as log,
        hotcount.Database(url, timeout=20, max_writers=1, max_readers=1) as database,
    ):
        for user in range(4):
            votes = hotcount.Votes(database, None, strategy)
            assert votes.cast(1, user).changed
            assert int(votes.count(1)) == user + 1
        said = log()
    assert "already exists" not in said
    # Also behind the last of them the votes are written by name.
    votes_written = [line for line in said.splitlines() if 'INSERT INTO "vote"' in line]
    assert len(votes_written) >= 4
    assert all("execute hotcount_" in line for line in votes_written)
