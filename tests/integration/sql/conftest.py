"""Each test's own database, by kinds of server, and the strategies that need no cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.mariadb_server import MariaDbServer
from tests.support.mariadb_votes import MariaDbSide
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import STRATEGIES
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def postgres(postgres_database: PostgresDatabase) -> PostgresDatabase:
    return postgres_database


@pytest.fixture
def maria(mariadb_server: MariaDbServer, mariadb_database: str) -> MariaDbSide:
    return MariaDbSide(mariadb_server, mariadb_database)


@pytest.fixture(params=BACKENDS[1:])
def server(request: pytest.FixtureRequest, database_path: Path) -> Iterator[BothSides]:
    """A server's database, and an engine of SQLAlchemy's over it."""
    with closing(both_sides(request, request.param, database_path)) as sides:
        yield sides
