"""The application's own tables: what one server has and no other, named before anything changes."""

from __future__ import annotations

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.eventually import eventually
from tests.support.likes import LIKES
from tests.support.mariadb_server import MariaDbServer
from tests.support.mariadb_votes import MariaDbSide
from tests.support.postgres_votes import in_background
from tests.support.servers import PostgresDatabase
from tests.support.sql_scripts import run_script
from tests.support.sqlalchemy_side import BothSides


def test_votes_of_items_that_are_gone_are_named_and_the_rest_of_a_script_goes_on(
    postgres: PostgresDatabase,
) -> None:
    url = postgres.url
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    sides = BothSides("postgresql", hotcount.Database(url, timeout=20), engine, url)
    sides.run(
        "CREATE TABLE blog_post (id BIGINT PRIMARY KEY)",
        "CREATE TABLE blog_like (post_id BIGINT NOT NULL, user_id BIGINT NOT NULL)",
        "INSERT INTO blog_post VALUES (1)",
        "INSERT INTO blog_like VALUES (1, 1), (77, 1)",
    )
    votes = hotcount.Votes(sides.database, **LIKES)
    with pytest.raises(hotcount.ConfigError, match=r"votes for items.*example item 77"):
        votes.migration()
    assert hotcount.Votes(sides.database, foreign_key=False, **LIKES).migration()
    sides.run("DELETE FROM blog_like WHERE post_id = 77")
    # One that comes while the script runs: the key is there then, and not checked.
    script = votes.migration()
    added, checks = script.split(
        "BEGIN;\nSET LOCAL lock_timeout = '2s';\nALTER TABLE \"blog_like\" VALIDATE", 1
    )
    assert "NOT VALID" in added
    assert checks
    run_script(sides, added)
    rest = votes.migration()
    assert "NOT VALID" not in rest
    assert "VALIDATE CONSTRAINT" in rest
    run_script(sides, rest)
    assert votes.migration() == ""
    assert int(votes.count(1)) == 1
    sides.close()


def test_policies_that_hide_votes_from_the_role_are_refused(postgres: PostgresDatabase) -> None:
    schema = postgres.schema
    role = f"r{schema}"
    with hotcount.Votes(postgres.url, **LIKES) as votes:
        postgres.psql(
            "CREATE TABLE blog_post (id BIGINT PRIMARY KEY); CREATE TABLE blog_like (post_id "
            "BIGINT NOT NULL, user_id BIGINT NOT NULL, UNIQUE (post_id, user_id)); "
            "INSERT INTO blog_post VALUES (1); INSERT INTO blog_like VALUES (1, 1), (1, 2)"
        )
        engine = sa.create_engine("sqlite://")
        sides = BothSides(
            "postgresql", hotcount.Database(votes_url := postgres.url), engine, votes_url
        )
        run_script(sides, votes.migration())
        sides.close()
    postgres.psql(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT, "
        f"INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; ALTER TABLE "
        "blog_like ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON blog_like USING (user_id = 1)"
    )
    with hotcount.Votes(postgres.url_for(role), **LIKES) as votes:
        for ask in (votes.create_tables, votes.migration):
            with pytest.raises(hotcount.ConfigError, match=r"blog_like has row-level security"):
                ask()
        postgres.psql(
            "DROP POLICY own ON blog_like; CREATE POLICY all_of ON blog_like USING (true)"
        )
        votes.create_tables()
        assert int(votes.count(1)) == 2
    postgres.psql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_what_a_partitioned_table_cannot_get_beside_voters_is_named(
    postgres: PostgresDatabase,
) -> None:
    postgres.psql(
        "CREATE TABLE blog_post (id BIGINT PRIMARY KEY); CREATE TABLE blog_like (post_id BIGINT "
        "NOT NULL, user_id BIGINT NOT NULL) PARTITION BY HASH (post_id); CREATE TABLE part "
        "PARTITION OF blog_like FOR VALUES WITH (MODULUS 1, REMAINDER 0); INSERT INTO blog_post "
        "VALUES (1); INSERT INTO blog_like VALUES (1, 1), (1, 2)"
    )
    with hotcount.Database(postgres.url, timeout=20) as database:
        votes = hotcount.Votes(database, **LIKES)
        with pytest.raises(hotcount.ConfigError, match=r"no unique key over.*partitioned"):
            votes.migration()
        postgres.psql("CREATE UNIQUE INDEX ON blog_like (post_id, user_id)")
        with pytest.raises(hotcount.ConfigError, match=r"no foreign key.*foreign_key=False"):
            votes.migration()
        votes = hotcount.Votes(database, foreign_key=False, **LIKES)
        sides = BothSides("postgresql", database, sa.create_engine("sqlite://"), postgres.url)
        run_script(sides, votes.migration())
        assert votes.migration() == ""
        assert not votes.cast(1, 2).changed
        assert votes.cast(1, 3).changed
        assert int(votes.count(1)) == 3


@pytest.mark.parametrize(
    ("post", "like", "said", "without"),
    [
        ("id BIGINT PRIMARY KEY)", "post_id INT NOT NULL{})", r"ids of type int.*bigint", True),
        (
            "id BIGINT PRIMARY KEY)",
            "post_id BIGINT UNSIGNED NOT NULL{})",
            r"ids of type bigint.*unsigned in post_id",
            True,
        ),
        (
            "id BIGINT PRIMARY KEY)",
            "post_id BIGINT NOT NULL{}) PARTITION BY HASH (post_id) PARTITIONS 2",
            r"It is partitioned",
            True,
        ),
        (
            "id BIGINT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2",
            "post_id BIGINT NOT NULL{})",
            r"refers to a partitioned table",
            True,
        ),
        (
            "id BIGINT PRIMARY KEY, title TEXT, FULLTEXT (title))",
            "post_id BIGINT NOT NULL{})",
            r"lacks column vote_count. It has a FULLTEXT index.*item_count=None",
            False,
        ),
        (
            "id BIGINT PRIMARY KEY)",
            "post_id BIGINT NOT NULL{}, note TEXT, FULLTEXT (note))",
            r"blog_like lacks column val. It has a FULLTEXT index",
            False,
        ),
        (
            "id BIGINT PRIMARY KEY) ENGINE=MyISAM",
            "post_id BIGINT NOT NULL{})",
            r"table blog_post is of the engine MyISAM",
            False,
        ),
        pytest.param(
            "id BIGINT PRIMARY KEY)",
            "post_id BIGINT NOT NULL{}) ENGINE=Aria",
            r"table blog_like is of the engine Aria",
            False,
            marks=pytest.mark.mariadb_only("its own engine"),
        ),
        (
            "id BIGINT PRIMARY KEY)",
            "post_id BIGINT NOT NULL, user VARCHAR(50), UNIQUE (post_id, user(2)){})",
            r"unique key over post_id, user",
            False,
        ),
    ],
)
def test_what_mariadb_cannot_do_is_named_before_anything_changes(
    mariadb_server: MariaDbServer,
    mariadb_database: str,
    post: str,
    like: str,
    said: str,
    without: bool,
) -> None:
    def run_here(statement: str) -> None:
        mariadb_server.execute(statement, database=mariadb_database)

    user = "" if "user VARCHAR" in like else ", user BIGINT NOT NULL"
    run_here(f"CREATE TABLE blog_post ({post}")
    run_here(f"CREATE TABLE blog_like ({like.format(user)}")
    run_here("INSERT INTO blog_post (id) VALUES (1)")
    run_here("INSERT INTO blog_like (post_id, user) VALUES (1, 1), (1, 2)")
    names = {**LIKES, "vote_user": "user", "user_type": int if user else str}
    with hotcount.Database(mariadb_server.url(mariadb_database), timeout=20) as database:
        with pytest.raises(hotcount.ConfigError, match=said) as refused:
            hotcount.Votes(database, **names).migration()
        assert "Nothing was changed" in str(refused.value)
        if not without:
            return
        votes = hotcount.Votes(database, foreign_key=False, **names)
        engine = sa.create_engine(
            f"mysql+pymysql://root@/{mariadb_database}?unix_socket={mariadb_server.socket}"
        )
        run_script(BothSides("mariadb", database, engine, ""), votes.migration())
        engine.dispose()
        assert votes.cast(1, 9).changed
        assert int(votes.count(1)) == 3


def test_a_refusal_waits_for_the_process_that_takes_the_counts_over(maria: MariaDbSide) -> None:
    maria.run(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL)",
        "INSERT INTO item VALUES (1, 500)",
    )
    with maria.votes("naive") as first:
        first.create_tables(existing_counts="keep")
    marks = maria.run("SELECT name, value FROM vote_meta WHERE name <> 'schema'")
    balances = maria.run("SELECT item, slot, n, ver FROM vote_cell")
    maria.run("DELETE FROM vote_meta WHERE name <> 'schema'", "DELETE FROM vote_cell")
    maria.run("DROP TABLE vote_anonymous")
    with maria.votes("naive") as votes:
        with maria.held("SELECT * FROM vote_meta FOR UPDATE") as session:
            creation = in_background(votes.create_tables)
            eventually(lambda: maria.lock_waits() == 1)
            with session.cursor() as cursor:
                cursor.executemany("INSERT INTO vote_meta (name, value) VALUES (%s, %s)", marks)
                cursor.executemany(
                    "INSERT INTO vote_cell (item, slot, n, ver) VALUES (%s, %s, %s, %s)", balances
                )
            session.commit()
        assert creation() is None
        assert votes.cast(1, 7).changed
        assert int(votes.count(1)) == 501
