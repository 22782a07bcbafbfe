"""What others write to the vote table on MariaDB and MySQL: what no other server has, and locks."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import hotcount
import pymysql  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa

from tests.support.eventually import eventually
from tests.support.likes import LIKES, make_likes, run
from tests.support.mariadb_server import MariaDbServer
from tests.support.mariadb_votes import DRIFTS, ITEMS, VotesOfMariaDb, counts, drifts
from tests.support.mysql_server import new_server
from tests.support.sql_scripts import run_script
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import together

pytestmark = pytest.mark.server


@pytest.fixture
def tables(mariadb_server: MariaDbServer, mariadb_database: str) -> VotesOfMariaDb:
    return VotesOfMariaDb(mariadb_server, mariadb_database)


def beside(*works: Callable[[], None]) -> None:
    together(lambda index: works[index](), len(works))


def test_replace_is_a_delete_and_an_insert(tables: VotesOfMariaDb) -> None:
    replace = "REPLACE INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 90, 1)"
    with tables.made("count") as votes:
        tables.run(replace)
        assert counts(votes) == [8, 2, 0]
        script = votes.migration(outside_writes="deletes")
        assert "Not counted" in script
        assert "REPLACE counts as the delete" in script
        votes.create_tables(outside_writes="deletes")
        tables.run(replace)
        assert counts(votes) == [3, 2, 0]


def test_loaded_rows_count(tables: VotesOfMariaDb, tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("1,1,9\n2,80,2\n3,81,3\n")
    tables.run("SET GLOBAL local_infile = 1")
    with (
        tables.made("count") as votes,
        closing(tables.server.connect(tables.database, local_infile=True)) as session,
        session.cursor() as cursor,
    ):
        for ignore, expected in (("IGNORE", [4, 4, 3]), ("REPLACE", [12, 4, 3])):
            cursor.execute(
                f"LOAD DATA LOCAL INFILE '{tmp_path / 'votes.csv'}' {ignore} INTO TABLE vote "
                "FIELDS TERMINATED BY ',' (item_id, user_id, val)"
            )
            session.commit()
            assert counts(votes) == expected
            assert tables.run(DRIFTS) == []


def test_the_id_of_a_row_that_others_insert_is_that_of_the_row(tables: VotesOfMariaDb) -> None:
    with tables.made("count") as votes, tables.session() as (session, cursor):
        tables.run("ALTER TABLE vote ADD COLUMN id BIGINT NOT NULL AUTO_INCREMENT UNIQUE")
        ((last,),) = tables.run("SELECT MAX(id) FROM vote")
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
    tables: VotesOfMariaDb, key: str, cascade: str | None
) -> None:
    with tables.votes() as votes:
        votes.create_tables()
        votes.add_items(ITEMS)
        tables.run(
            "CREATE TABLE fan (id BIGINT PRIMARY KEY)",
            "INSERT INTO fan VALUES (1), (2)",
            "ALTER TABLE vote DROP PRIMARY KEY, ADD UNIQUE (item_id, user_id), MODIFY user_id "
            f"BIGINT NULL, ADD CONSTRAINT of_fan FOREIGN KEY (user_id) REFERENCES fan (id) {key}",
        )
        votes.cast_many([1, 1], [1, 2])
        if cascade is None:
            # The user of a vote changes, and no count.
            votes.create_tables(outside_writes="count")
            tables.run("DELETE FROM fan" if "NULL" in key else "UPDATE fan SET id = id + 10")
            assert counts(votes) == [2, 0, 0]
            return
        for form in ("deletes", "count"):
            for ask in (votes.create_tables, votes.migration):
                with pytest.raises(hotcount.ConfigError, match=r"of_fan \(ON DELETE CASCADE\).*RE"):
                    ask(outside_writes=form)
        assert tables.triggers() == set()
        # The ways out: our own delete, and a trigger that deletes where a cascade would.
        votes.erase_user(1)
        assert counts(votes) == [1, 0, 0]
        tables.run(
            "ALTER TABLE vote DROP FOREIGN KEY of_fan, ADD CONSTRAINT of_fan_2 FOREIGN KEY "
            "(user_id) REFERENCES fan (id)",
            "CREATE TRIGGER fan_votes BEFORE DELETE ON fan FOR EACH ROW DELETE FROM vote WHERE "
            "user_id = OLD.id",
        )
        votes.create_tables(outside_writes="deletes")
        tables.run("DELETE FROM fan")
        assert counts(votes) == [0, 0, 0]


def test_a_cascade_of_the_items_key_is_refused(tables: VotesOfMariaDb) -> None:
    tables.run(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE vote (item_id BIGINT NOT NULL, user_id BIGINT NOT NULL, val BIGINT NOT NULL, "
        "prev BIGINT NOT NULL DEFAULT 0, version BIGINT, PRIMARY KEY (item_id, user_id), "
        "CONSTRAINT of_item FOREIGN KEY (item_id) REFERENCES item (id) ON UPDATE CASCADE)",
    )
    with (
        tables.votes() as votes,
        pytest.raises(hotcount.ConfigError, match=r"of_item \(ON UPDATE CASCADE\)"),
    ):
        votes.create_tables(outside_writes="count")
    assert {row[0] for row in tables.run("SHOW TABLES")} == {"item", "vote"}


def test_an_account_that_may_create_no_trigger_is_told_before_anything_changes(
    tables: VotesOfMariaDb,
) -> None:
    account = f"a{tables.database}"
    tables.run(
        f"CREATE USER {account}",
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES, DROP, CREATE VIEW "
        f"ON {tables.database}.* TO {account}",
    )
    with tables.votes(user=account) as votes:
        with pytest.raises(hotcount.ConfigError, match=r"no TRIGGER privilege.*Nothing was chang"):
            votes.create_tables(outside_writes="deletes")
        assert tables.run("SHOW TABLES") == []
        votes.create_tables()
        votes.add_items(ITEMS)
        with pytest.raises(hotcount.ConfigError, match=r"no TRIGGER privilege"):
            votes.create_tables(outside_writes="count")
        # Where another account has made them, whoever writes needs no right on the journal.
        with tables.votes() as owners:
            owners.create_tables(outside_writes="count")
        # It sees none of them, which would go on counting in the place of before.
        with tables.votes("naive", user=account) as moved:
            for form in (None, "count"):
                with pytest.raises(hotcount.ConfigError, match=r"no TRIGGER privilege"):
                    moved.create_tables(outside_writes=form)
        votes.create_tables()
        writer = f"w{tables.database}"
        tables.run(
            f"CREATE USER {writer}",
            f"GRANT SELECT, INSERT, DELETE ON {tables.database}.vote TO {writer}",
        )
        with closing(tables.server.connect(tables.database, user=writer)) as session:
            session.cursor().execute("INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1)")
            session.commit()
        votes.cast(1, 2)
        assert counts(votes) == [2, 0, 0]


def test_a_server_with_a_binary_log_may_refuse_triggers() -> None:
    server = new_server(config=("--log-bin=binlog", "--server-id=1"))
    try:
        server.start()
        tables = VotesOfMariaDb(server, server.create_database())
        tables.run("CREATE USER app", f"GRANT ALL ON {tables.database}.* TO app")
        with tables.votes(user="app") as votes:
            with pytest.raises(hotcount.ConfigError, match=r"log_bin_trust_function_creators"):
                votes.create_tables(outside_writes="deletes")
            assert tables.run("SHOW TABLES") == []
            tables.run("SET GLOBAL log_bin_trust_function_creators = 1")
            votes.create_tables(outside_writes="deletes")
            votes.add_items(ITEMS)
            votes.cast(1, 1)
            tables.run("DELETE FROM vote")
            assert counts(votes) == [0, 0, 0]
    finally:
        server.remove()


def test_a_trigger_of_such_a_name_that_is_somebody_elses_is_refused_and_stays(
    tables: VotesOfMariaDb,
) -> None:
    with tables.made(None) as votes:
        for name, table in (("vote_hotcount_inserted", "vote"), ("vote_hotcount_deleted", "item")):
            tables.run(f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW SET @seen = 1")
            for ask in (votes.create_tables, votes.migration):
                with pytest.raises(hotcount.ConfigError, match=rf"trigger {name} is not hotcount"):
                    ask(outside_writes="deletes")
            votes.create_tables(outside_writes="none")
            assert tables.triggers() == {name}
            tables.run(f"DROP TRIGGER {name}")


def test_names_that_leave_no_room_for_triggers_are_refused(tables: VotesOfMariaDb) -> None:
    with tables.votes(vote_table="v" * 40) as votes:
        with pytest.raises(hotcount.ConfigError, match=r"leaves no room"):
            votes.create_tables(outside_writes="deletes")
        assert tables.run("SHOW TABLES") == []
        votes.create_tables()


def test_a_count_out_of_64_bits_is_refused_and_not_cut(tables: VotesOfMariaDb) -> None:
    most = 2**63 - 1
    with tables.made("count", "naive") as votes:
        tables.run(f"UPDATE item SET vote_count = {most} WHERE id = 3")
        for ignore in ("", "IGNORE"):
            with pytest.raises(pymysql.err.DataError, match="Out of range"):
                tables.run(f"INSERT {ignore} INTO vote (item_id, user_id, val) VALUES (3, 1, 1)")
        assert tables.run("SELECT COUNT(*) FROM vote WHERE item_id = 3") == [(0,)]
    with tables.votes() as votes:
        votes.create_tables(existing_counts="recount")
        tables.run(f"INSERT INTO vote (item_id, user_id, val) VALUES (3, 1, {most})")
        with pytest.raises(pymysql.err.DataError, match="Out of range"):
            tables.run("UPDATE vote SET val = -2 WHERE item_id = 3")
        assert int(votes.count(3)) == most


def test_a_trigger_that_is_gone_comes_back(tables: VotesOfMariaDb) -> None:
    with tables.made("count") as votes:
        every = tables.triggers()
        assert votes.migration(outside_writes="count") == ""
        tables.run("DROP TRIGGER vote_hotcount_updated")
        assert votes.migration().count("CREATE TRIGGER") == 6
        votes.create_tables(outside_writes="count")
        assert tables.triggers() == every
        votes.create_tables(outside_writes="none")
        assert tables.triggers() == set()
        assert tables.run("SELECT * FROM vote_meta WHERE name = 'outside_writes'") == []


def test_a_script_for_the_client_makes_strict_triggers(tables: VotesOfMariaDb) -> None:
    engine = sa.create_engine(
        f"mysql+pymysql://root@/{tables.database}?unix_socket={tables.server.socket}"
    )
    with hotcount.Database(tables.url, timeout=20) as database:
        sides = BothSides("mariadb", database, engine, tables.url)
        make_likes(sides)
        votes = hotcount.Votes(database, **LIKES)
        run_script(sides, "SET SESSION sql_mode = '';\n" + votes.migration(outside_writes="count"))
        assert votes.migration(outside_writes="count") == ""
        modes = tables.run(
            "SELECT DISTINCT SQL_MODE FROM information_schema.TRIGGERS WHERE "
            f"TRIGGER_SCHEMA = '{tables.database}'"
        )
        assert len(modes) == 1
        assert "STRICT_ALL_TABLES" in modes[0][0]
        run(sides, "DELETE FROM blog_like WHERE post_id = 1 AND user_id = 1")
        run(sides, "INSERT INTO blog_like (user_id, post_id, created_at) VALUES (7, 3, NOW(6))")
        found = sides.engine.connect().exec_driver_sql(
            "SELECT i.id, (SELECT COUNT(*) FROM blog_like WHERE post_id = i.id) FROM blog_post AS i"
        )
        for post, likes in found:
            assert int(votes.count(post)) == likes
    engine.dispose()


def test_a_move_of_the_counts_waits_for_those_who_write(tables: VotesOfMariaDb) -> None:
    for isolation in ("READ COMMITTED", "REPEATABLE READ"):
        with tables.made("count", "naive"), tables.session() as (session, cursor):
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            cursor.execute("SELECT COUNT(*) FROM vote_meta")  # Its snapshot.
            cursor.execute("DELETE FROM vote WHERE item_id = 1 AND user_id = 1")
            with tables.votes() as batched:
                move = threading.Thread(target=batched.create_tables)
                move.start()
                eventually(lambda: tables.server.row_waits() > 0)
                cursor.execute("INSERT INTO vote (item_id, user_id, val) VALUES (2, 99, 1)")
                session.commit()
                move.join()
                assert tables.run(DRIFTS) == []
                cursor.execute("SELECT COUNT(*) FROM vote_meta")
                with tables.votes("naive") as back:
                    back.create_tables()
                # Its snapshot has the place of before.
                cursor.execute("DELETE FROM vote WHERE item_id = 2 AND user_id = 99")
                session.commit()
                assert tables.run(DRIFTS) == []
        tables.run("DELETE FROM vote")


def test_inserts_for_one_item_do_not_deadlock_at_its_count(tables: VotesOfMariaDb) -> None:
    with tables.made("count", "naive") as votes:
        begun = threading.Barrier(2)

        def insert(user: int) -> None:
            with tables.session() as (session, cursor):
                for turn in range(20):
                    begun.wait(20)
                    cursor.execute(
                        f"INSERT INTO vote (item_id, user_id, val) VALUES (3, {user + turn}, 1)"
                    )
                    session.commit()

        beside(lambda: insert(1000), lambda: insert(2000))
        assert counts(votes) == [4, 2, 40]


def test_a_statement_that_reads_the_items_is_refused_where_the_counts_are(
    tables: VotesOfMariaDb,
) -> None:
    delete = "DELETE v FROM vote AS v JOIN item AS i ON i.id = v.item_id WHERE i.id = 1"
    with tables.made("deletes", "naive") as votes:
        with pytest.raises(pymysql.err.OperationalError, match="1442"):
            tables.run(delete)
        assert counts(votes) == [4, 2, 0]
    with tables.votes() as votes:
        votes.create_tables()
        tables.run(delete)
        assert counts(votes) == [0, 2, 0]


def write_outside(tables: VotesOfMariaDb, seed: int, stop: threading.Event, **names: str) -> None:
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
        with suppress(pymysql.err.MySQLError), tables.session() as (session, cursor):
            cursor.execute(
                "SET SESSION TRANSACTION ISOLATION LEVEL "
                + draw.choice(["READ COMMITTED", "REPEATABLE READ"])
            )
            for _ in range(20):
                for _ in range(draw.randint(1, 4)):
                    cursor.execute(draw.choice(kinds)())
                if draw.random() < 0.1:
                    tables.server.execute(f"KILL {session.thread_id()}")
                draw.choice([session.commit, session.commit, session.rollback])()


def test_counts_are_the_rows_while_others_write_and_the_strategy_changes(
    tables: VotesOfMariaDb,
) -> None:
    strategies = ["batched", "naive", "slotted"]
    with tables.made("count", "naive"), tables.votes() as votes:
        tables.run("ALTER TABLE vote ALTER COLUMN val SET DEFAULT 1")
        stop = threading.Event()
        moved = 0

        def vote(first: int) -> None:
            draw = random.Random(first)
            with tables.votes() as own:
                while not stop.is_set():
                    with suppress(hotcount.ConfigError, hotcount.UnavailableError):
                        own.cast(
                            draw.choice(ITEMS), first + draw.randint(0, 9), draw.choice([0, 1])
                        )

        def look() -> None:
            while not stop.is_set():
                assert tables.run(DRIFTS) == []

        def move() -> None:
            nonlocal moved
            try:
                while moved < 12:
                    with tables.votes(strategies[moved % 3]) as other:
                        other.create_tables(outside_writes="count")
                    moved += 1
            finally:
                stop.set()

        beside(
            lambda: write_outside(tables, 10, stop),
            lambda: write_outside(tables, 20, stop),
            lambda: vote(5000),
            lambda: vote(6000),
            look,
            move,
        )
        assert tables.run(DRIFTS) == []
        votes.create_tables()
        assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("how", ["create_tables", "script"])
def test_tables_are_adopted_while_others_write(tables: VotesOfMariaDb, how: str) -> None:
    engine = sa.create_engine(
        f"mysql+pymysql://root@/{tables.database}?unix_socket={tables.server.socket}"
    )
    with hotcount.Database(tables.url, timeout=20) as database:
        sides = BothSides("mariadb", database, engine, tables.url)
        make_likes(sides)
        run(sides, "ALTER TABLE blog_like ALTER COLUMN created_at SET DEFAULT '2026-01-01'")
        votes = hotcount.Votes(database, **LIKES)
        if how == "create_tables":
            run(
                sides,
                "ALTER TABLE blog_post ADD COLUMN vote_count BIGINT NOT NULL DEFAULT 0",
                "ALTER TABLE blog_like ADD COLUMN val BIGINT NOT NULL DEFAULT 1, ADD COLUMN prev "
                "BIGINT NOT NULL DEFAULT 0, ADD COLUMN version BIGINT",
            )
        stop = threading.Event()
        names = {name: LIKES[name] for name in ("vote_table", "vote_item", "vote_user")}

        def adopt() -> None:
            try:
                if how == "create_tables":
                    votes.create_tables(outside_writes="count")
                while script := votes.migration(outside_writes="count"):
                    # A statement gives up soon; the next script has the rest.
                    with suppress(pymysql.err.OperationalError):
                        run_script(sides, script)
                for _ in range(300):
                    votes.cast(1, 77, 1)
                    votes.cast(1, 77, 0)
            finally:
                stop.set()

        beside(
            lambda: write_outside(tables, 10, stop, **names),
            lambda: write_outside(tables, 20, stop, **names),
            adopt,
        )
        assert tables.run(drifts("blog_like", "post_id")) == []
        assert votes.reconcile(dry_run=True) == []
    engine.dispose()
