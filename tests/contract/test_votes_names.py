"""Votes over tables that have names of their own: every column, a schema, no column for counts."""

import uuid
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import cast_vote, retract_vote, vote_count

from tests.support.likes import make_items, words
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides
from tests.support.votes_strategies import is_consistent, make_votes, over_memory

NAMES = {
    "vote_item": "post",
    "vote_user": "who; --",
    "vote_value": 'val"ue',
    "vote_previous": "before",
    "vote_version": "select",
}


def play(votes: hotcount.Votes) -> None:
    """Item 1 ends with 4 and item 2 with 1."""
    votes.add_items([1, 2])
    assert votes.cast(1, 7).changed
    assert not votes.cast(1, 7).changed
    assert votes.cast(1, 8, 5, version=3).value == 5
    assert votes.cast(1, 8, 9, version=2).value == 5
    assert votes.cast(1, 8, 3, version=4).previous == 5
    assert list(votes.cast_many([1, 2, 2, 1], [9, 7, 7, 9], [2, 1, 1, 0]).previous) == [0, 0, 1, 2]
    assert votes.cast(2, None, op_id="one").changed
    assert not votes.cast(2, None, op_id="one").changed
    assert votes.retract(2, 7).previous == 1
    assert [int(count) for count in votes.count_many([1, 2])] == [4, 1]


@pytest.mark.cast_writes
def test_every_column_may_have_its_own_name(database: hotcount.Database, strategy: str) -> None:
    votes = make_votes(database, strategy, item_id="no", item_count="likes", **NAMES)
    play(votes)
    assert is_consistent(votes)
    assert (votes.vote_value, votes.vote_previous, votes.vote_version) == (
        'val"ue',
        "before",
        "select",
    )
    assert "vote_version='select'" in repr(votes)


def test_a_transaction_of_ones_own_uses_the_same_names(sides: BothSides) -> None:
    for strategy in ("naive", "slotted", "batched"):
        table = {"item_table": f"{strategy}_item", "vote_table": f"{strategy}_vote"}
        votes = hotcount.Votes(sides.database, strategy=strategy, **table, **NAMES)  # type: ignore[arg-type]
        votes.create_tables()
        votes.add_items([1])
        with sides.engine.begin() as connection:
            assert cast_vote(connection, votes, 1, 7, 2).changed
            assert not cast_vote(connection, votes, 1, 7, 2).changed
            assert cast_vote(connection, votes, 1, None, op_id="one").changed
            assert vote_count(connection, votes, 1) == 3
            assert retract_vote(connection, votes, 1, 7).previous == 2
        assert int(votes.count(1)) == 1
        assert is_consistent(votes)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(hotcount.ConfigError, match="vote_previous"):
        hotcount.Votes("sqlite:///:memory:", vote_value="x", vote_previous="x")


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_tables_may_stand_in_schemas(
    request: pytest.FixtureRequest, backend: str, strategy: Any
) -> None:
    sides = both_sides(request, backend, Path())
    here = f"s{uuid.uuid4().hex[:12]}"
    odd = f"{here}.dot"
    with sides.engine.begin() as connection:
        quote = connection.dialect.identifier_preparer.quote_identifier
        for schema in (here, odd):
            connection.exec_driver_sql(f"CREATE SCHEMA {quote(schema)}")
    tables = {"item_table": f"{here}.item", "vote_table": f'"{odd}"."vo.te"'}
    try:
        votes = over_memory(sides.database, strategy, **tables, **NAMES)
        votes.create_tables()
        votes.create_tables()
        # Tables of the same names elsewhere are others.
        other = hotcount.Votes(sides.database, vote_table="vo_te")
        other.create_tables()
        other.add_items([1])
        play(votes)
        assert int(other.count(1)) == 0
        assert is_consistent(votes)
        with sides.engine.begin() as connection:
            assert cast_vote(connection, votes, 1, 77).changed
            view = connection.exec_driver_sql(
                f"SELECT n FROM {quote(odd)}.{quote('vo.te_count')} WHERE item = 1"
            )
            assert int(view.scalar_one()) == 5
        assert int(votes.count(1, consistency="exact")) == 5
        made = set(sa.inspect(sides.engine).get_table_names(odd))
        assert {"vo.te", "vo.te_cell", "vo.te_meta", "vo.te_journal"} <= made
        assert sa.inspect(sides.engine).get_table_names(here) == ["item"]
    finally:
        cascade = " CASCADE" if backend == "postgresql" else ""
        with sides.engine.begin() as connection:
            for schema in (odd, here):
                connection.exec_driver_sql(f"DROP SCHEMA {quote(schema)}{cascade}")
        sides.close()


@pytest.mark.parametrize("text", ["a.b.c", '"a', '"a"b', "a.", ".a", '""', 'a."b".c', 'a."b'])
def test_a_table_name_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(hotcount.ConfigError, match="vote_table"):
        hotcount.Votes("sqlite:///:memory:", vote_table=text)


def test_sqlite_refuses_a_schema_and_takes_a_quoted_name() -> None:
    with pytest.raises(hotcount.ConfigError, match=r"item_table.*schema"):
        hotcount.Votes("sqlite:///:memory:", item_table="app.item")
    votes = hotcount.Votes("sqlite:///:memory:", item_table='"app.item"', vote_table='"a""b.c"')
    votes.create_tables()
    play(votes)


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_items_without_a_count_are_counted_in_cells(sides: BothSides, strategy: Any) -> None:
    make_items(sides, ", title VARCHAR(20)")
    sides.run("INSERT INTO item (id) VALUES (3)")
    votes = hotcount.Votes(sides.database, strategy=strategy, item_count=None)
    votes.create_tables()
    play(votes)
    with sides.engine.begin() as connection:
        assert cast_vote(connection, votes, 3, 1).changed
        assert vote_count(connection, votes, 3) == 1
    votes.flush()
    assert [int(count) for count in votes.count_many([1, 2, 3])] == [4, 1, 1]
    seen = sides.run("SELECT item, n FROM vote_count ORDER BY item")
    assert [(int(item), int(n)) for item, n in seen] == [(1, 4), (2, 1), (3, 1)]
    assert [c["name"] for c in sa.inspect(sides.engine).get_columns("item")] == ["id", "title"]
    sides.run("DELETE FROM vote_cell")
    if sides.dialect == "sqlite" or strategy == "batched":
        drifts = votes.reconcile()
        assert [(d.item, d.counted, d.actual) for d in drifts] == [(1, 0, 4), (2, 0, 1), (3, 0, 1)]
    votes.reconcile()
    votes.flush()
    assert [int(count) for count in votes.count_many([1, 2, 3])] == [4, 1, 1]
    with pytest.raises(hotcount.HotcountError, match="99"):
        votes.cast(99, 1)
    assert is_consistent(votes)


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_a_vote_for_no_item_is_refused(database: hotcount.Database, strategy: Any) -> None:
    votes = hotcount.Votes(
        database, strategy=strategy, item_count=None, foreign_key=False, vote_table="free"
    )
    votes.create_tables()
    votes.add_items([1])
    with pytest.raises(hotcount.IntegrityError, match="99"):
        votes.cast(99, 1)
    casts = votes.cast_many([1, 99, 1], [1, 1, 2], errors="return")
    assert sorted(casts.errors) == [1]
    assert int(votes.count(1)) == 2


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
def test_a_missing_item_is_told_from_a_missing_user(sides: BothSides, strategy: Any) -> None:
    number = words(sides)["int"]
    make_items(sides, ", vote_count {int} DEFAULT 0 NOT NULL")
    sides.run(
        f"CREATE TABLE person (id {number} NOT NULL PRIMARY KEY)",
        "INSERT INTO item VALUES (1, 0)",
        "INSERT INTO person VALUES (7)",
        f"CREATE TABLE vote (item_id {number} NOT NULL, user_id {number} NOT NULL, "
        f"val {number} NOT NULL, prev {number} DEFAULT 0 NOT NULL, version {number}, "
        "PRIMARY KEY (item_id, user_id), FOREIGN KEY (item_id) REFERENCES item (id), "
        "FOREIGN KEY (user_id) REFERENCES person (id))",
    )
    votes = over_memory(sides.database, strategy)
    votes.create_tables()
    casts = votes.cast_many([1, 99, 1], [7, 7, 8], errors="return")
    with pytest.raises(hotcount.IntegrityError) as no_item:
        votes.cast(99, 7)
    with pytest.raises(hotcount.IntegrityError) as no_user:
        votes.cast(1, 8)
    for error, missing, ids in (
        *((each, "item", (99, 7)) for each in (casts.errors[1], no_item.value)),
        *((each, "user", (1, 8)) for each in (casts.errors[2], no_user.value)),
    ):
        assert (error.missing, (error.item, error.user)) == (missing, ids)
        assert ("which does not exist" in str(error) or "item 99" in str(error)) == (
            missing == "item"
        )
        # Whoever votes may read it.
        assert error.server is not None
        for name in (error.server, sides.engine.url.database, sides.engine.url.host):
            assert not name or name not in str(error)
    assert casts.errors.keys() == {1, 2}
    assert votes.reconcile(dry_run=True) == []


def test_a_count_column_may_be_added_later(sides: BothSides) -> None:
    make_items(sides)
    without = hotcount.Votes(sides.database, item_count=None)
    without.create_tables()
    play(without)
    number = words(sides)["int"]
    sides.run(f"ALTER TABLE item ADD vote_count {number} NOT NULL DEFAULT 0")
    votes = hotcount.Votes(sides.database)
    votes.create_tables()
    votes.reconcile()
    votes.flush()
    assert [int(count) for count in votes.count_many([1, 2])] == [4, 1]
    assert sides.run("SELECT vote_count FROM item ORDER BY id") == [(4,), (1,)]


@pytest.mark.parametrize("strategy", ["naive", "cached"])
def test_strategies_that_count_in_the_item_need_the_column(strategy: Any) -> None:
    database = hotcount.Database("sqlite:///:memory:")
    with pytest.raises(hotcount.ConfigError, match=f"item_count.*{strategy}"):
        over_memory(database, strategy, item_count=None)
    with pytest.raises(hotcount.ConfigError, match="item_count"):
        hotcount.Votes("sqlite:///:memory:", item_count="")
