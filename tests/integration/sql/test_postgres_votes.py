"""Votes on PostgreSQL: many at once, drifts, and tables of the application's own."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import hotcount
import pytest

from tests.support.servers import PostgresDatabase, RedisServer, keys_of
from tests.support.sql_votes import make_votes, open_votes
from tests.support.together import together


def test_tables_are_created_by_many_at_once(postgres: PostgresDatabase, strategy: str) -> None:
    def create(index: int) -> None:
        # A timeout of its own makes it a database of its own, as in another process.
        open_votes(postgres, strategy, timeout=20 + index / 10).create_tables()

    together(create, 8)


def test_reconcile_mends_a_drift_while_votes_go_on(
    postgres: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres, strategy)
    votes.cast_many([1] * 10, list(range(10)))
    votes.flush()  # So that there is a cell.
    table, count = ("item", "vote_count") if strategy == "naive" else ("vote_cell", "n")
    postgres.psql(f"UPDATE {table} SET {count} = {count} - 5 WHERE {count} > 0")
    done = threading.Event()
    seen: list[int] = []

    def work(index: int) -> int:
        if index == 0:
            while not done.is_set():
                seen.append(int(votes.count(1)))
            return 0
        if index == 1:
            found = votes.reconcile()
            # And a second time, beside the first or after it, adds nothing.
            votes.reconcile()
            return len(found)
        if index == 2:
            return len(votes.reconcile([1]))
        for user in range(50):
            votes.cast(1, 1000 * index + user)
        if index == 3:
            done.set()
        return 0

    found = sum(together(work, 6))
    assert found == 1
    assert int(votes.count(1)) == 160
    assert seen == sorted(seen)
    votes.flush()
    assert votes.reconcile(dry_run=True) == []
    assert postgres.psql("SELECT vote_count FROM item WHERE id = 1") == "160"


@pytest.mark.parametrize("kind", [int, str, uuid.UUID])
def test_votes_are_found_by_users_of_each_type(postgres: PostgresDatabase, kind: Any) -> None:
    votes = make_votes(postgres, user_type=kind)
    me, other = (uuid.UUID(int=1), uuid.UUID(int=2)) if kind is uuid.UUID else (kind(1), kind(2))
    votes.cast_many([1, 2, 1], [me, me, other], [4, -1, 1])
    assert list(votes.get_many([2, 1, 99], me)) == [-1, 4, 0]
    assert list(votes.get_many([2, 1], other)) == [0, 1]


def test_more_statements_than_a_connection_keeps_are_all_answered(
    postgres: PostgresDatabase,
) -> None:
    make_votes(postgres)
    database = hotcount.Database(postgres.url)
    for user in range(150):
        votes = hotcount.Votes(database, None, "naive")
        assert votes.cast(1, user).changed
        assert not votes.cast(1, user).changed
    assert int(votes.count(1)) == 150


def make_items(database: PostgresDatabase, collation: str) -> None:
    database.psql(
        "CREATE COLLATION own (provider = icu, locale = 'de');"
        "CREATE COLLATION same_case (provider = icu, locale = 'und-u-ks-level2',"
        " deterministic = false);"
        f"CREATE TABLE item (id text COLLATE {collation} PRIMARY KEY, vote_count bigint)"
    )


def text_votes(database: PostgresDatabase, strategy: str) -> hotcount.Votes:
    return open_votes(database, strategy, item_type=str, fold_interval=3600)


@pytest.mark.parametrize(
    ("users", "streams"),
    [("short", 16), ("char(9)", 1), ("padded", 1), ("citext", 1), ("cased", 1)],
)
def test_votes_have_one_stream_if_the_type_of_ids_or_of_its_domain_takes_two_for_one(
    postgres: PostgresDatabase, redis_server: RedisServer, users: str, streams: int
) -> None:
    postgres.psql(
        "CREATE EXTENSION IF NOT EXISTS citext SCHEMA pg_catalog;"
        "CREATE DOMAIN short AS varchar(9);"
        "CREATE DOMAIN padded_once AS char(9); CREATE DOMAIN padded AS padded_once;"
        "CREATE DOMAIN cased AS citext CHECK (value <> '')"
    )
    with redis_server.redis(timeout=20, prefix=f"streams {users}:") as redis:
        votes = hotcount.Votes(postgres.url, redis, "write_behind", item_type=str, user_type=str)
        votes.create_tables()
        # It refuses such columns; an application may change them later.
        postgres.psql(
            f"DROP VIEW IF EXISTS vote_count, vote_live;ALTER TABLE vote ALTER user_id TYPE {users}"
        )
        items = [f"item {item}" for item in range(200)]
        votes.add_items(items)
        votes.cast_many(items, ["u"] * len(items))
        assert len(keys_of(redis, "waiting:*")) == streams


@pytest.mark.parametrize("collation", ["own", '"POSIX"', '"C"', '"default"'])
def test_ids_of_any_deterministic_collation_are_counted_folded_and_reconciled(
    postgres: PostgresDatabase, strategy: str, collation: str
) -> None:
    make_items(postgres, collation)
    votes = text_votes(postgres, strategy)
    votes.create_tables()
    votes.create_tables()
    votes.add_items(["a", "A", "é"])
    votes.cast("a", 1)
    votes.cast_many(["A", "a", "é", "A"], [1, 2, 1, 2])
    postgres.psql("INSERT INTO vote (item_id, user_id, val) VALUES ('A', 9, 1)")
    assert [drift.item for drift in votes.reconcile()] == ["A"]
    assert votes.flush(20).pending == 0
    assert [int(n) for n in votes.count_many(["a", "A", "é"])] == [2, 3, 1]
    shown = postgres.psql('SELECT vote_count FROM item ORDER BY id COLLATE "C"')
    assert shown.split() == ["3", "2", "1"]
    assert votes.reconcile() == []


def test_a_collation_by_which_different_ids_are_one_is_refused(
    postgres: PostgresDatabase, strategy: str
) -> None:
    make_items(postgres, "same_case")
    votes = text_votes(postgres, strategy)
    with pytest.raises(hotcount.ConfigError, match=r"item\.id .*nondeterministic .*same_case"):
        votes.create_tables()
    assert postgres.psql("SELECT to_regclass('vote') IS NULL") == "t"


def test_tables_of_a_printed_schema_with_another_collation_are_refused(
    postgres: PostgresDatabase,
) -> None:
    make_items(postgres, "own")
    votes = text_votes(postgres, "batched")
    postgres.psql(votes.schema())
    with pytest.raises(hotcount.ConfigError, match=r"item\.id and vote\.item_id .*own.*\"C\""):
        votes.create_tables()
