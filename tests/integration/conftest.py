"""What tests of the votes' journal run on."""

from __future__ import annotations

import pytest

from tests.journal_side import JournalSide
from tests.mariadb_server import MariaDbServer
from tests.servers import PostgresServer


@pytest.fixture(params=["postgresql", "mariadb"])
def side(request: pytest.FixtureRequest) -> JournalSide:
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return JournalSide(postgres=server.create_database())
    maria: MariaDbServer = request.getfixturevalue("mariadb_server")
    return JournalSide(mariadb=(maria, request.getfixturevalue("mariadb_database")))
