"""Tables that no statement of ours makes hold votes: named, before anything is changed."""

from __future__ import annotations

import uuid
from pathlib import Path

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.likes import LIKES, like, make_likes, rows, run, words
from tests.support.sql_scripts import run_script
from tests.support.sqlalchemy_side import BothSides

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
        (
            "version {int}",
            "version {int}, kind VARCHAR(9) NOT NULL DEFAULT 'like', UNIQUE (user_id, kind)",
            r"unique key over user_id, kind, by which the vote for one item would replace",
        ),
        (
            "version {int}",
            "version {int}, code VARCHAR(9) NOT NULL DEFAULT '' UNIQUE",
            r"unique key over code, by which the vote for one item would replace",
        ),
        (
            "version {int}",
            "version {int}, made TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, "
            "UNIQUE (user_id, made)",
            r"unique key over user_id, made, by which the vote for one item would replace",
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


def make_trigger(sides: BothSides, name: str, body: str, *, on: str) -> None:
    """A trigger of blog_like, AFTER each row; `on`: INSERT or UPDATE."""
    if sides.dialect == "postgresql":
        run(
            sides,
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {body}; RETURN NULL; END $$",
            f"CREATE TRIGGER {name} AFTER {on} ON blog_like FOR EACH ROW EXECUTE FUNCTION {name}()",
        )
    elif sides.dialect == "mariadb":
        run(sides, f"CREATE TRIGGER {name} AFTER {on} ON blog_like FOR EACH ROW {body}")
    else:
        run(sides, f"CREATE TRIGGER {name} AFTER {on} ON blog_like BEGIN {body}; END")


def add_values(sides: BothSides, more: str = "") -> None:
    number = words(sides)["int"]
    run(sides, f"ALTER TABLE blog_like ADD val {number} NOT NULL DEFAULT 1{more}")


# -- triggers and checks, which a script would not meet --------------------------


def test_a_trigger_that_rewrites_votes_is_found_before_the_script_counts(sides: BothSides) -> None:
    make_likes(sides)
    add_values(sides)
    if sides.dialect == "sqlite":
        run(
            sides,
            "CREATE TRIGGER r AFTER UPDATE OF val ON blog_like WHEN NEW.val <> 7 "
            "BEGIN UPDATE blog_like SET val = 7 WHERE id = NEW.id; END",
        )
    elif sides.dialect == "mariadb":
        run(sides, "CREATE TRIGGER r BEFORE UPDATE ON blog_like FOR EACH ROW SET NEW.val = 7")
    else:
        run(
            sides,
            "CREATE FUNCTION r() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.val := 7; RETURN NEW; END $$",
            "CREATE TRIGGER r BEFORE UPDATE ON blog_like FOR EACH ROW EXECUTE FUNCTION r()",
        )
    votes = hotcount.Votes(sides.database, **LIKES)
    script = votes.migration()
    assert "triggers or checks" in script
    run_script(sides, script)
    with pytest.raises(hotcount.ConfigError, match=r"trigger of table blog_like.*val has 7"):
        votes.migration()
    with pytest.raises(hotcount.ConfigError, match="trigger of table blog_like"):
        votes.create_tables()
    assert rows(sides, "SELECT DISTINCT val FROM blog_like") == [(1,)]
    run(sides, "DROP TRIGGER r" + (" ON blog_like" if sides.dialect == "postgresql" else ""))
    run_script(sides, votes.migration())
    assert [int(n) for n in votes.count_many([1, 2, 3])] == [3, 1, 0]


@pytest.mark.parametrize("strategy", ["batched", "naive"])
def test_a_trigger_that_counts_votes_too_is_refused_and_one_that_logs_is_not(
    sides: BothSides, strategy: str
) -> None:
    make_likes(sides)
    w = words(sides)
    run(
        sides,
        f"ALTER TABLE blog_post ADD vote_count {w['int']} NOT NULL DEFAULT 0",
        f"CREATE TABLE blog_log (id {w['serial']}, post {w['int']})",
    )
    make_trigger(sides, "logs", "INSERT INTO blog_log (post) VALUES (NEW.post_id)", on="INSERT")
    more = "UPDATE blog_post SET vote_count = vote_count + 1 WHERE id = NEW.post_id"
    make_trigger(sides, "counts", more, on="INSERT")
    votes = hotcount.Votes(sides.database, strategy=strategy, **LIKES)  # type: ignore[arg-type]
    run_script(sides, votes.migration())
    with pytest.raises(hotcount.ConfigError, match=r"changes blog_post.vote_count.*counted twice"):
        votes.migration()
    assert rows(sides, "SELECT post FROM blog_log") == []
    table = " ON blog_like" if sides.dialect == "postgresql" else ""
    run(sides, f"DROP TRIGGER counts{table}")
    run_script(sides, votes.migration())
    assert votes.migration() == ""
    assert votes.cast(3, 9).changed
    assert votes.cast(1, 9).changed
    assert votes.retract(1, 9).changed
    votes.flush()
    assert rows(sides, "SELECT id, vote_count FROM blog_post ORDER BY id") == [
        (1, 3),
        (2, 1),
        (3, 1),
    ]
    assert votes.reconcile(dry_run=True) == []


def test_a_check_that_forbids_retracted_votes_is_refused(sides: BothSides) -> None:
    make_likes(sides)
    add_values(sides, " CHECK (val IN (-1, 1))")
    votes = hotcount.Votes(sides.database, **LIKES)
    run_script(sides, votes.migration())
    for ask in (votes.migration, votes.create_tables):
        with pytest.raises(hotcount.ConfigError, match=r"blog_like takes no vote of 0"):
            ask()


# -- what a script left undone ----------------------------------------------------


def test_tables_that_lost_what_votes_need_are_refused_at_the_start(sides: BothSides) -> None:
    """As after a client that goes on when a statement fails, or the application's next release."""
    make_likes(sides, unique="")
    votes = hotcount.Votes(sides.database, **LIKES)
    run_script(sides, votes.migration())
    votes.create_tables()
    if sides.dialect == "postgresql":
        run(sides, "ALTER TABLE blog_like DROP CONSTRAINT blog_like_one_vote")
    elif sides.dialect == "mariadb":
        run(
            sides,
            "ALTER TABLE blog_like ADD INDEX by_post (post_id)",
            "ALTER TABLE blog_like DROP INDEX blog_like_one_vote",
        )
    else:
        run(sides, "DROP INDEX blog_like_one_vote")
    with pytest.raises(hotcount.ConfigError, match=r"lack a unique key over post_id and user_id"):
        votes.create_tables()
    run_script(sides, votes.migration())
    votes.create_tables()
    assert [int(n) for n in votes.count_many([1, 2, 3])] == [3, 1, 0]


def test_likes_of_a_table_that_is_not_there_are_refused(sides: BothSides) -> None:
    make_likes(sides)
    votes = hotcount.Votes(sides.database, **{**LIKES, "item_table": "blog_psot"})
    for ask in (votes.migration, votes.create_tables):
        with pytest.raises(hotcount.ConfigError, match=r"no table blog_psot.*item_table="):
            ask()


@pytest.mark.parametrize("suffix", ["count", "meta", "cell", "anonymous"])
def test_a_table_that_has_a_name_of_ours_is_named(sides: BothSides, suffix: str) -> None:
    make_likes(sides)
    run(sides, f"CREATE TABLE blog_like_{suffix} (post_id {words(sides)['int']})")
    with pytest.raises(hotcount.ConfigError, match=rf"blog_like_{suffix} that is not hotcount's"):
        hotcount.Votes(sides.database, **LIKES).migration()


def test_uuids_without_dashes_are_refused(database_path: Path) -> None:
    """As Django and SQLAlchemy store them on SQLite."""
    with hotcount.Database(f"sqlite:///{database_path}") as database:
        sides = BothSides("sqlite", database, sa.create_engine(f"sqlite:///{database_path}"), "")
        run(
            sides,
            "CREATE TABLE item (id CHAR(32) NOT NULL PRIMARY KEY)",
            "CREATE TABLE vote (item_id CHAR(32) NOT NULL, user_id INTEGER NOT NULL)",
        )
        with pytest.raises(hotcount.ConfigError, match=r"column id of table item is of type CHAR"):
            hotcount.Votes(database, item_type=uuid.UUID).migration()
        sides.engine.dispose()
