"""The application's own tables: what migration() prints makes them hold votes; their rows count.

Each script is run by the way that its own client would, statement after statement.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import psycopg
import pytest
import sqlalchemy as sa

from tests.support.commands import run
from tests.support.likes import LIKES, like, make_likes, words
from tests.support.servers import PostgresDatabase
from tests.support.sql_scripts import run_script, statements_of
from tests.support.sql_votes import open_votes
from tests.support.sqlalchemy_side import BothSides


def migrate(sides: BothSides, votes: hotcount.Votes, **options: Any) -> str:
    script = votes.migration(**options)
    assert script
    run_script(sides, script)
    assert votes.migration(**options) == ""
    votes.create_tables()
    return script


def counts(votes: hotcount.Votes) -> list[int]:
    return [int(count) for count in votes.count_many([1, 2, 3])]


def shown(sides: BothSides) -> list[int]:
    return [int(n) for (n,) in sides.run("SELECT vote_count FROM blog_post ORDER BY id")]


def check(sides: BothSides, votes: hotcount.Votes) -> None:
    """Votes of users who had liked already, and of new ones."""
    assert counts(votes) == [3, 1, 0]
    assert not votes.cast(1, 2).changed
    assert votes.retract(1, 3).previous == 1
    assert votes.cast(3, 9).changed
    assert list(votes.cast_many([1, 2, 2], [7, 7, 1], [1, 5, 1]).changed) == [True, True, False]
    assert counts(votes) == [3, 6, 1]
    votes.flush()
    assert votes.reconcile(dry_run=True) == []
    if votes.item_count is not None:
        assert shown(sides) == [3, 6, 1]
    view = sides.run("SELECT n FROM blog_like_count ORDER BY item")
    assert [int(n) for (n,) in view] == [3, 6, 1]


@pytest.mark.parametrize("unique", [", UNIQUE (user_id, post_id)", ""], ids=["unique", "no-key"])
@pytest.mark.parametrize("item_count", ["vote_count", None])
def test_likes_of_a_web_application_become_votes(
    sides: BothSides, unique: str, item_count: str | None
) -> None:
    make_likes(sides, unique=unique)
    votes = hotcount.Votes(sides.database, item_count=item_count, **LIKES)
    with pytest.raises(hotcount.ConfigError) as refused:
        votes.create_tables()
    for word in ("blog_like.val", "blog_like.prev", "blog_like.version", "migration()"):
        assert word in str(refused.value)
    assert ("blog_post.vote_count" in str(refused.value)) == (item_count is not None)
    assert sorted(sa.inspect(sides.engine).get_table_names()) == ["blog_like", "blog_post"]
    script = migrate(sides, votes)
    assert ("blog_like_one_vote" in script) == (unique == "")
    check(sides, votes)


@pytest.mark.parametrize("strategy", ["naive", "slotted", "cached"])
def test_every_strategy_counts_adopted_rows(sides: BothSides, strategy: Any) -> None:
    make_likes(sides)
    votes = open_votes(sides, strategy, **LIKES)
    script = votes.migration()
    run_script(sides, script)
    if strategy == "cached":
        assert "create_tables()" in votes.migration()
    else:
        assert votes.migration() == ""
    votes.create_tables()
    assert votes.migration() == ""
    assert counts(votes) == [3, 1, 0]
    assert votes.cast(1, 9).changed
    assert not votes.cast(1, 1).changed
    assert counts(votes) == [4, 1, 0]


def test_what_the_application_writes_meanwhile_is_found_by_reconcile(sides: BothSides) -> None:
    make_likes(sides)
    votes = hotcount.Votes(sides.database, **LIKES)
    migrate(sides, votes)
    # A process of the release before: it knows no values.
    sides.run(like(50, 2))
    votes.cast(2, 51)
    assert [(d.item, d.counted, d.actual) for d in votes.reconcile()] == [(2, 2, 3)]
    assert counts(votes) == [3, 3, 0]
    assert not votes.cast(2, 50).changed


def test_a_migration_that_was_cut_off_is_printed_from_there(sides: BothSides) -> None:
    make_likes(sides, unique="")
    votes = hotcount.Votes(sides.database, **LIKES)
    steps = 0
    # One statement of each print: the next print has the rest. A transaction is one.
    while script := votes.migration():
        patience = ("SET search_path", "SET SESSION lock_wait_timeout")
        first = next(s for s in statements_of(script) if not s[0].startswith(patience))
        run_script(sides, ";\n".join(first) + ";\n")
        steps += 1
        assert steps < 30
    assert steps > 5
    votes.create_tables()
    check(sides, votes)


def test_a_script_that_is_run_twice_counts_once(sides: BothSides) -> None:
    make_likes(sides)
    sides.run("ALTER TABLE blog_post ADD vote_count BIGINT NOT NULL DEFAULT 100")
    votes = hotcount.Votes(sides.database, **LIKES)
    script = migrate(sides, votes, existing_counts="keep")
    last = statements_of(script)[-1]
    assert len(last) > 1
    run_script(sides, ";\n".join(last) + ";\n")
    assert counts(votes) == [100, 100, 100]


@pytest.mark.parametrize("strategy", ["batched", "naive"])
@pytest.mark.parametrize("existing", ["keep", "recount"])
def test_counts_without_votes_stay_only_where_they_are_to(
    sides: BothSides, existing: str, strategy: Any
) -> None:
    make_likes(sides)
    sides.run(
        "ALTER TABLE blog_post ADD vote_count BIGINT NOT NULL DEFAULT 0",
        "UPDATE blog_post SET vote_count = 500 WHERE id = 1",
        "UPDATE blog_post SET vote_count = 20 WHERE id = 3",
    )
    votes = hotcount.Votes(sides.database, strategy=strategy, **LIKES)
    with pytest.raises(hotcount.ConfigError, match=r"2 items differ.*item 1 counts 500.* is 3"):
        votes.migration()
    migrate(sides, votes, existing_counts=existing)
    expected = [500, 1, 20] if existing == "keep" else [3, 1, 0]
    assert counts(votes) == expected
    assert votes.reconcile(dry_run=True) == []
    votes.flush()
    assert shown(sides) == expected


def test_votes_without_a_user_are_counted_and_nobodys(sides: BothSides) -> None:
    """The tables of the vote system that hotcount began with."""
    w = words(sides)
    sides.run(
        f"CREATE TABLE item (id {w['serial']}, name VARCHAR(20), vote_count {w['int']})",
        f"CREATE TABLE vote (id {w['serial']}, item_id {w['int']} NOT NULL)",
        "INSERT INTO item (name, vote_count) VALUES ('a', 2), ('b', 1)",
        "INSERT INTO vote (item_id) VALUES (1), (1), (2)",
    )
    votes = hotcount.Votes(sides.database)
    migrate(sides, votes)
    assert [int(n) for n in votes.count_many([1, 2])] == [2, 1]
    assert votes.cast(1, 7).changed
    assert not votes.cast(1, 7).changed
    assert votes.cast(1, None, op_id="x").changed
    assert [int(n) for n in votes.count_many([1, 2])] == [4, 1]
    sides.run("INSERT INTO vote (item_id) VALUES (2)")
    votes.reconcile()
    assert [int(n) for n in votes.count_many([1, 2])] == [4, 2]
    live = sides.run("SELECT item_id, user_id FROM vote_live WHERE user_id IS NOT NULL")
    assert live == [(1, 7)]


@pytest.mark.parametrize("kind", ["varchar", "uuid"])
def test_ids_may_be_text_or_uuids(sides: BothSides, kind: str) -> None:
    column = "VARCHAR(64)" if kind == "varchar" else words(sides)["uuid"]
    ids = ["a", "b"] if kind == "varchar" else [str(uuid.uuid4()), str(uuid.uuid4())]
    of: Any = str if kind == "varchar" else uuid.UUID
    sides.run(
        f"CREATE TABLE page (slug {column} NOT NULL PRIMARY KEY)",
        f"CREATE TABLE fan (page {column} NOT NULL REFERENCES page (slug), who {column} NOT NULL)",
        f"INSERT INTO page VALUES ('{ids[0]}'), ('{ids[1]}')",
        f"INSERT INTO fan VALUES ('{ids[0]}', '{ids[0]}'), ('{ids[0]}', '{ids[1]}')",
    )
    page: Any = {"item_table": "page", "item_id": "slug", "item_type": of, "user_type": of}
    fan: Any = {"vote_table": "fan", "vote_item": "page", "vote_user": "who"}
    votes = hotcount.Votes(sides.database, **page, **fan)
    migrate(sides, votes)
    typed = [of(i) for i in ids]
    assert [int(n) for n in votes.count_many(typed)] == [2, 0]
    assert not votes.cast(typed[0], typed[1]).changed
    assert votes.cast(typed[1], typed[1]).changed
    assert votes.retract(typed[0], typed[0]).changed
    assert [int(n) for n in votes.count_many(typed)] == [1, 1]
    assert votes.reconcile(dry_run=True) == []


# The type of items' ids and of users', and two spellings of an item and of a user. PostgreSQL's for
# items are refused by create_tables().
SAME_CASE = "VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
SPELLED = {
    "sqlite": ("TEXT COLLATE NOCASE", "TEXT COLLATE NOCASE", ("post", "POST"), ("u", "U")),
    "postgresql": ("TEXT", "TEXT COLLATE same_case", ("post", "post"), ("u", "U")),
    "mariadb": (SAME_CASE, SAME_CASE, ("post", "POST"), ("u", "U")),
}


@pytest.mark.parametrize("strategy", ["batched", "slotted", "naive"])
def test_the_last_vote_of_a_call_stands_however_its_ids_are_spelled(
    sides: BothSides, strategy: Any
) -> None:
    items, users, (post, other_post), (user, other_user) = SPELLED[sides.dialect]
    if sides.dialect == "postgresql":
        sides.run(
            "CREATE COLLATION same_case (provider = icu, locale = 'und-u-ks-level2',"
            " deterministic = false)"
        )
    sides.run(
        f"CREATE TABLE item (id {items} NOT NULL PRIMARY KEY)",
        f"CREATE TABLE vote (item_id {items} NOT NULL, user_id {users} NOT NULL)",
        f"INSERT INTO item VALUES ('{post}')",
    )
    votes = hotcount.Votes(sides.database, strategy=strategy, item_type=str, user_type=str)
    migrate(sides, votes)
    spelled = [(post, user), (other_post, other_user), (other_post, user), (post, other_user)]
    # A few votes, and a number for which the call might write item by item.
    for crowd in (0, 1_200):
        for turn in (spelled, spelled[::-1]):
            ids = [*spelled, *((post, f"of {crowd}: {number}") for number in range(crowd)), *turn]
            values = [*range(10, 14), *[1] * crowd, *range(20, 24)]
            # A fold of the last turn would hold the item's row: then either order is right.
            votes.flush()
            votes.cast_many([item for item, _ in ids], [voter for _, voter in ids], values)
            assert int(votes.count(other_post)) == crowd + 23
    votes.flush()
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", ["batched", "slotted", "naive", "cached"])
@pytest.mark.parametrize(("collation", "other"), [("NOCASE", "POST"), ("RTRIM", "post  ")])
def test_tables_made_beside_an_item_table_of_sqlite_take_the_same_ids_for_one(
    database_path: Path, strategy: Any, collation: str, other: str
) -> None:
    with closing(sqlite3.connect(database_path)) as direct:
        direct.execute(
            f"CREATE TABLE item (id TEXT COLLATE {collation} NOT NULL PRIMARY KEY,"
            " vote_count BIGINT NOT NULL DEFAULT 0)"
        )
        direct.execute("INSERT INTO item (id) VALUES ('post')")
        direct.commit()
    cache = hotcount.Memory() if strategy == "cached" else None
    with hotcount.Database(f"sqlite:///{database_path}", timeout=20) as opened:
        votes = hotcount.Votes(opened, cache, strategy, item_type=str)
        votes.create_tables()
        assert votes.cast("post", 1).changed
        assert not votes.cast(other, 1).changed
        assert votes.cast(other, 2).changed
        assert [int(count) for count in votes.count_many(["post", other])] == [2, 2]
        assert votes.flush().pending == 0
        assert votes.reconcile(dry_run=True) == []


def test_rows_of_nobody_are_no_voters_and_go_with_their_item(sides: BothSides) -> None:
    w = words(sides)
    sides.run(
        f"CREATE TABLE item (id {w['int']} NOT NULL PRIMARY KEY)",
        f"CREATE TABLE vote (id {w['serial']}, item_id {w['int']}, user_id {w['int']})",
        "INSERT INTO item VALUES (1), (2)",
        "INSERT INTO vote (item_id, user_id) VALUES (1, NULL), (1, NULL), (1, 3), (2, 3), (2, "
        "NULL), (NULL, 3), (NULL, NULL)",
    )
    votes = hotcount.Votes(sides.database)
    migrate(sides, votes)
    assert [int(n) for n in votes.count_many([1, 2])] == [3, 2]
    assert votes.voters(1) == [(3, 1)]
    votes.retract(2, 4)
    assert votes.prune(10) == 1
    assert votes.remove_item(1) == 3
    assert votes.erase_user(3) == 1
    assert [int(n) for n in votes.count_many([1, 2])] == [0, 1]
    assert votes.reconcile(dry_run=True) == []
    left = sides.run("SELECT item_id, user_id FROM vote ORDER BY id")
    assert left == [(2, None), (None, 3), (None, None)]


@pytest.mark.parametrize("name", ["a:b", "what?1", "x%s", "ta`ck", "back\\slash", "it's", "-- c"])
def test_any_name_that_a_table_may_have_stands_in_the_script(sides: BothSides, name: str) -> None:
    w = words(sides)
    quoted = "`" + name.replace("`", "``") + "`" if sides.dialect == "mariadb" else f'"{name}"'
    table = quoted.replace("%", "%%") if sides.dialect != "sqlite" else quoted
    sides.run(
        f"CREATE TABLE item (id {w['int']} NOT NULL PRIMARY KEY)",
        f"CREATE TABLE {table} ({table} {w['int']} NOT NULL, user_id {w['int']} NOT NULL)",
        "INSERT INTO item VALUES (1)",
        f"INSERT INTO {table} VALUES (1, 1)",
    )
    votes = hotcount.Votes(sides.database, vote_table=name, vote_item=name)
    migrate(sides, votes)
    assert not votes.cast(1, 1).changed
    assert int(votes.count(1)) == 1


def test_items_may_number_themselves(sides: BothSides) -> None:
    always = {
        "sqlite": "INTEGER PRIMARY KEY",
        "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "mariadb": "BIGINT AUTO_INCREMENT PRIMARY KEY",
    }[sides.dialect]
    w = words(sides)
    sides.run(
        f"CREATE TABLE item (id {always}, title VARCHAR(9))",
        f"CREATE TABLE vote (item_id {w['int']} NOT NULL, user_id {w['int']} NOT NULL)",
        "INSERT INTO item (title) VALUES ('one')",
        "INSERT INTO vote VALUES (1, 1)",
    )
    votes = hotcount.Votes(sides.database)
    migrate(sides, votes)
    assert votes.cast(1, 2).changed
    assert int(votes.count(1)) == 2
    if sides.dialect == "postgresql":
        with pytest.raises(hotcount.ConfigError, match="column id of table item is generated"):
            hotcount.Votes(sides.database, missing_items="create").migration()


def test_a_column_for_counts_that_comes_later_has_the_counts(sides: BothSides) -> None:
    make_likes(sides)
    before = hotcount.Votes(sides.database, item_count=None, **LIKES)
    migrate(sides, before)
    assert before.cast(2, 9).changed
    before.flush()
    votes = hotcount.Votes(sides.database, **LIKES)
    migrate(sides, votes)
    votes.flush()
    assert sides.run("SELECT id, vote_count FROM blog_post ORDER BY id") == [(1, 3), (2, 2), (3, 0)]


def test_columns_are_found_in_any_case_where_the_database_finds_them_so(sides: BothSides) -> None:
    if sides.dialect == "postgresql":
        return  # There "Val" and "val" are two columns.
    w = words(sides)
    sides.run(
        f"CREATE TABLE item (Id {w['int']} NOT NULL PRIMARY KEY, Vote_Count {w['int']})",
        f"CREATE TABLE vote (Item_Id {w['int']} NOT NULL, USER_ID {w['int']} NOT NULL, "
        f"VAL {w['int']} NOT NULL DEFAULT 1, UNIQUE (USER_ID, Item_Id), "
        "FOREIGN KEY (Item_Id) REFERENCES item (Id))",
        "INSERT INTO item (Id) VALUES (1)",
        "INSERT INTO vote (Item_Id, USER_ID) VALUES (1, 1)",
    )
    votes = hotcount.Votes(sides.database)
    script = migrate(sides, votes)
    for word in ("val", "vote_count", "one_vote", "_refers"):
        assert word not in script.split("CREATE")[0]
    assert not votes.cast(1, 1).changed
    assert votes.cast(1, 2).changed
    assert int(votes.count(1)) == 2


def test_a_script_reaches_the_tables_it_was_printed_for_and_leaves_no_time_limit(
    postgres: PostgresDatabase,
) -> None:
    """psql has another search_path, and behind a pooler the next client gets the session."""
    tables = (
        "CREATE TABLE item (id BIGINT PRIMARY KEY); CREATE TABLE vote (item_id BIGINT NOT NULL, "
        "user_id BIGINT NOT NULL); "
    )
    postgres.psql(tables + "INSERT INTO item VALUES (1); INSERT INTO vote VALUES (1, 1)")
    with hotcount.Votes(postgres.url) as votes:
        script = votes.migration()
        with psycopg.connect(postgres.server.url(), autocommit=True) as session:
            for statement in (s for group in statements_of(script) for s in group):
                session.execute(statement)
            assert session.execute("SHOW lock_timeout").fetchone() == ("0",)
        assert votes.migration() == ""
        assert int(votes.count(1)) == 1


def test_complete_tables_need_no_right_to_create_and_no_lock(postgres: PostgresDatabase) -> None:
    with hotcount.Database(postgres.url) as database:
        sides = BothSides("postgresql", database, sa.create_engine("sqlite://"), "")
        owner = hotcount.Votes(database)
        run_script(sides, owner.migration(), url=postgres.url)
        owner.add_items([1])
    role = postgres.voter()
    with hotcount.Database(postgres.url_for(role), timeout=20) as database:
        votes = hotcount.Votes(database)
        assert votes.migration() == ""
        votes.create_tables()
        assert votes.cast(1, 1).changed
        votes.flush()
        assert int(votes.count(1)) == 1
        with psycopg.connect(postgres.url) as holder:
            lock = "LOCK TABLE item, vote, vote_cell, vote_journal IN ACCESS EXCLUSIVE MODE"
            while True:
                try:
                    holder.execute(lock)
                    break
                except psycopg.errors.DeadlockDetected:  # met the fold of the vote above
                    holder.rollback()
            votes.create_tables(timeout=5)
    with hotcount.Database(postgres.url) as database:
        hotcount.Votes(database, item_count=None, item_table="item", vote_table="other").migration()
    postgres.psql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_many_processes_may_create_the_tables_of_one_application(sides: BothSides) -> None:
    make_likes(sides)
    run_script(sides, hotcount.Votes(sides.database, **LIKES).migration().split("-- The counts")[0])

    def create(_: int) -> list[int]:
        with hotcount.Database(sides.url, timeout=30) as database:
            votes = hotcount.Votes(database, **LIKES)
            votes.create_tables()
            return counts(votes)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(create, range(8))) == [[3, 1, 0]] * 8


async def test_aio_and_the_command_print_the_same(sides: BothSides) -> None:
    make_likes(sides)
    script = hotcount.Votes(sides.database, **LIKES).migration()
    assert await hotcount.aio.Votes(sides.url, **LIKES).migration() == script
    names = [f"--{name.replace('_', '-')}={value}" for name, value in LIKES.items()]
    assert run("schema", sides.url, *names).stdout == script
    printed = run("schema", sides.url, *names, "--json").stdout
    assert json.loads(printed) == {"migration": script}


def test_the_command_prints_tables_by_their_names() -> None:
    names = ["--vote-table", "app.likes", "--vote-value", "weight", "--no-item-count"]
    printed = run("schema", "--dialect", "postgresql", *names).stdout
    assert '"app"."likes_journal"' in printed
    assert '"weight" BIGINT NOT NULL' in printed
    assert '"vote_count" BIGINT' not in printed
