"""The votes' journal from outside: a server's tables, and voters that are not ours."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hotcount

from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresDatabase

TABLES = ("item", "vote", "vote_anonymous", "vote_cell", "vote_journal", "vote_meta")
_logins = itertools.count()


class Session:
    """Another client's session, in a transaction that it ends itself."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def commit(self) -> None:
        self._connection.commit()


class JournalSide:
    """A database of one test's own on a shared server."""

    def __init__(
        self,
        postgres: PostgresDatabase | None = None,
        mariadb: tuple[MariaDbServer, str] | None = None,
    ) -> None:
        self._postgres = postgres
        self._mariadb = mariadb
        self.dialect = "postgresql" if postgres else "mysql"

    @property
    def url(self) -> str:
        if self._postgres is not None:
            return self._postgres.url
        assert self._mariadb is not None
        return self._mariadb[0].url(self._mariadb[1])

    def login(self, rights: str, *tables: str) -> tuple[str, str]:
        """A login that has these rights on these tables: its URL, and its name for GRANT."""
        if self._postgres is not None:
            user = f"role{next(_logins)}_{self._postgres.schema}"
            account, url = user, self._postgres.url_for(user)
            made = [
                f"CREATE ROLE {user} LOGIN",
                f"GRANT USAGE ON SCHEMA {self._postgres.schema} TO {user}",
            ]
        else:
            assert self._mariadb is not None
            server, name = self._mariadb
            user = f"u{next(_logins)}_{name}"
            account, url = f"{user}@localhost", server.url(name, user=user)
            made = [f"CREATE USER {account}"]
        self.run(*made, *(f"GRANT {rights} ON {table} TO {account}" for table in tables))
        return url, account

    def voter(self) -> tuple[str, str]:
        """The login of a process that votes and folds, and creates nothing."""
        return self.login("SELECT, INSERT, UPDATE, DELETE", *TABLES)

    def votes(self, strategy: str = "batched", **options: Any) -> hotcount.Votes:
        """Votes whose background folds keep away unless fold_interval says otherwise."""
        options.setdefault("fold_interval", 3600)
        cache = options.pop("cache", None)
        opened = hotcount.Database(self.url, timeout=20)
        return hotcount.Votes(opened, cache, strategy, **options)  # type: ignore[arg-type]

    def made(self, strategy: str = "batched", **options: Any) -> hotcount.Votes:
        """The same with its tables and three items."""
        votes = self.votes(strategy, **options)
        votes.create_tables(timeout=20)
        votes.add_items([1, 2, 3])
        return votes

    @contextmanager
    def session(self) -> Iterator[Session]:
        if self._postgres is not None:
            with self._postgres.connect() as connection:
                yield Session(connection)
                connection.rollback()
            return
        assert self._mariadb is not None
        server, name = self._mariadb
        with server.connect(name, init_command="SET SESSION sql_mode = 'ANSI_QUOTES'") as other:
            yield Session(other)
            other.rollback()

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs them in one transaction of another client's; the last one's rows."""
        rows: list[tuple[Any, ...]] = []
        with self.session() as session:
            for statement in statements:
                rows = session.execute(statement)
            session.commit()
        return rows

    def number(self, query: str) -> int:
        return int(self.run(query)[0][0])

    def vote(self, item: int, *users: int, val: int = 1) -> None:
        """What a process does that votes and never folds."""
        self.run(
            *(
                f"INSERT INTO vote (item_id, user_id, val, prev) VALUES ({item}, {user}, {val}, 0)"
                for user in users
            ),
            f"INSERT INTO vote_journal (item, diff) VALUES ({item}, {val * len(users)})",
        )

    def shown(self, item: int = 1) -> int:
        return self.number(f"SELECT vote_count FROM item WHERE id = {item}")

    def pending(self) -> int:
        return self.number("SELECT COUNT(*) FROM vote_journal")

    def waits(self) -> int:
        """How many sessions of ours wait for a lock."""
        if self._mariadb is not None:
            return self._mariadb[0].row_waits()
        return self.number(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name = 'hotcount'"
        )

    @property
    def own_url(self) -> str:
        """That of sessions() and end_sessions()."""
        return (
            f"{self.url}&application_name={self._postgres.schema}" if self._postgres else self.url
        )

    def sessions(self) -> list[int]:
        if self._mariadb is not None:
            return self._mariadb[0].sessions(self._mariadb[1])
        return [pid for (pid,) in self.run(f"SELECT pid {self._own_sessions()}")]

    def end_sessions(self) -> None:
        if self._mariadb is not None:
            self._mariadb[0].leave_database(self._mariadb[1])
        else:
            self.run(f"SELECT pg_terminate_backend(pid) {self._own_sessions()}")

    def _own_sessions(self) -> str:
        assert self._postgres is not None
        return f"FROM pg_stat_activity WHERE application_name = '{self._postgres.schema}'"

    def drifts(self) -> list[tuple[Any, ...]]:
        """Items whose cells and journal are not their votes: one statement, so of one instant."""
        sums = " + ".join(
            f"COALESCE((SELECT SUM(val) FROM {table} WHERE item_id = c.item), 0)"
            for table in ("vote", "vote_anonymous")
        )
        return self.run(f"SELECT item, n FROM vote_count AS c WHERE n <> {sums}")

    def seen(self, item: int = 1) -> int:
        """What the view says."""
        return self.number(f"SELECT n FROM vote_count WHERE item = {item}")
