"""A MariaDB that is told not to be strict shortens and clamps what a column does not take.

An id so changed would be a vote of somebody else's, or for another item: ours are refused instead,
whatever the server's default is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import cast_vote, increment

from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BothSides

pytestmark = pytest.mark.server

LOOSE = ["", "NO_ENGINE_SUBSTITUTION", "ANSI_QUOTES,PIPES_AS_CONCAT"]


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDbServer]:
    with new_server(config=("--sql-mode=",)).started() as server:
        yield server


@pytest.fixture
def sides(server: MariaDbServer) -> Iterator[BothSides]:
    name = server.create_database()
    url = server.url(name)
    engine = sa.create_engine(
        f"mysql+pymysql://root@/{name}?unix_socket={server.socket}&charset=utf8mb4"
    )
    sides = BothSides("mariadb", hotcount.Database(url, timeout=20), engine, url)
    # Columns that take less than hotcount's own.
    for statement in (
        "CREATE TABLE item (id VARCHAR(5) PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE vote (item_id VARCHAR(5) NOT NULL, user_id INT NOT NULL, "
        "val BIGINT NOT NULL, prev BIGINT NOT NULL DEFAULT 0, version BIGINT, "
        "PRIMARY KEY (item_id, user_id))",
        "CREATE TABLE post_counts (name VARCHAR(5) NOT NULL, slot INT NOT NULL, n TINYINT, "
        "PRIMARY KEY (name, slot))",
    ):
        server.execute(statement, database=name)
    yield sides
    sides.close()
    server.leave_database(name)


WORDS: dict[str, Any] = {
    "items": ["abcde"],
    "item_type": str,
    "user_type": int,
    "missing_items": "create",
}


def make_counter(sides: BothSides) -> hotcount.SlottedCounter:
    return hotcount.SlottedCounter(
        sides.database, table="post_counts", key_column="name", count_column="n", slots=1
    )


LARGEST_INT = 2**31 - 1


def look(sides: BothSides) -> list[Any]:
    with sides.engine.connect() as connection:
        return [
            tuple(row)
            for table in ("item", "vote", "post_counts")
            for row in connection.exec_driver_sql(f"SELECT * FROM {table}")
        ]


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
def test_a_value_that_a_column_does_not_take_is_refused_and_not_changed(
    sides: BothSides, strategy: str
) -> None:
    votes = make_votes(sides, strategy, **WORDS)
    before = look(sides)
    for item, user in (("abcdef", 1), ("abcde", 2**31), ("abcde", -(2**40))):
        with pytest.raises(hotcount.DatabaseError, match=re.escape(str(user))) as refused:
            votes.cast(item, user)
        assert refused.value.code in ("1406", "1264")
    assert look(sides) == before
    with pytest.raises(hotcount.DatabaseError):
        votes.add_items(["abcdef"])
    assert look(sides) == before
    assert votes.cast("abcde", LARGEST_INT).changed
    assert int(votes.count("abcde")) == 1


def test_a_counters_key_and_amount_are_refused_and_not_changed(sides: BothSides) -> None:
    counter = make_counter(sides)
    counter.add("abcde", 100)
    for key, n in (("abcdef", 1), ("abcde", 100)):
        with pytest.raises((hotcount.DatabaseError, hotcount.CounterOverflowError)):
            counter.add(key, n)
    assert counter.get("abcde") == 100


@pytest.mark.parametrize("mode", LOOSE)
@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
def test_in_the_callers_session_too_and_its_mode_is_put_back(
    sides: BothSides, strategy: str, mode: str
) -> None:
    votes = make_votes(sides, strategy, **WORDS)
    counter = make_counter(sides)
    counter.add("abcde", 100)
    before = look(sides)

    def refused(call: Callable[[], object], *errors: type[Exception]) -> None:
        with pytest.raises((sa.exc.DBAPIError, *errors)):
            call()

    with sides.engine.connect() as connection:
        connection.execute(sa.text("SET SESSION sql_mode = :mode"), {"mode": mode})
        refused(lambda: cast_vote(connection, votes, "abcdef", 1))
        refused(lambda: cast_vote(connection, votes, "abcde", 2**31))
        refused(lambda: increment(connection, counter, "abcdef"))
        refused(lambda: increment(connection, counter, "abcde", 100), hotcount.CounterOverflowError)
        connection.commit()
        assert look(sides) == before
        assert cast_vote(connection, votes, "abcde", LARGEST_INT).changed
        increment(connection, counter, "abcde", 1)
        found = connection.exec_driver_sql("SELECT @@sql_mode").scalar_one()
        assert set(found.split(",")) == set(mode.split(","))
        connection.commit()
    votes.flush()
    assert int(votes.count("abcde")) == 1
    assert counter.get("abcde") == 101
