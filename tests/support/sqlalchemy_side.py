"""One database from two sides: hotcount's own connections, and an engine of SQLAlchemy's."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresDatabase

BACKENDS = [
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgresql", id="postgresql", marks=pytest.mark.server),
    pytest.param("mariadb", id="mariadb", marks=pytest.mark.server),
]


@dataclass
class BothSides:
    dialect: str
    database: hotcount.Database
    engine: sa.Engine
    url: str

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """In one transaction of the application's; the last one's rows."""
        rows: list[tuple[Any, ...]] = []
        with self.engine.begin() as connection:
            for statement in statements:
                result = connection.exec_driver_sql(statement)
                rows = [tuple(row) for row in result] if result.returns_rows else []
        return rows

    def close(self) -> None:
        self.engine.dispose()
        self.database.close()


def both_sides(request: pytest.FixtureRequest, backend: str, path: Path) -> BothSides:
    if backend == "sqlite":
        url = f"sqlite:///{path}"
        engine = sa.create_engine(url, connect_args={"timeout": 20})
    elif backend == "postgresql":
        postgres: PostgresDatabase = request.getfixturevalue("postgres_database")
        url = postgres.url
        engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    else:
        maria: MariaDbServer = request.getfixturevalue("mariadb_server")
        name = request.getfixturevalue("mariadb_database")
        url = maria.url(name)
        engine = sa.create_engine(
            f"mysql+pymysql://root@/{name}?unix_socket={maria.socket}&charset=utf8mb4"
        )
    return BothSides(backend, hotcount.Database(url, timeout=20), engine, url)


def until_it_commits(work: Callable[[], None]) -> None:
    """Runs a transaction again where the database gives it up, as its owner has to."""
    while True:
        try:
            return work()
        except sa.exc.OperationalError as error:
            state = getattr(error.orig, "sqlstate", None)
            number = error.orig.args[0] if error.orig is not None else None
            if state not in ("40P01", "40001") and number != 1213:
                raise
