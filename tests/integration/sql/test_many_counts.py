"""Calls with many items: few statements, whatever the strategy, and each item's own count."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import hotcount
import pytest

from tests.support.listener import Proxy
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer, RedisServer

pytestmark = pytest.mark.server

ITEMS = 3_000


class CountingProxy(Proxy):
    """Counts what clients send; a statement is one or two pieces."""

    def __init__(self, server: Path) -> None:
        self.pieces = 0
        super().__init__(server)

    def from_client(self, client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        self.pieces += 1
        upstream.sendall(data)


@pytest.fixture(params=["postgresql", "mariadb"])
def database_and_link(request: pytest.FixtureRequest) -> Iterator[tuple[str, CountingProxy, str]]:
    """A URL, and a link that counts with the URL through it."""
    if request.param == "mariadb":
        maria: MariaDbServer = request.getfixturevalue("mariadb_server")
        name = request.getfixturevalue("mariadb_database")
        with CountingProxy(maria.socket) as link:
            yield maria.url(name), link, f"mariadb://root@127.0.0.1:{link.port}/{name}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    database = server.create_database()
    search = quote(f"-csearch_path={database.schema}")
    with CountingProxy(server.folder / ".s.PGSQL.5432") as link:
        login = f"{server.superuser}@127.0.0.1:{link.port}"
        yield database.url, link, f"postgresql://{login}/postgres?options={search}"


@pytest.mark.parametrize("kind", ["batched", "naive", "copies", "cached"])
def test_many_counts_take_few_statements(
    database_and_link: tuple[str, CountingProxy, str], kind: str, own_redis: RedisServer
) -> None:
    direct, link, through = database_and_link
    cache = own_redis.url if kind in ("copies", "cached") else None
    strategy = "batched" if kind == "copies" else kind
    with (
        hotcount.Database(direct, timeout=30) as near,
        hotcount.Database(through, timeout=30) as far,
    ):
        writer = hotcount.Votes(near, cache, strategy, foreign_key=False)  # type: ignore[arg-type]
        writer.create_tables(timeout=30)
        writer.add_items(range(1, ITEMS + 1))
        batched = hotcount.Votes(near, foreign_key=False)
        if kind in ("batched", "copies"):
            batched.cast_many(range(1, ITEMS + 1), [1] * ITEMS)
            batched.flush(30)
            batched.cast_many(range(1, ITEMS + 1, 3), [2] * (ITEMS // 3))
            if kind == "copies":
                batched.flush(30)
        else:
            writer.cast_many([1, 4, 7, ITEMS - 2], [1] * 4)
        items = [*range(ITEMS, 0, -1), 7, ITEMS + 5]
        expected = {ITEMS + 5: 0}
        for item in range(1, ITEMS + 1):
            if strategy == "batched":
                expected[item] = 2 if item % 3 == 1 else 1
            else:
                expected[item] = 1 if item in (1, 4, 7, ITEMS - 2) else 0
        reader = hotcount.Votes(far, cache, strategy, foreign_key=False)  # type: ignore[arg-type]
        reader.count(1)  # Connections are made, and what is known of the tables is read.
        for consistency in ("cached", "exact"):
            link.pieces = 0
            found = reader.count_many(items, consistency=consistency)
            assert list(found.value) == [expected[item] for item in items]
            assert link.pieces <= 120


def test_many_new_items_take_few_statements(
    database_and_link: tuple[str, CountingProxy, str],
) -> None:
    _, link, through = database_and_link
    with hotcount.Database(through, timeout=30) as far:
        votes = hotcount.Votes(far, missing_items="create")
        votes.create_tables(timeout=30)
        votes.add_items([5, ITEMS])
        link.pieces = 0
        votes.add_items([*range(ITEMS, 0, -1), 7])
        assert link.pieces <= 60
        assert list(votes.count_many(range(1, ITEMS + 2)).value) == [0] * (ITEMS + 1)
        link.pieces = 0
        new = range(ITEMS + 1, ITEMS + 501)
        votes.cast_many(new, [1] * len(new), timeout=30)
        assert link.pieces <= 120
        assert list(votes.count_many([*new, 1]).value) == [*[1] * len(new), 0]


def test_counts_of_ids_that_the_column_spells_in_another_way(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    mariadb_server.execute(
        "CREATE TABLE item (id VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT "
        "NULL PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        database=mariadb_database,
    )
    with hotcount.Database(mariadb_server.url(mariadb_database), timeout=30) as database:
        votes = hotcount.Votes(database, item_type=str)
        votes.create_tables(timeout=30)
        names = [f"Post {number}" for number in range(200)]
        votes.add_items(names)
        votes.cast_many(names, [1] * 200, timeout=30)
        votes.flush(30)
        votes.cast_many([name.lower() for name in names[::2]], [2] * 100, timeout=30)
        votes.add_items(["POST 1", "new"])
        asked = [*names, "none", "POST 0", "new"]
        assert list(votes.count_many(asked).value) == [*[2, 1] * 100, 0, 2, 0]
        assert votes.reconcile(dry_run=True) == []
        mariadb_server.execute(
            "INSERT INTO vote (item_id, user_id, val, prev) VALUES ('POST 7', 9, 1, 0)",
            database=mariadb_database,
        )
        assert votes.reconcile(timeout=30) == [hotcount.Drift("Post 7", 1, 2)]
        assert votes.reconcile(timeout=30) == []
        assert int(votes.count("post 7")) == 2
