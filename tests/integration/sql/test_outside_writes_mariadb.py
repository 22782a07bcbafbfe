"""What others write to the vote table on MariaDB and MySQL: what no other server has, and locks."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import hotcount
import pymysql  # type: ignore[import-untyped]
import pytest

from tests.support.eventually import eventually
from tests.support.likes import LIKES, make_likes
from tests.support.mariadb_votes import ALL_BUT_TRIGGER, DRIFTS, ITEMS, MariaDbSide, counts, drifts
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import in_background
from tests.support.sql_scripts import run_script
from tests.support.sqlalchemy_side import BothSides, both_sides
from tests.support.together import beside, together

pytestmark = pytest.mark.server


@pytest.fixture
def liked(request: pytest.FixtureRequest, database_path: Path) -> Iterator[BothSides]:
    """An application's tables, in the database of maria."""
    with closing(both_sides(request, "mariadb", database_path)) as sides:
        make_likes(sides)
        yield sides


def test_replace_is_a_delete_and_an_insert(maria: MariaDbSide) -> None:
    replace = "REPLACE INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 90, 1)"
    with maria.made("count") as votes:
        maria.run(replace)
        assert counts(votes) == [8, 2, 0]
        script = votes.migration(outside_writes="deletes")
        assert "Not counted" in script
        assert "REPLACE counts as the delete" in script
        votes.create_tables(outside_writes="deletes")
        maria.run(replace)
        assert counts(votes) == [3, 2, 0]


def test_loaded_rows_count(maria: MariaDbSide, tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("1,1,9\n2,80,2\n3,81,3\n")
    maria.run("SET GLOBAL local_infile = 1")
    with (
        maria.made("count") as votes,
        closing(maria.server.connect(maria.database, local_infile=True)) as session,
        session.cursor() as cursor,
    ):
        for ignore, expected in (("IGNORE", [4, 4, 3]), ("REPLACE", [12, 4, 3])):
            cursor.execute(
                f"LOAD DATA LOCAL INFILE '{tmp_path / 'votes.csv'}' {ignore} INTO TABLE vote "
                "FIELDS TERMINATED BY ',' (item_id, user_id, val)"
            )
            session.commit()
            assert counts(votes) == expected
            assert maria.run(DRIFTS) == []


def test_the_id_of_a_row_that_others_insert_is_that_of_the_row(maria: MariaDbSide) -> None:
    with maria.made("count") as votes, maria.session() as (session, cursor):
        maria.run("ALTER TABLE vote ADD COLUMN id BIGINT NOT NULL AUTO_INCREMENT UNIQUE")
        ((last,),) = maria.run("SELECT MAX(id) FROM vote")
        cursor.execute("INSERT INTO vote (item_id, user_id, val) VALUES (3, 9, 1)")
        assert (cursor.rowcount, cursor.lastrowid) == (1, last + 1)
        cursor.execute("SELECT LAST_INSERT_ID()")
        assert cursor.fetchall() == ((last + 1,),)
        cursor.execute("DELETE FROM vote WHERE item_id = 1")
        assert cursor.rowcount == 4
        session.commit()
        assert counts(votes) == [0, 2, 1]


@pytest.mark.parametrize(
    ("key", "cascade"),
    [
        ("ON DELETE CASCADE", "(ON DELETE CASCADE)"),
        ("ON UPDATE CASCADE", None),
        ("ON DELETE SET NULL", None),
    ],
)
def test_cascades_into_the_votes_are_refused_because_they_run_no_trigger(
    maria: MariaDbSide, key: str, cascade: str | None
) -> None:
    with maria.votes() as votes:
        votes.create_tables()
        votes.add_items(ITEMS)
        maria.run(
            "CREATE TABLE fan (id BIGINT PRIMARY KEY)",
            "INSERT INTO fan VALUES (1), (2)",
            "ALTER TABLE vote DROP PRIMARY KEY, ADD UNIQUE (item_id, user_id), MODIFY user_id "
            f"BIGINT NULL, ADD CONSTRAINT of_fan FOREIGN KEY (user_id) REFERENCES fan (id) {key}",
        )
        votes.cast_many([1, 1], [1, 2])
        if cascade is None:
            # The user of a vote changes, and no count.
            votes.create_tables(outside_writes="count")
            maria.run("DELETE FROM fan" if "NULL" in key else "UPDATE fan SET id = id + 10")
            assert counts(votes) == [2, 0, 0]
            return
        for form in ("deletes", "count"):
            for ask in (votes.create_tables, votes.migration):
                with pytest.raises(hotcount.ConfigError, match=r"of_fan \(ON DELETE CASCADE\).*RE"):
                    ask(outside_writes=form)
        assert maria.triggers() == set()
        # The ways out: our own delete, and a trigger that deletes where a cascade would.
        votes.erase_user(1)
        assert counts(votes) == [1, 0, 0]
        maria.run(
            "ALTER TABLE vote DROP FOREIGN KEY of_fan, ADD CONSTRAINT of_fan_2 FOREIGN KEY "
            "(user_id) REFERENCES fan (id)",
            "CREATE TRIGGER fan_votes BEFORE DELETE ON fan FOR EACH ROW DELETE FROM vote WHERE "
            "user_id = OLD.id",
        )
        votes.create_tables(outside_writes="deletes")
        maria.run("DELETE FROM fan")
        assert counts(votes) == [0, 0, 0]


def test_a_cascade_of_the_items_key_is_refused(maria: MariaDbSide) -> None:
    maria.run(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE vote (item_id BIGINT NOT NULL, user_id BIGINT NOT NULL, val BIGINT NOT NULL, "
        "prev BIGINT NOT NULL DEFAULT 0, version BIGINT, PRIMARY KEY (item_id, user_id), "
        "CONSTRAINT of_item FOREIGN KEY (item_id) REFERENCES item (id) ON UPDATE CASCADE)",
    )
    with (
        maria.votes() as votes,
        pytest.raises(hotcount.ConfigError, match=r"of_item \(ON UPDATE CASCADE\)"),
    ):
        votes.create_tables(outside_writes="count")
    assert {row[0] for row in maria.run("SHOW TABLES")} == {"item", "vote"}


def test_an_account_that_may_create_no_trigger_is_told_before_anything_changes(
    maria: MariaDbSide,
) -> None:
    account = maria.account(rights=ALL_BUT_TRIGGER)
    with maria.votes(user=account) as votes:
        with pytest.raises(hotcount.ConfigError, match=r"no TRIGGER privilege.*Nothing was chang"):
            votes.create_tables(outside_writes="deletes")
        assert maria.run("SHOW TABLES") == []
        votes.create_tables()
        votes.add_items(ITEMS)
        with pytest.raises(hotcount.ConfigError, match=r"no TRIGGER privilege"):
            votes.create_tables(outside_writes="count")
        # Where another account has made them, whoever writes needs no right on the journal.
        with maria.votes() as owners:
            owners.create_tables(outside_writes="count")
        # It sees none of them, which would go on counting in the place of before.
        with maria.votes("naive", user=account) as moved:
            for form in (None, "count"):
                with pytest.raises(hotcount.ConfigError, match=r"no TRIGGER privilege"):
                    moved.create_tables(outside_writes=form)
        votes.create_tables()
        writer = maria.account(rights="USAGE")
        maria.run(f"GRANT SELECT, INSERT, DELETE ON vote TO {writer}@localhost")
        with closing(maria.server.connect(maria.database, user=writer)) as session:
            session.cursor().execute("INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1)")
            session.commit()
        votes.cast(1, 2)
        assert counts(votes) == [2, 0, 0]


def test_a_server_with_a_binary_log_may_refuse_triggers() -> None:
    with new_server(config=("--log-bin=binlog", "--server-id=1")).started() as server:
        maria = MariaDbSide(server, server.create_database())
        with maria.votes(user=maria.account()) as votes:
            with pytest.raises(hotcount.ConfigError, match=r"log_bin_trust_function_creators"):
                votes.create_tables(outside_writes="deletes")
            assert maria.run("SHOW TABLES") == []
            maria.run("SET GLOBAL log_bin_trust_function_creators = 1")
            votes.create_tables(outside_writes="deletes")
            votes.add_items(ITEMS)
            votes.cast(1, 1)
            maria.run("DELETE FROM vote")
            assert counts(votes) == [0, 0, 0]


def test_a_trigger_of_such_a_name_that_is_somebody_elses_is_refused_and_stays(
    maria: MariaDbSide,
) -> None:
    with maria.made(None) as votes:
        for name, table in (("vote_hotcount_inserted", "vote"), ("vote_hotcount_deleted", "item")):
            maria.run(f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW SET @seen = 1")
            for ask in (votes.create_tables, votes.migration):
                with pytest.raises(hotcount.ConfigError, match=rf"trigger {name} is not hotcount"):
                    ask(outside_writes="deletes")
            votes.create_tables(outside_writes="none")
            assert maria.triggers() == {name}
            maria.run(f"DROP TRIGGER {name}")


def test_names_that_leave_no_room_for_triggers_are_refused(maria: MariaDbSide) -> None:
    with maria.votes(vote_table="v" * 40) as votes:
        with pytest.raises(hotcount.ConfigError, match=r"leaves no room"):
            votes.create_tables(outside_writes="deletes")
        assert maria.run("SHOW TABLES") == []
        votes.create_tables()


def test_a_count_out_of_64_bits_is_refused_and_not_cut(maria: MariaDbSide) -> None:
    most = 2**63 - 1
    with maria.made("count", "naive") as votes:
        maria.run(f"UPDATE item SET vote_count = {most} WHERE id = 3")
        for ignore in ("", "IGNORE"):
            with pytest.raises(pymysql.err.DataError, match="Out of range"):
                maria.run(f"INSERT {ignore} INTO vote (item_id, user_id, val) VALUES (3, 1, 1)")
        assert maria.run("SELECT COUNT(*) FROM vote WHERE item_id = 3") == [(0,)]
    with maria.votes() as votes:
        votes.create_tables(existing_counts="recount")
        maria.run(f"INSERT INTO vote (item_id, user_id, val) VALUES (3, 1, {most})")
        with pytest.raises(pymysql.err.DataError, match="Out of range"):
            maria.run("UPDATE vote SET val = -2 WHERE item_id = 3")
        assert int(votes.count(3)) == most


def test_a_trigger_that_is_gone_comes_back(maria: MariaDbSide) -> None:
    with maria.made("count") as votes:
        every = maria.triggers()
        assert votes.migration(outside_writes="count") == ""
        maria.run("DROP TRIGGER vote_hotcount_updated")
        assert votes.migration().count("CREATE TRIGGER") == 6
        votes.create_tables(outside_writes="count")
        assert maria.triggers() == every
        votes.create_tables(outside_writes="none")
        assert maria.triggers() == set()
        assert maria.run("SELECT * FROM vote_meta WHERE name = 'outside_writes'") == []


def test_a_script_for_the_client_makes_strict_triggers(
    maria: MariaDbSide, liked: BothSides
) -> None:
    votes = hotcount.Votes(liked.database, **LIKES)
    run_script(liked, "SET SESSION sql_mode = '';\n" + votes.migration(outside_writes="count"))
    assert votes.migration(outside_writes="count") == ""
    ((mode,),) = maria.run(
        "SELECT DISTINCT SQL_MODE FROM information_schema.TRIGGERS WHERE "
        f"TRIGGER_SCHEMA = '{maria.database}'"
    )
    assert "STRICT_ALL_TABLES" in mode
    liked.run(
        "DELETE FROM blog_like WHERE post_id = 1 AND user_id = 1",
        "INSERT INTO blog_like (user_id, post_id, created_at) VALUES (7, 3, NOW(6))",
    )
    for post, likes in liked.run(
        "SELECT i.id, (SELECT COUNT(*) FROM blog_like WHERE post_id = i.id) FROM blog_post AS i"
    ):
        assert int(votes.count(post)) == likes


def test_a_move_of_the_counts_waits_for_those_who_write(maria: MariaDbSide) -> None:
    for isolation in ("READ COMMITTED", "REPEATABLE READ"):
        with maria.made("count", "naive"), maria.session() as (session, cursor):
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            cursor.execute("SELECT COUNT(*) FROM vote_meta")  # Its snapshot.
            cursor.execute("DELETE FROM vote WHERE item_id = 1 AND user_id = 1")
            with maria.votes() as batched:
                move = in_background(batched.create_tables)
                eventually(lambda: maria.server.row_waits() > 0)
                cursor.execute("INSERT INTO vote (item_id, user_id, val) VALUES (2, 99, 1)")
                session.commit()
                assert move() is None
                assert maria.run(DRIFTS) == []
                cursor.execute("SELECT COUNT(*) FROM vote_meta")
                with maria.votes("naive") as back:
                    back.create_tables()
                # Its snapshot has the place of before.
                cursor.execute("DELETE FROM vote WHERE item_id = 2 AND user_id = 99")
                session.commit()
                assert maria.run(DRIFTS) == []
        maria.run("DELETE FROM vote")


def test_inserts_for_one_item_do_not_deadlock_at_its_count(maria: MariaDbSide) -> None:
    with maria.made("count", "naive") as votes:
        begun = threading.Barrier(2)

        def insert(user: int) -> None:
            with maria.session() as (session, cursor):
                for turn in range(20):
                    begun.wait(20)
                    cursor.execute(
                        f"INSERT INTO vote (item_id, user_id, val) VALUES (3, {user + turn}, 1)"
                    )
                    session.commit()

        together(lambda index: insert(1000 * (index + 1)), 2)
        assert counts(votes) == [4, 2, 40]


def test_a_statement_that_reads_the_items_is_refused_where_the_counts_are(
    maria: MariaDbSide,
) -> None:
    delete = "DELETE v FROM vote AS v JOIN item AS i ON i.id = v.item_id WHERE i.id = 1"
    with maria.made("deletes", "naive") as votes:
        with pytest.raises(pymysql.err.OperationalError, match="1442"):
            maria.run(delete)
        assert counts(votes) == [4, 2, 0]
    with maria.votes() as votes:
        votes.create_tables()
        maria.run(delete)
        assert counts(votes) == [0, 2, 0]


def write_outside(maria: MariaDbSide, seed: int, stop: threading.Event, **names: str) -> None:
    """As an application's own code: transactions of a few statements, and some of them rolled back
    or left by a session that is killed."""
    draw = random.Random(seed)
    table = names.get("vote_table", "vote")
    post, fan = names.get("vote_item", "item_id"), names.get("vote_user", "user_id")
    kinds: list[Callable[[], str]] = [
        lambda: (
            f"INSERT IGNORE INTO {table} ({post}, {fan}) VALUES "
            f"({draw.choice(ITEMS)}, {seed * 100 + draw.randint(0, 9)})"
        ),
        lambda: f"DELETE FROM {table} WHERE {fan} = {seed * 100 + draw.randint(0, 9)}",
        lambda: (
            f"REPLACE INTO {table} ({post}, {fan}) VALUES "
            f"({draw.choice(ITEMS)}, {seed * 100 + draw.randint(0, 9)})"
        ),
    ]
    while not stop.is_set():
        with suppress(pymysql.err.MySQLError), maria.session() as (session, cursor):
            cursor.execute(
                "SET SESSION TRANSACTION ISOLATION LEVEL "
                + draw.choice(["READ COMMITTED", "REPEATABLE READ"])
            )
            for _ in range(20):
                for _ in range(draw.randint(1, 4)):
                    cursor.execute(draw.choice(kinds)())
                if draw.random() < 0.1:
                    maria.server.execute(f"KILL {session.thread_id()}")
                draw.choice([session.commit, session.commit, session.rollback])()


def test_counts_are_the_rows_while_others_write_and_the_strategy_changes(
    maria: MariaDbSide,
) -> None:
    maria.made("count", "naive").close()
    maria.run("ALTER TABLE vote ALTER COLUMN val SET DEFAULT 1")

    def vote(stop: threading.Event, first: int) -> None:
        draw = random.Random(first)
        with maria.votes() as own:
            while not stop.is_set():
                with suppress(hotcount.ConfigError, hotcount.UnavailableError):
                    own.cast(draw.choice(ITEMS), first + draw.randint(0, 9), draw.choice([0, 1]))

    def look(stop: threading.Event) -> None:
        while not stop.is_set():
            assert maria.run(DRIFTS) == []

    outside = [partial(write_outside, maria, seed) for seed in (10, 20)]
    with beside(*outside, partial(vote, first=5000), partial(vote, first=6000), look):
        for strategy in ["batched", "naive", "slotted"] * 4:
            with maria.votes(strategy) as other:
                other.create_tables(outside_writes="count")
    assert maria.run(DRIFTS) == []
    with maria.votes() as votes:
        votes.create_tables()
        assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("how", ["create_tables", "script"])
def test_tables_are_adopted_while_others_write(
    maria: MariaDbSide, liked: BothSides, how: str
) -> None:
    liked.run("ALTER TABLE blog_like ALTER COLUMN created_at SET DEFAULT '2026-01-01'")
    votes = hotcount.Votes(liked.database, **LIKES)
    if how == "create_tables":
        liked.run(
            "ALTER TABLE blog_post ADD COLUMN vote_count BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE blog_like ADD COLUMN val BIGINT NOT NULL DEFAULT 1, ADD COLUMN prev "
            "BIGINT NOT NULL DEFAULT 0, ADD COLUMN version BIGINT",
        )
    names = {name: LIKES[name] for name in ("vote_table", "vote_item", "vote_user")}
    with beside(*(partial(write_outside, maria, seed, **names) for seed in (10, 20))):
        if how == "create_tables":
            votes.create_tables(outside_writes="count")
        while script := votes.migration(outside_writes="count"):
            # A statement gives up soon; the next script has the rest.
            with suppress(pymysql.err.OperationalError):
                run_script(liked, script)
        for _ in range(300):
            votes.cast(1, 77, 1)
            votes.cast(1, 77, 0)
    assert maria.run(drifts("blog_like", "post_id")) == []
    assert votes.reconcile(dry_run=True) == []
