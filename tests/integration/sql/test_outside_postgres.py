"""What others write to votes on PostgreSQL: cascades, partitions, poolers, adoption."""

from __future__ import annotations

import json
import random
import threading
from functools import partial
from typing import Any

import hotcount
import psycopg
import pytest
import sqlalchemy as sa
from hotcount.cli import main
from hotcount.integrations.sqlalchemy import cast_vote
from sqlalchemy import orm

from tests.support.eventually import eventually
from tests.support.pgbouncer_server import PgBouncer
from tests.support.postgres_votes import session
from tests.support.servers import PostgresDatabase, PostgresServer
from tests.support.sql_votes import open_votes
from tests.support.together import beside

pytestmark = pytest.mark.server

SUM = "SELECT COALESCE(SUM(val), 0) FROM vote WHERE item_id = "
LIKES = """
CREATE TABLE person (id bigint PRIMARY KEY);
CREATE TABLE post (id bigint PRIMARY KEY, likes bigint DEFAULT 0);
CREATE TABLE likes (
    post_id bigint NOT NULL REFERENCES post (id),
    person_id bigint NOT NULL REFERENCES person (id) ON DELETE CASCADE,
    PRIMARY KEY (post_id, person_id));
INSERT INTO person SELECT generate_series(1, 10);
INSERT INTO post (id) VALUES (1), (2);
INSERT INTO likes SELECT 1, id FROM person;
"""
NAMES: dict[str, Any] = {
    "item_table": "post",
    "item_count": "likes",
    "vote_table": "likes",
    "vote_item": "post_id",
    "vote_user": "person_id",
}


def open_likes(database: PostgresDatabase) -> hotcount.Votes:
    return open_votes(database, "batched", **NAMES)


def adopt(database: PostgresDatabase, form: Any) -> hotcount.Votes:
    database.run(LIKES)
    votes = open_likes(database)
    database.psql(votes.migration(outside_writes=form))
    assert votes.migration(outside_writes=form) == ""
    votes.create_tables(outside_writes=form)
    return votes


def test_deleted_users_leave_an_exact_count(postgres: PostgresDatabase) -> None:
    votes = adopt(postgres, "deletes")
    postgres.run("DELETE FROM person WHERE id <= 5")
    count = votes.count(1, consistency="exact")
    assert (count.value, count.exact) == (5, True)
    assert votes.reconcile(dry_run=True) == []


def test_a_cascade_that_nothing_counts_is_named(
    postgres: PostgresDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    def doctor() -> dict[str, Any]:
        capsys.readouterr()
        names = [f"--{name.replace('_', '-')}={value}" for name, value in NAMES.items()]
        main(["doctor", "--json", *names, postgres.url])
        (target,) = json.loads(capsys.readouterr().out)["targets"]
        (found,) = (each for each in target["findings"] if each["check"] == "outside writes")
        return dict(found)

    postgres.run(LIKES)
    votes = open_likes(postgres)
    text = votes.migration()
    assert "-- Warning: foreign key likes_person_id_fkey (ON DELETE CASCADE)" in text
    postgres.psql(text)
    votes.create_tables()
    postgres.run("DELETE FROM person WHERE id <= 5")
    count = votes.count(1, consistency="exact")
    assert (count.value, count.exact) == (10, False)
    assert votes.stats()["uncounted_cascades"] == ["likes_person_id_fkey (ON DELETE CASCADE)"]
    assert doctor()["state"] == "unsafe"
    assert "likes_person_id_fkey (ON DELETE CASCADE)" in doctor()["found"]
    votes.create_tables(outside_writes="deletes")
    votes.reconcile()
    assert (doctor()["state"], doctor()["found"][-12:]) == ("ok", "deleted rows")
    count = votes.count(1, consistency="exact")
    assert (count.value, count.exact, votes.stats()["outside_writes"]) == (5, True, "deletes")


def test_a_difference_that_was_found_ends_exact_until_it_is_reconciled(
    postgres: PostgresDatabase,
) -> None:
    votes = adopt(postgres, "deletes")
    postgres.run("INSERT INTO likes (post_id, person_id) VALUES (2, 3)")
    assert votes.count(2).exact
    assert len(votes.reconcile(dry_run=True)) == 1
    assert not votes.count(2).exact
    votes.reconcile()
    assert (votes.count(2).value, votes.count(2).exact) == (1, True)


def test_a_partition_and_a_cascade_into_it_are_counted(postgres: PostgresDatabase) -> None:
    postgres.run(
        LIKES.replace(
            "PRIMARY KEY (post_id, person_id));",
            "PRIMARY KEY (post_id, person_id)) PARTITION BY HASH (post_id);"
            "CREATE TABLE likes_0 PARTITION OF likes FOR VALUES WITH (modulus 2, remainder 0);"
            "CREATE TABLE likes_1 PARTITION OF likes FOR VALUES WITH (modulus 2, remainder 1);",
        )
    )
    votes = open_likes(postgres)
    # There an UPDATE that moves a row to another partition deletes it.
    with pytest.raises(hotcount.ConfigError, match="likes is partitioned"):
        votes.migration(outside_writes="deletes")
    postgres.psql(votes.migration(outside_writes="count"))
    votes.create_tables()
    votes.cast(2, 1)
    postgres.run("DELETE FROM person WHERE id = 1; DELETE FROM likes_0; DELETE FROM likes_1")
    assert [int(n) for n in votes.count_many([1, 2])] == [0, 0]
    assert votes.erase_user(2) == 0
    postgres.run(
        "INSERT INTO likes (post_id, person_id) VALUES (1, 7), (2, 8);"
        "UPDATE likes SET post_id = 3 - post_id"
    )
    votes.cast(1, 9)
    assert votes.reconcile(dry_run=True) == []


def test_data_that_looks_like_our_mark_is_counted(postgres: PostgresDatabase) -> None:
    """A client may put parameters into the text of a statement, and comments before it."""
    votes = open_votes(postgres, "batched", user_type=str)
    votes.create_tables(outside_writes="count")
    votes.add_items([1])
    users = ["WITH hc_own AS (SELECT 1) ", "*/ WITH hc_own", "hc_own"]
    votes.cast_many([1] * len(users), users)
    for user in users:
        postgres.run(f"/* {user[2:]} */ DELETE FROM vote WHERE user_id = '{user}'")
        postgres.run(f"INSERT INTO vote (item_id, user_id, val) VALUES (1, '{user}', 2)")
    assert int(votes.count(1)) == 2 * len(users)
    # Our own statements, as an application's hook may send them.
    engine = sa.create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:", 1))

    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def comment(*event: Any) -> tuple[str, Any]:
        return f"/* app=1 */ /* x */ {event[2]}", event[3]

    with engine.begin() as connection:
        cast_vote(connection, votes, 1, "somebody")
    engine.dispose()
    assert int(votes.count(1)) == 2 * len(users) + 1
    assert votes.reconcile(dry_run=True) == []


def test_nobody_else_makes_a_trigger_of_the_function_or_shadows_its_names(
    postgres: PostgresDatabase,
) -> None:
    database = postgres
    votes = open_votes(database, "batched")
    votes.create_tables(outside_writes="count")
    votes.add_items([1])
    role = database.role(grants="USAGE, CREATE ON SCHEMA {0}; SELECT, INSERT ON vote, item")
    database.run(
        f"SET ROLE {role}; CREATE FUNCTION current_setting(text) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'shadowed'; END $$"
    )
    database.run(f"SET ROLE {role}; INSERT INTO vote (item_id, user_id, val) VALUES (1, 5, 1)")
    assert int(votes.count(1)) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="vote_hotcount"):
        database.run(
            f"SET ROLE {role}; CREATE TEMP TABLE t (item_id bigint, val bigint); CREATE TRIGGER t"
            " AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION vote_hotcount()"
        )


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_truncate_at_a_snapshot_is_refused(postgres: PostgresDatabase, level: str) -> None:
    votes = adopt(postgres, "deletes")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="needs READ COMMITTED"):
        postgres.run(f"SET TRANSACTION ISOLATION LEVEL {level}; TRUNCATE likes")
    assert int(votes.count(1)) == 10


@pytest.mark.parametrize("strategy", ["batched", "naive"])
def test_a_key_that_moves_votes_is_counted_with_all_writes_alone(
    postgres: PostgresDatabase, strategy: Any
) -> None:
    postgres.run(
        LIKES.replace("REFERENCES post (id)", "REFERENCES post (id) ON UPDATE CASCADE").replace(
            " ON DELETE CASCADE", ""
        )
    )
    votes = open_votes(postgres, strategy, **NAMES)
    text = votes.migration(outside_writes="deletes")
    assert "likes_post_id_fkey (ON UPDATE CASCADE) changes rows of likes, and\n-- nothing" in text
    postgres.psql(votes.migration(outside_writes="count"))
    postgres.run("UPDATE post SET id = 3 WHERE id = 1")
    assert (int(votes.count(3)), votes.stats()["uncounted_cascades"]) == (10, [])


@pytest.mark.parametrize(
    "lost",
    [
        "DROP TRIGGER hotcount_updated ON vote",
        "ALTER TABLE vote DISABLE TRIGGER hotcount_deleted",
        "ALTER TABLE vote_anonymous ENABLE REPLICA TRIGGER hotcount_inserted",
    ],
)
def test_triggers_of_which_one_is_gone_are_made_again(
    postgres: PostgresDatabase, lost: str
) -> None:
    votes = open_votes(postgres, "batched")
    votes.create_tables(outside_writes="count")
    postgres.run(lost)
    assert votes.stats()["outside_writes"] == "none"
    assert "CREATE TRIGGER" in votes.migration(outside_writes="count")
    votes.create_tables(outside_writes="count")
    assert votes.stats()["outside_writes"] == "count"
    assert votes.migration(outside_writes="count") == ""
    votes.create_tables(outside_writes="none")
    ours = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = 'vote'::regclass"
    assert postgres.psql(ours) == "0"


def test_a_trigger_of_the_applications_own_below_our_statement_is_counted(
    postgres: PostgresDatabase,
) -> None:
    votes = adopt(postgres, "count")
    postgres.run(
        "CREATE FUNCTION also() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.post_id = 1 THEN INSERT INTO likes (post_id, person_id) VALUES (2, NEW.person_id);"
        " END IF; RETURN NULL; END $$;"
        "CREATE TRIGGER also AFTER INSERT ON likes FOR EACH ROW EXECUTE FUNCTION also();"
        "INSERT INTO person VALUES (77)"
    )
    votes.cast(1, 77)
    assert [int(n) for n in votes.count_many([1, 2])] == [11, 1]
    assert votes.reconcile(dry_run=True) == []


def test_what_cannot_be_had_is_refused_before_anything_changes(postgres: PostgresDatabase) -> None:
    database = postgres
    database.run(LIKES)
    rights = "SELECT, INSERT, UPDATE, DELETE, REFERENCES ON post, likes, person"
    role = database.role(grants="USAGE, CREATE ON SCHEMA {0}; " + rights)
    poor = open_votes(database.url_for(role), "batched", **NAMES)
    with pytest.raises(hotcount.ConfigError, match="no TRIGGER privilege on table likes"):
        poor.migration(outside_writes="deletes")
    database.run(
        "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER hotcount_deleted AFTER DELETE ON likes EXECUTE FUNCTION mine()"
    )
    votes = open_likes(database)
    tables = database.psql("SELECT count(*) FROM pg_class")
    for call in (votes.migration, votes.create_tables):
        with pytest.raises(
            hotcount.ConfigError, match="trigger hotcount_deleted of table likes is not"
        ):
            call(outside_writes="count")
    database.run(
        "DROP TRIGGER hotcount_deleted ON likes;"
        "CREATE FUNCTION likes_hotcount() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    )
    with pytest.raises(hotcount.ConfigError, match=r"function likes_hotcount\(\) is not"):
        votes.migration(outside_writes="deletes")
    assert database.psql("SELECT count(*) FROM pg_class") == tables


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_of_before_a_move_of_the_counts_counts_in_no_old_place(
    postgres: PostgresDatabase, level: str
) -> None:
    database = hotcount.Database(postgres.url, timeout=20)
    naive = hotcount.Votes(database, None, "naive")
    naive.create_tables(outside_writes="count")
    naive.add_items([1])
    naive.cast(1, 1)
    with session(postgres) as other:
        other.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        other.execute("SELECT count(*) FROM item")
        batched = hotcount.Votes(database)
        batched.create_tables()
        try:
            other.execute("INSERT INTO vote (item_id, user_id, val) VALUES (1, 2, 1)")
            other.commit()
        except psycopg.errors.SerializationFailure:
            assert level != "READ COMMITTED"
            other.rollback()
    assert int(batched.count(1)) == int(postgres.psql(SUM + "1"))


def test_counts_behind_pgbouncer_have_casts_and_an_orms_deletes_of_one_transaction() -> None:
    with PostgresServer().started() as server, PgBouncer(server).started() as pooler:
        votes = open_votes(pooler.url(), "batched")
        votes.create_tables(outside_writes="count")
        votes.add_items([1])
        engine = sa.create_engine(
            pooler.url().replace("postgresql:", "postgresql+psycopg:", 1),
            connect_args={"prepare_threshold": None},
        )
        for turn in range(5):
            with orm.Session(engine) as one:
                for user in (1, 2, 3):
                    cast_vote(one, votes, 1, 10 * turn + user)
                one.execute(sa.text(f"DELETE FROM vote WHERE user_id = {10 * turn + 1}"))
                cast_vote(one, votes, 1, 10 * turn + 4, 2)
                one.commit()
            votes.cast(1, 10 * turn + 5)
        engine.dispose()
        assert int(votes.count(1)) == int(server.psql(SUM + "1")) == 5 * 5


def test_tables_are_adopted_beside_an_application_that_goes_on(postgres: PostgresDatabase) -> None:
    postgres.run(LIKES)
    votes = open_likes(postgres)
    text = votes.migration(outside_writes="count")
    written: list[int] = []

    def application(ended: threading.Event, seed: int) -> None:
        drawn = random.Random(seed)
        with session(postgres) as other:
            while not ended.is_set():
                insert = (
                    "INSERT INTO likes (post_id, person_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
                )
                delete = "DELETE FROM likes WHERE post_id = %s AND person_id = %s"
                which = insert if drawn.random() < 0.5 else delete
                other.execute(which, (drawn.randint(1, 2), drawn.randint(1, 10)))
                other.commit()
                written.append(1)

    with beside(*(partial(application, seed=seed) for seed in range(3))):
        eventually(lambda: len(written) > 50)
        postgres.psql(text)
        seen = len(written)
        eventually(lambda: len(written) > seen + 100)
    assert votes.migration(outside_writes="count") == ""
    assert votes.reconcile(dry_run=True) == []
