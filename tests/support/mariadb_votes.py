"""A database of MariaDB or MySQL, and what others write there."""

import itertools
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import hotcount
from hotcount import Votes

from tests.support.mariadb_server import MariaDbServer
from tests.support.sql_votes import make_votes, open_votes

ITEMS = [1, 2, 3]
ALL_BUT_TRIGGER = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES, DROP, CREATE VIEW"
)
_numbers = itertools.count()


def drifts(table: str = "vote", item: str = "item_id") -> str:
    """Items whose counts are not their rows: one statement, so of one instant."""
    return (
        f"SELECT c.item, c.n, COALESCE((SELECT SUM(val) FROM {table} WHERE {item} = c.item), 0) + "
        f"COALESCE((SELECT SUM(val) FROM {table}_anonymous WHERE {item} = c.item), 0) AS votes"
        f" FROM {table}_count AS c HAVING n <> votes"
    )


DRIFTS = drifts()


class MariaDbSide:
    """A database of MariaDB or MySQL: votes over it, and sessions of others."""

    def __init__(self, server: MariaDbServer, database: str) -> None:
        self.server = server
        self.database = database
        self.url = server.url(database)

    def votes(self, strategy: Any = "batched", user: str = "root", **options: Any) -> Votes:
        return open_votes(self.server.url(self.database, user=user), strategy, **options)

    def new(self, strategy: Any = "batched", **options: Any) -> hotcount.Votes:
        """With tables and items."""
        return make_votes(self.url, strategy, **options)

    def made(self, form: Any, strategy: Any = "batched") -> hotcount.Votes:
        """With triggers of that form, and a few votes."""
        votes = self.votes(strategy)
        votes.create_tables(outside_writes=form)
        votes.add_items(ITEMS)
        votes.cast_many([1] * 4 + [2] * 2, range(1, 7))
        return votes

    def account(self, limits: str = "", *, rights: str = "ALL") -> str:
        """The name of a new one, with these rights here."""
        user = f"u{next(_numbers)}_{self.database}"
        self.run(f"CREATE USER {user}@localhost {limits}")
        self.grant(user, rights)
        return user

    def grant(self, user: str, rights: str) -> None:
        self.run(f"GRANT {rights} ON {self.database}.* TO {user}@localhost")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        for statement in statements:
            rows = self.server.execute(statement, database=self.database)
        return rows

    def triggers(self) -> set[str]:
        return {row[0] for row in self.run("SHOW TRIGGERS")}

    def sessions(self) -> list[int]:
        return self.server.sessions(self.database)

    @contextmanager
    def session(self) -> Iterator[tuple[Any, Any]]:
        with closing(self.server.connect(self.database)) as session, session.cursor() as cursor:
            yield session, cursor

    @contextmanager
    def held(self, sql: str) -> Iterator[Any]:
        """What a locking statement locks, until the block ends."""
        with self.session() as (session, cursor):
            cursor.execute(sql)
            yield session
            session.rollback()

    def lock_waits(self) -> int:
        """How many transactions of this database wait for a lock."""
        # innodb_trx shows a copy, which InnoDB renews only when nobody has read it for 0.1 s.
        time.sleep(0.11)
        ((number,),) = self.run(
            "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            " AND trx_mysql_thread_id IN"
            f" (SELECT id FROM information_schema.processlist WHERE db = '{self.database}')"
        )
        return int(number)


def counts(votes: hotcount.Votes) -> list[int]:
    return list(map(int, votes.count_many(ITEMS, consistency="exact")))
