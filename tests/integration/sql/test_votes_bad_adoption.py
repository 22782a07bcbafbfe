"""Tables that no statement of ours makes hold votes: named, before anything is changed."""

from __future__ import annotations

import uuid

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.likes import LIKES, like, make_likes, words
from tests.support.sql_scripts import run_script
from tests.support.sqlalchemy_side import BACKENDS, BothSides

ITEM = "CREATE TABLE item (id {int} NOT NULL PRIMARY KEY, vote_count {int} NOT NULL DEFAULT 0)"
VOTE = "CREATE TABLE vote (item_id {int} NOT NULL, user_id {int} NOT NULL, val {int} NOT NULL, "
VOTE += "prev {int} NOT NULL DEFAULT 0, version {int}, PRIMARY KEY (item_id, user_id))"


OTHER_ITEMS = "by which the vote for one item would replace"


@pytest.mark.parametrize(
    ("change", "by", "said"),
    [
        ("val {int} NOT NULL", "val VARCHAR(9) NOT NULL", r"column val of table vote.*vote_value="),
        ("val {int} NOT NULL", "val {int}", r"column val of table vote may be NULL"),
        ("version {int}", "version {int} NOT NULL", r"column version of table vote is NOT NULL"),
        ("item_id {int}", "item_id VARCHAR(9)", r"column item_id of table vote is of type.*item_t"),
        ("user_id {int}", "user_id VARCHAR(9)", r"column user_id of table vote is of type.*user_t"),
        ("(id {int} NOT NULL PRIMARY KEY", "(id {int} NOT NULL", r"column id of table item is no"),
        (
            "vote_count {int}",
            "vote_count VARCHAR(9)",
            r"column vote_count of table item is of type",
        ),
        ("(id {int}", "(no {int}", r"table item has no column id"),
        ("(item_id {int}", "(thing {int}", r"table vote has no column item_id"),
        *(
            ("version {int}", f"version {{int}}, {more}", said)
            for more, said in (
                ("why VARCHAR(9) NOT NULL", r"column why of table vote.*defa"),
                ("UNIQUE (user_id)", r"table vote has a unique key over us"),
                (
                    "kind VARCHAR(9) NOT NULL DEFAULT 'like', UNIQUE (user_id, kind)",
                    f"unique key over user_id, kind, {OTHER_ITEMS}",
                ),
                (
                    "code VARCHAR(9) NOT NULL DEFAULT '' UNIQUE",
                    f"unique key over code, {OTHER_ITEMS}",
                ),
                (
                    "made TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (user_id, made)",
                    f"unique key over user_id, made, {OTHER_ITEMS}",
                ),
            )
        ),
    ],
)
def test_a_table_that_cannot_hold_votes_is_refused_before_anything_changes(
    sides: BothSides, change: str, by: str, said: str
) -> None:
    w = words(sides)
    made = [text.replace(change, by) for text in (ITEM, VOTE)]
    if "thing" in by:
        made[1] = made[1].replace("(item_id, user_id)", "(thing, user_id)")
    sides.run(*(text.replace("{int}", w["int"]) for text in made))
    votes = hotcount.Votes(sides.database, foreign_key=False)
    for ask in (votes.migration, votes.create_tables):
        with pytest.raises(hotcount.ConfigError, match=said) as refused:
            ask()
        assert "Nothing was changed" in str(refused.value)
    assert sorted(sa.inspect(sides.engine).get_table_names()) == ["item", "vote"]


def test_two_likes_of_one_user_are_named(sides: BothSides) -> None:
    make_likes(sides, unique="")
    sides.run(like(2, 1))
    votes = hotcount.Votes(sides.database, **LIKES)
    with pytest.raises(hotcount.ConfigError, match=r"blog_like.*user 2 has 2 for item 1.*delete"):
        votes.migration()


def rewriting_trigger(sides: BothSides, table: str, value: str = "7") -> None:
    """A trigger `r` that sets each changed value to this one."""
    if sides.dialect == "sqlite":
        sides.run(
            f"CREATE TRIGGER r AFTER UPDATE OF val ON {table} WHEN NEW.val <> {value} "
            f"BEGIN UPDATE {table} SET val = {value} WHERE user_id = NEW.user_id; END"
        )
        return
    act = f"SET NEW.val = {value}"
    if sides.dialect == "postgresql":
        act = "EXECUTE FUNCTION r()"
        sides.run(
            "CREATE OR REPLACE FUNCTION r() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN NEW.val := {value}; RETURN NEW; END $$"
        )
    sides.run(f"CREATE TRIGGER r BEFORE UPDATE ON {table} FOR EACH ROW {act}")


def drop_trigger(sides: BothSides, name: str, table: str) -> None:
    sides.run(f"DROP TRIGGER {name}" + (f" ON {table}" if sides.dialect == "postgresql" else ""))


def test_a_trigger_that_rewrites_votes_is_refused_and_another_is_not(sides: BothSides) -> None:
    sides.run(
        *(text.replace("{int}", words(sides)["int"]) for text in (ITEM, VOTE)),
        "INSERT INTO item (id) VALUES (1)",
        "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1)",
    )
    rewriting_trigger(sides, "vote")
    votes = hotcount.Votes(sides.database, foreign_key=False)
    with pytest.raises(hotcount.ConfigError, match=r"trigger of table vote.*column val has 7"):
        votes.create_tables()
    assert sorted(sa.inspect(sides.engine).get_table_names()) == ["item", "vote"]
    assert sides.run("SELECT val FROM vote") == [(1,)]
    drop_trigger(sides, "r", "vote")
    rewriting_trigger(sides, "vote", "NEW.val")
    votes.create_tables()
    assert votes.cast(1, 1, 2).previous == 1
    assert int(votes.count(1)) == 2


def test_a_view_holds_no_votes(sides: BothSides) -> None:
    w = words(sides)
    sides.run(
        ITEM.replace("{int}", w["int"]),
        VOTE.replace("TABLE vote", "TABLE hidden").replace("{int}", w["int"]),
        "CREATE VIEW vote AS SELECT * FROM hidden",
    )
    with pytest.raises(hotcount.ConfigError, match="vote is a view"):
        hotcount.Votes(sides.database).create_tables()


@pytest.mark.parametrize("sides", BACKENDS[:1], indirect=True)
def test_ids_of_two_types_in_one_column_are_named(sides: BothSides) -> None:
    sides.run(
        ITEM.replace("{int}", "INTEGER"),
        VOTE.replace("{int}", "INTEGER"),
        "INSERT INTO item (id) VALUES (1)",
        "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1), ('x', 1, 1)",
    )
    with pytest.raises(hotcount.ConfigError, match=r"column item_id of table vote.*'x'"):
        hotcount.Votes(sides.database).create_tables()


def make_trigger(sides: BothSides, name: str, body: str, *, on: str) -> None:
    """A trigger of blog_like, AFTER each row; `on`: INSERT or UPDATE."""
    if sides.dialect == "postgresql":
        sides.run(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {body}; RETURN NULL; END $$",
            f"CREATE TRIGGER {name} AFTER {on} ON blog_like FOR EACH ROW EXECUTE FUNCTION {name}()",
        )
    elif sides.dialect == "mariadb":
        sides.run(f"CREATE TRIGGER {name} AFTER {on} ON blog_like FOR EACH ROW {body}")
    else:
        sides.run(f"CREATE TRIGGER {name} AFTER {on} ON blog_like BEGIN {body}; END")


def add_values(sides: BothSides, more: str = "") -> None:
    number = words(sides)["int"]
    sides.run(f"ALTER TABLE blog_like ADD val {number} NOT NULL DEFAULT 1{more}")


def test_a_trigger_that_rewrites_votes_is_found_before_the_script_counts(sides: BothSides) -> None:
    make_likes(sides)
    add_values(sides)
    rewriting_trigger(sides, "blog_like")
    votes = hotcount.Votes(sides.database, **LIKES)
    script = votes.migration()
    assert "triggers or checks" in script
    run_script(sides, script)
    with pytest.raises(hotcount.ConfigError, match=r"trigger of table blog_like.*val has 7"):
        votes.migration()
    with pytest.raises(hotcount.ConfigError, match="trigger of table blog_like"):
        votes.create_tables()
    assert sides.run("SELECT DISTINCT val FROM blog_like") == [(1,)]
    drop_trigger(sides, "r", "blog_like")
    run_script(sides, votes.migration())
    assert [int(n) for n in votes.count_many([1, 2, 3])] == [3, 1, 0]


@pytest.mark.parametrize("strategy", ["batched", "naive"])
def test_a_trigger_that_counts_votes_too_is_refused_and_one_that_logs_is_not(
    sides: BothSides, strategy: str
) -> None:
    make_likes(sides)
    w = words(sides)
    sides.run(
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
    assert sides.run("SELECT post FROM blog_log") == []
    drop_trigger(sides, "counts", "blog_like")
    run_script(sides, votes.migration())
    assert votes.migration() == ""
    assert votes.cast(3, 9).changed
    assert votes.cast(1, 9).changed
    assert votes.retract(1, 9).changed
    votes.flush()
    assert sides.run("SELECT id, vote_count FROM blog_post ORDER BY id") == [(1, 3), (2, 1), (3, 1)]
    assert votes.reconcile(dry_run=True) == []


def test_a_check_that_forbids_retracted_votes_is_refused(sides: BothSides) -> None:
    make_likes(sides)
    add_values(sides, " CHECK (val IN (-1, 1))")
    votes = hotcount.Votes(sides.database, **LIKES)
    run_script(sides, votes.migration())
    for ask in (votes.migration, votes.create_tables):
        with pytest.raises(hotcount.ConfigError, match=r"blog_like takes no vote of 0"):
            ask()


def test_tables_that_lost_what_votes_need_are_refused_at_the_start(sides: BothSides) -> None:
    """As after a client that goes on when a statement fails, or the application's next release."""
    make_likes(sides, unique="")
    votes = hotcount.Votes(sides.database, **LIKES)
    run_script(sides, votes.migration())
    votes.create_tables()
    if sides.dialect == "postgresql":
        sides.run("ALTER TABLE blog_like DROP CONSTRAINT blog_like_one_vote")
    elif sides.dialect == "mariadb":
        sides.run(
            "ALTER TABLE blog_like ADD INDEX by_post (post_id)",
            "ALTER TABLE blog_like DROP INDEX blog_like_one_vote",
        )
    else:
        sides.run("DROP INDEX blog_like_one_vote")
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
    sides.run(f"CREATE TABLE blog_like_{suffix} (post_id {words(sides)['int']})")
    with pytest.raises(hotcount.ConfigError, match=rf"blog_like_{suffix} that is not hotcount's"):
        hotcount.Votes(sides.database, **LIKES).migration()


@pytest.mark.parametrize("sides", BACKENDS[:1], indirect=True)
def test_uuids_without_dashes_are_refused(sides: BothSides) -> None:
    """As Django and SQLAlchemy store them on SQLite."""
    sides.run(
        "CREATE TABLE item (id CHAR(32) NOT NULL PRIMARY KEY)",
        "CREATE TABLE vote (item_id CHAR(32) NOT NULL, user_id INTEGER NOT NULL)",
    )
    with pytest.raises(hotcount.ConfigError, match=r"column id of table item is of type CHAR"):
        hotcount.Votes(sides.database, item_type=uuid.UUID).migration()
