"""The votes' journal on a real server, and hands to hold it at chosen points.

A Play is a strategy batched whose folds happen when the test says so, beside sessions of other
clients: these hold rows, and so a fold, a switch or a voter stops exactly there.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hotcount
from hotcount import FlushReport, Votes

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql
from tests.support.postgres_votes import Background, in_background
from tests.support.servers import PostgresDatabase

_numbers = itertools.count()


class Session:
    """One transaction after the other of another client."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def number(self, sql: str) -> int:
        ((value,),) = self.run(sql)
        return int(value)

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


class Play:
    """Items 1 to 3, nobody's votes. Another process is another Votes: other()."""

    dialect: str

    def __init__(self) -> None:
        self._opened: list[Any] = []
        self.votes = self.other()
        self.votes.create_tables(timeout=30)
        self.votes.add_items([1, 2, 3], timeout=30)
        # Each item has its cell of the fold, and the next fold is the test's.
        self.votes.cast_many([1, 2, 3], [0, 0, 0], timeout=30)
        self.flush()

    # What differs.

    def url(self) -> str:
        raise NotImplementedError

    def connect(self, **options: Any) -> Any:
        raise NotImplementedError

    def waiting(self) -> int:
        """How many of hotcount's transactions wait for a lock."""
        raise NotImplementedError

    def end_waiting(self) -> None:
        """Ends hotcount's session that waits for a lock."""
        raise NotImplementedError

    def take_moving(self, session: Session) -> None:
        """What a fold, a reconcile and a switch wait for, for a session's transaction."""
        raise NotImplementedError

    # What is the same.

    def other(self, strategy: str = "batched", cache: Any = None, **options: Any) -> hotcount.Votes:
        """As in another process: nothing is shared but the server."""
        if strategy == "batched":
            options.setdefault("fold_interval", 3600)
        # A timeout of its own makes it a database of its own.
        database = hotcount.Database(self.url(), timeout=30 + next(_numbers) / 1000)
        votes = hotcount.Votes(database, cache, strategy, **options)  # type: ignore[arg-type]
        self._opened += [votes, database]
        return votes

    def session(self, **options: Any) -> Session:
        session = Session(self.connect(**options))
        self._opened.append(session)
        return session

    def close(self) -> None:
        # Sessions first: calls of hotcount may wait for what they hold.
        for opened in sorted(self._opened, key=lambda each: not isinstance(each, Session)):
            opened.close()

    def cast(self, item: int, user: int, value: int = 1) -> hotcount.Cast:
        return self.votes.cast(item, user, value, timeout=30)

    def flush(self, votes: Votes | None = None, timeout: float = 30) -> FlushReport:
        """Waits for items that are held, until the timeout."""
        return (votes or self.votes).flush(timeout=timeout)

    @contextmanager
    def held(self, sql: str) -> Iterator[Session]:
        """A session that has run the statement and holds its locks until the block ends."""
        session = self.session()
        session.run(sql)
        yield session
        session.rollback()

    @contextmanager
    def stopped_fold(self, item: int = 1) -> Iterator[Callable[[], Any]]:
        """A fold that has its lock and its rows, and waits for the item's cell in mid-way. What is
        given waits for the fold's end; call it after the block.
        """
        assert self.pending(item) > 0, "nothing to fold"
        with self.held(f"SELECT n FROM vote_cell WHERE item = {item} AND slot = -1 FOR UPDATE"):
            fold = self.stopped(lambda: self.flush())
            yield fold

    def stopped(self, call: Callable[[], Any]) -> Background:
        """Starts the call and returns when it waits for a lock."""
        before = self.waiting()
        result = in_background(call)
        eventually(lambda: self.waiting() > before)
        return result

    def held_up(self, votes: hotcount.Votes | None = None) -> bool:
        """A vote waits for a row, in its statement or set aside."""
        return self.waiting() > 0 or (votes or self.votes).stats()["held_votes"] > 0

    def number(self, sql: str) -> int:
        session = Session(self.connect())
        try:
            return session.number(sql)
        finally:
            session.close()

    def pending(self, item: int) -> int:
        """Rows in the journal for the item."""
        return self.number(f"SELECT COUNT(*) FROM vote_journal WHERE item = {item}")

    def stored(self, item: int) -> int:
        return self.number(f"SELECT vote_count FROM item WHERE id = {item}")

    def voted(self, item: int) -> int:
        return self.number(f"SELECT COALESCE(SUM(val), 0) FROM vote WHERE item_id = {item}")

    def counts(self, item: int) -> set[int]:
        """Every way to ask for the exact count: one number, where they agree."""
        view = self.number(f"SELECT n FROM vote_count WHERE item = {item}")
        exact = self.votes.count(item, consistency="exact", timeout=30)
        return {view, int(exact), self.voted(item)}

    def is_settled(self, *items: int) -> bool:
        """Nothing is held: after a fold every count everywhere is that of the votes."""
        self.flush()
        for item in items or (1, 2, 3):
            assert self.counts(item) == {self.stored(item)}, item
            assert self.pending(item) == 0, item
        assert self.votes.reconcile(dry_run=True, timeout=30) == []
        return True


class PostgresPlay(Play):
    dialect = "postgres"

    def __init__(self, database: PostgresDatabase, options: str = "") -> None:
        self.database = database
        self._options = options
        super().__init__()

    def url(self) -> str:
        return self.database.url_for(self.database.server.superuser, self._options)

    def connect(self, **options: Any) -> Any:
        return self.database.connect(**options)

    def waiting(self) -> int:
        return self.number(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name = 'hotcount'"
        )

    def end_waiting(self) -> None:
        self.number(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND application_name = 'hotcount'"
        )

    def take_moving(self, session: Session) -> None:
        session.run("SELECT pg_advisory_xact_lock('vote_journal'::regclass::oid::int, 1)")
        session.run("SELECT value FROM vote_meta WHERE name = 'schema' FOR UPDATE")


class MariaDbPlay(Play):
    dialect = "mariadb"

    def __init__(self, server: MariaDbServer, name: str) -> None:
        self.server = server
        self.name = name
        super().__init__()

    def url(self) -> str:
        return self.server.url(self.name)

    def connect(self, **options: Any) -> Any:
        # Whatever the server's default is: under SERIALIZABLE each look would hold what it saw.
        level = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
        return self.server.connect(self.name, init_command=level, **options)

    def waiting(self) -> int:
        if not is_mysql():
            return self.server.row_waits()
        # There a batch waits for no vote's row: it sets the vote aside.
        ours = [each for each in self._opened if isinstance(each, hotcount.Votes)]
        return self.server.row_waits() + sum(int(v.stats()["held_votes"]) for v in ours)

    def end_waiting(self) -> None:
        admin = self.session()
        waiting = (
            "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX"
            " WHERE trx_state = 'LOCK WAIT'"
        )
        ((waits,),) = admin.run(waiting)
        admin.run(f"KILL {waits}")

    def take_moving(self, session: Session) -> None:
        session.run("SELECT value FROM vote_meta WHERE name IN ('folded_at', 'schema') FOR UPDATE")
