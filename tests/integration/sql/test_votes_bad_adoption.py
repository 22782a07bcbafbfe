"""Tables that no statement of ours makes hold votes: named, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.likes import LIKES, like, make_likes, rows, run, words
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides


@pytest.fixture(params=BACKENDS)
def sides(request: pytest.FixtureRequest, database_path: Path) -> Iterator[BothSides]:
    sides = both_sides(request, request.param, database_path)
    yield sides
    sides.close()


ITEM = "CREATE TABLE item (id {int} NOT NULL PRIMARY KEY, vote_count {int} NOT NULL DEFAULT 0)"
VOTE = "CREATE TABLE vote (item_id {int} NOT NULL, user_id {int} NOT NULL, val {int} NOT NULL, "
VOTE += "prev {int} NOT NULL DEFAULT 0, version {int}, PRIMARY KEY (item_id, user_id))"


@pytest.mark.parametrize(
    ("change", "by", "said"),
    [
        ("val {int} NOT NULL", "val VARCHAR(9) NOT NULL", r"column val of table vote.*vote_value="),
        ("val {int} NOT NULL", "val {int}", r"column val of table vote may be NULL"),
        ("version {int}", "version {int} NOT NULL", r"column version of table vote is NOT NULL"),
        (
            "item_id {int}",
            "item_id VARCHAR(9)",
            r"column item_id of table vote is of type.*item_typ",
        ),
        (
            "user_id {int}",
            "user_id VARCHAR(9)",
            r"column user_id of table vote is of type.*user_ty",
        ),
        (
            "version {int}",
            "version {int}, why VARCHAR(9) NOT NULL",
            r"column why of table vote.*defa",
        ),
        (
            "version {int}",
            "version {int}, UNIQUE (user_id)",
            r"table vote has a unique key over us",
        ),
        (
            "(id {int} NOT NULL PRIMARY KEY",
            "(id {int} NOT NULL",
            r"column id of table item is no key",
        ),
        (
            "vote_count {int}",
            "vote_count VARCHAR(9)",
            r"column vote_count of table item is of type",
        ),
        ("(id {int}", "(no {int}", r"table item has no column id"),
        ("(item_id {int}", "(thing {int}", r"table vote has no column item_id"),
    ],
)
def test_a_table_that_cannot_hold_votes_is_refused_before_anything_changes(
    sides: BothSides, change: str, by: str, said: str
) -> None:
    w = words(sides)
    made = [text.replace(change, by) for text in (ITEM, VOTE)]
    if "thing" in by:
        made[1] = made[1].replace("(item_id, user_id)", "(thing, user_id)")
    run(sides, *(text.replace("{int}", w["int"]) for text in made))
    votes = hotcount.Votes(sides.database, foreign_key=False)
    for ask in (votes.migration, votes.create_tables):
        with pytest.raises(hotcount.ConfigError, match=said) as refused:
            ask()
        assert "Nothing was changed" in str(refused.value)
    assert sorted(sa.inspect(sides.engine).get_table_names()) == ["item", "vote"]


def test_two_likes_of_one_user_are_named(sides: BothSides) -> None:
    make_likes(sides, unique="")
    run(sides, like(2, 1))
    votes = hotcount.Votes(sides.database, **LIKES)
    with pytest.raises(hotcount.ConfigError, match=r"blog_like.*user 2 has 2 for item 1.*delete"):
        votes.migration()


def test_a_trigger_that_rewrites_votes_is_refused_and_another_is_not(sides: BothSides) -> None:
    w = words(sides)
    made = [text.replace("{int}", w["int"]) for text in (ITEM, VOTE)]
    fill = [
        "INSERT INTO item (id) VALUES (1)",
        "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1)",
    ]
    if sides.dialect == "sqlite":
        harmless = "CREATE TRIGGER t AFTER UPDATE ON vote BEGIN SELECT 1; END"
        rewrites = (
            "CREATE TRIGGER r AFTER UPDATE OF val ON vote WHEN NEW.val <> 7 "
            "BEGIN UPDATE vote SET val = 7 WHERE user_id = NEW.user_id; END"
        )
    elif sides.dialect == "mariadb":
        harmless = "CREATE TRIGGER t BEFORE UPDATE ON vote FOR EACH ROW SET @seen = 1"
        rewrites = "CREATE TRIGGER r BEFORE UPDATE ON vote FOR EACH ROW SET NEW.val = 7"
    else:
        body = "RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NEW; END $$"
        harmless, rewrites = "", ""
        fill += [
            f"CREATE FUNCTION t() {body.format('')}",
            f"CREATE FUNCTION r() {body.format('NEW.val := 7;')}",
        ]
        harmless = "CREATE TRIGGER t BEFORE UPDATE ON vote FOR EACH ROW EXECUTE FUNCTION t()"
        rewrites = "CREATE TRIGGER r BEFORE UPDATE ON vote FOR EACH ROW EXECUTE FUNCTION r()"
    run(sides, *made, *fill, rewrites)
    votes = hotcount.Votes(sides.database, foreign_key=False)
    with pytest.raises(hotcount.ConfigError, match=r"trigger of table vote.*column val has 7"):
        votes.create_tables()
    assert sorted(sa.inspect(sides.engine).get_table_names()) == ["item", "vote"]
    assert rows(sides, "SELECT val FROM vote") == [(1,)]
    run(sides, "DROP TRIGGER r" + (" ON vote" if sides.dialect == "postgresql" else ""), harmless)
    votes.create_tables()
    assert votes.cast(1, 1, 2).previous == 1
    assert int(votes.count(1)) == 2


def test_a_view_holds_no_votes(sides: BothSides) -> None:
    w = words(sides)
    run(
        sides,
        ITEM.replace("{int}", w["int"]),
        VOTE.replace("TABLE vote", "TABLE hidden").replace("{int}", w["int"]),
        "CREATE VIEW vote AS SELECT * FROM hidden",
    )
    with pytest.raises(hotcount.ConfigError, match="vote is a view"):
        hotcount.Votes(sides.database).create_tables()


def test_ids_of_two_types_in_one_column_are_named(database_path: Path) -> None:
    with hotcount.Database(f"sqlite:///{database_path}") as database:
        sides = BothSides("sqlite", database, sa.create_engine(f"sqlite:///{database_path}"), "")
        run(
            sides,
            ITEM.replace("{int}", "INTEGER"),
            VOTE.replace("{int}", "INTEGER"),
            "INSERT INTO item (id) VALUES (1)",
            "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1), ('x', 1, 1)",
        )
        with pytest.raises(hotcount.ConfigError, match=r"column item_id of table vote.*'x'"):
            hotcount.Votes(database).create_tables()
        sides.engine.dispose()
