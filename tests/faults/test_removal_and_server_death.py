"""remove_item(), erase_user() and prune() on a server that is killed in the middle: whole pages are
left, counts agree with votes, and the next call goes on.
"""

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import hotcount
import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.servers import PostgresServer

pytestmark = [pytest.mark.server, pytest.mark.long]

MANY = 8_000  # Of fewer MariaDB reads the whole table, and waits for the held vote at once.
HELD = 1_300  # The vote that the call waits for, in its third page.

CALLS = {"remove_item": "item_id = 1", "erase_user": "user_id = 1", "prune": "val = 0"}


def server_named(name: str) -> PostgresServer | MariaDbServer:
    return PostgresServer() if name == "postgres" else new_server()


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def mortal(request: pytest.FixtureRequest) -> Iterator[PostgresServer | MariaDbServer]:
    server = server_named(request.param)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def session(server: PostgresServer | MariaDbServer, database: str) -> Any:
    if isinstance(server, MariaDbServer):
        return server.connect(database)
    return psycopg.connect(server.url())


def asked(server: PostgresServer | MariaDbServer, database: str, question: str) -> int:
    with closing(session(server, database)) as asking, asking.cursor() as cursor:
        cursor.execute(question)
        (answer,) = cursor.fetchone()
    return int(answer)


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])
@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_is_killed_in_a_removal_leaves_whole_pages_and_counts_that_are_right(
    call: str, strategy: Any, mortal: PostgresServer | MariaDbServer
) -> None:
    table = f"{call}_{strategy}_vote"
    name = mortal.create_database() if isinstance(mortal, MariaDbServer) else ""
    url = mortal.url(name) if isinstance(mortal, MariaDbServer) else mortal.url()
    with (
        hotcount.Database(url, timeout=30) as database,
        hotcount.Votes(
            database, strategy=strategy, item_table=f"{call}_{strategy}_item", vote_table=table
        ) as votes,
    ):
        votes.create_tables()
        ids = list(range(1, MANY + 1))
        votes.add_items(ids)
        items, users = (ids, [1] * MANY) if call == "erase_user" else ([1] * MANY, ids)
        votes.cast_many(items, users)
        votes.cast(2, 5)
        if call == "prune":
            votes.cast_many(items, users, 0)

        def remove() -> int:
            if call == "remove_item":
                return votes.remove_item(1)
            return votes.erase_user(1) if call == "erase_user" else votes.prune(1)

        def run() -> None:
            with suppress(hotcount.HotcountError):
                remove()

        left = f"SELECT COUNT(*) FROM {table} WHERE {CALLS[call]}"
        item, user = (HELD, 1) if call == "erase_user" else (1, HELD)
        holder = session(mortal, name)
        with holder.cursor() as cursor:
            cursor.execute(
                f"SELECT val FROM {table} WHERE item_id = {item} AND user_id = {user} FOR UPDATE"
            )
        removal = threading.Thread(target=run)
        removal.start()
        eventually(lambda: asked(mortal, name, left) <= MANY - 500)
        mortal.kill()
        with suppress(Exception):
            holder.close()
        mortal.start()
        removal.join(40)
        assert not removal.is_alive()
        assert votes.reconcile(dry_run=True, timeout=30) == []
        remove()
        assert asked(mortal, name, left) == 0
        assert votes.reconcile(dry_run=True, timeout=30) == []
        assert [int(count) for count in votes.count_many([1, 2])] == [0, 1]
