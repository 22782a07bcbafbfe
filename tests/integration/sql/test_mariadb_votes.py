"""Votes on MariaDB: batches against a model, ids that collide, tables that were there before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Cast
from hotcount.integrations.sqlalchemy import cast_vote

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.sqlalchemy_side import both_sides
from tests.support.together import together

pytestmark = pytest.mark.server

STRATEGIES = ["naive", "slotted", "batched"]
ALL = [*STRATEGIES, "cached"]


def make(url: str, strategy: str = "batched", **options: Any) -> hotcount.Votes:
    cache = hotcount.Memory() if strategy == "cached" else None
    return hotcount.Votes(hotcount.Database(url, timeout=20), cache, strategy, **options)  # type: ignore[arg-type]


@pytest.fixture
def url(mariadb_server: MariaDbServer, mariadb_database: str) -> str:
    return mariadb_server.url(mariadb_database)


# -- batches ----------------------------------------------------------------


class Model:
    """One vote after the other."""

    def __init__(self) -> None:
        self.votes: dict[tuple[int, int], int] = {}

    def cast(self, item: int, user: int, value: int) -> Cast:
        previous = self.votes.get((item, user), 0)
        self.votes[item, user] = value
        return Cast(counted=value != 0, changed=value != previous, previous=previous, value=value)

    def count(self, item: int) -> int:
        return sum(value for (of, _), value in self.votes.items() if of == item)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batches_of_new_old_and_repeated_votes_end_as_one_by_one(url: str, strategy: str) -> None:
    votes = make(url, strategy)
    votes.create_tables()
    items = range(1, 6)
    votes.add_items(list(items))
    model = Model()
    draw = random.Random(5)
    # Sizes that a statement takes at once, one that it does not, and one that is padded.
    for size in (1, 2, 3, 40, 64, 65, 200, 700):
        cast = [
            (draw.choice(items), draw.randrange(3 * size), draw.choice([-1, 0, 1, 5]))
            for _ in range(size)
        ]
        answers = votes.cast_many(*(list(column) for column in zip(*cast, strict=True)))
        assert list(answers) == [model.cast(*one) for one in cast]
        for item in items:
            assert int(votes.count(item)) == model.count(item)
    assert votes.reconcile(dry_run=True) == []


def test_votes_for_items_that_are_not_there_fail_alone(url: str) -> None:
    votes = make(url)
    votes.create_tables()
    votes.add_items([1, 3])
    items = [1, 2, 3, 4] * 10
    answers = votes.cast_many(items, list(range(40)), errors="return")
    assert sorted(answers.errors) == [i for i, item in enumerate(items) if item in (2, 4)]
    for index, error in answers.errors.items():
        assert isinstance(error, hotcount.IntegrityError)
        assert f"item {items[index]}, which does not exist" in str(error)
    assert [int(votes.count(item)) for item in (1, 2, 3, 4)] == [10, 0, 10, 0]
    # All of them from one transaction.
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_writers_on_few_items_never_see_a_deadlock(url: str, strategy: str) -> None:
    votes = make(url, strategy)
    votes.create_tables()
    votes.add_items([1, 2, 3, 4])

    def vote(user: int) -> int:
        items = [1, 2, 3, 4] if user % 2 else [4, 3, 2, 1]
        answers = votes.cast_many(items * 3, [user] * 12)
        return sum(answer.changed for answer in answers)

    assert together(vote, 64) == [4] * 64
    assert [int(votes.count(item)) for item in (1, 2, 3, 4)] == [64] * 4
    assert votes.reconcile(dry_run=True) == []


def test_two_databases_objects_on_one_hot_item_agree(url: str) -> None:
    # Other options make it another object, as in another process: two leaders at once.
    one = make(url)
    one.create_tables()
    one.add_items([1])
    other = hotcount.Votes(hotcount.Database(url, timeout=19))
    together(lambda user: (one, other)[user % 2].cast(1, user // 4), 64)
    assert int(one.count(1)) == 16
    assert one.reconcile(dry_run=True) == []


# -- ids --------------------------------------------------------------------

COLLIDING = ["a", "A", "a ", "ä", "A\u0308", "\u00e9", "e", "ss", "ß", "'", '"', "\\", "%", "💡"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ids_that_a_collation_takes_for_one_are_several(url: str, strategy: str) -> None:
    votes = make(url, strategy, item_type=str, user_type=str)
    votes.create_tables()
    votes.add_items(COLLIDING)
    items = [item for item in COLLIDING for _ in COLLIDING]
    answers = votes.cast_many(items, COLLIDING * len(COLLIDING))
    assert all(answer.changed for answer in answers)
    assert [int(count) for count in votes.count_many(COLLIDING)] == [len(COLLIDING)] * len(
        COLLIDING
    )
    again = votes.cast_many(items, COLLIDING * len(COLLIDING))
    assert not any(answer.changed for answer in again)


def test_the_longest_ids_are_counted_apart(url: str) -> None:
    votes = make(url, item_type=str, user_type=str)
    votes.create_tables()
    item = "i" * 1000
    votes.add_items([item])
    users = ["u" * 999 + letter for letter in "abc"]
    votes.cast_many([item] * 3, users)
    assert int(votes.count(item)) == 3
    assert not votes.cast(item, users[0]).changed


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_names_of_tables_and_columns_are_quoted(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    votes = make(
        mariadb_server.url(mariadb_database),
        strategy,
        item_table='it"em',
        item_id="select",
        item_count="o'count",
        vote_table="vo`te ?1",
        vote_item="the item",
        vote_user="üser",
    )
    votes.create_tables()
    votes.create_tables()
    votes.add_items([1, 2])
    votes.cast_many([1, 1, 2], [7, 8, 7])
    votes.cast_many([1, 1, 2], [7, 8, 7], [5, 1, 0])
    assert [int(votes.count(item)) for item in (1, 2)] == [6, 0]
    assert votes.reconcile(dry_run=True) == []


# -- tables that were there before ------------------------------------------


@pytest.mark.parametrize("strategy", ALL)
def test_an_item_table_whose_ids_ignore_case_has_one_count_for_all_spellings(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    mariadb_server.execute(
        "CREATE TABLE item (id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci "
        "PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        database=mariadb_database,
    )
    mariadb_server.execute("INSERT INTO item (id) VALUES ('Post')", database=mariadb_database)
    votes = make(mariadb_server.url(mariadb_database), strategy, item_type=str)
    votes.create_tables()
    answers = votes.cast_many(["Post", "post", "POST", "post"], [1, 1, 2, 3])
    assert [answer.changed for answer in answers] == [True, False, True, True]
    spellings = ["Post", "post", "pOsT", "post "]
    assert [int(count) for count in votes.count_many(spellings)] == [3] * 4
    assert votes.flush().pending == 0
    assert mariadb_server.execute("SELECT id, vote_count FROM item", database=mariadb_database) == [
        ("Post", 3)
    ]
    # And once more where the counts are known: each spelling moves the one count.
    votes.cast_many(["POST", "post ", "Post"], [4, 5, 6])
    assert [int(count) for count in votes.count_many(spellings)] == [6] * 4
    assert [int(votes.count(each, consistency="exact")) for each in spellings] == [6] * 4
    assert votes.reconcile(dry_run=True) == []
    assert votes.reconcile(["pOST"]) == []
    assert votes.flush().pending == 0


@pytest.fixture
def folding_case(mariadb_server: MariaDbServer, mariadb_database: str) -> hotcount.Votes:
    """Ids of items and users ignore case; one item, "Post"."""
    mariadb_server.execute(
        "CREATE TABLE item (id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci "
        "PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        database=mariadb_database,
    )
    mariadb_server.execute(
        "CREATE TABLE vote (item_id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, "
        "user_id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, "
        "val BIGINT NOT NULL, prev BIGINT NOT NULL, version BIGINT, "
        "PRIMARY KEY (item_id, user_id), FOREIGN KEY (item_id) REFERENCES item (id))",
        database=mariadb_database,
    )
    votes = make(
        mariadb_server.url(mariadb_database),
        "batched",
        item_type=str,
        user_type=str,
        fold_interval=3600,
    )
    votes.create_tables()
    votes.add_items(["Post"])
    return votes


def test_a_fold_of_another_spelling_shows_the_count(
    mariadb_server: MariaDbServer, mariadb_database: str, folding_case: hotcount.Votes
) -> None:
    for number, spelling in enumerate(("Post", "pOsT ", "post"), 1):
        folding_case.cast(spelling, f"user {number}")
        assert folding_case.flush(20).pending == 0
        rows = mariadb_server.execute("SELECT vote_count FROM item", database=mariadb_database)
        assert rows == [(number,)]


def test_the_last_of_one_call_s_votes_stands_however_its_ids_are_spelled(
    folding_case: hotcount.Votes,
) -> None:
    folding_case.cast_many(["post", "POST", "Post"], ["u", "U", "u"], [1, 2, 3])
    assert int(folding_case.count("Post")) == 3
    folding_case.cast_many(["post", "POST"], ["u", "U"], [7, 0])
    assert int(folding_case.count("Post")) == 0
    assert folding_case.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", ALL)
@pytest.mark.parametrize("character_set", ["latin1", "utf8mb3", "ucs2"])
def test_an_item_table_whose_ids_have_other_bytes_is_counted(
    mariadb_server: MariaDbServer, mariadb_database: str, character_set: str, strategy: str
) -> None:
    mariadb_server.execute(
        f"CREATE TABLE item (id VARCHAR(40) CHARACTER SET {character_set} PRIMARY KEY, "
        "vote_count BIGINT NOT NULL DEFAULT 0)",
        database=mariadb_database,
    )
    url = mariadb_server.url(mariadb_database)
    votes = make(url, strategy, item_type=str, user_type=int)
    votes.create_tables()
    items = ["größe", "plain"]
    votes.add_items(items)
    for user in range(3):
        assert all(votes.cast_many(items, [user, user]).changed)
        assert votes.flush().pending == 0
    # A cache that has lost everything knows what was saved.
    for each in (votes, make(url, strategy, item_type=str, user_type=int)):
        assert [int(count) for count in each.count_many(items)] == [3, 3]
    rows = "SELECT vote_count FROM item"
    assert mariadb_server.execute(rows, database=mariadb_database) == [(3,), (3,)]
    assert votes.reconcile(dry_run=True) == []


def test_a_recount_asked_for_under_another_spelling_is_of_the_one_count(
    request: pytest.FixtureRequest, database_path: Path
) -> None:
    sides = both_sides(request, "mariadb", database_path)
    with sides.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE item (id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci "
            "PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)"
        )
    votes = hotcount.Votes(
        sides.database, hotcount.Memory(), "cached", item_type=str, user_type=int
    )
    votes.create_tables()
    votes.add_items(["Post"])
    votes.cast("Post", 1)
    with sides.engine.begin() as connection:
        cast_vote(connection, votes, "pOST", 2)
    assert votes.flush().pending == 0
    assert int(votes.count("Post")) == 2
    assert votes.reconcile(dry_run=True) == []
    sides.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("id_type", ["INT UNSIGNED", "BIGINT UNSIGNED", "SMALLINT"])
def test_an_item_table_with_other_integers_and_a_nullable_count_is_counted(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str, id_type: str
) -> None:
    mariadb_server.execute(
        f"CREATE TABLE post (no {id_type} AUTO_INCREMENT PRIMARY KEY, title TEXT, likes INT)",
        database=mariadb_database,
    )
    mariadb_server.execute(
        "INSERT INTO post (title) VALUES ('one'), ('two')", database=mariadb_database
    )
    votes = make(
        mariadb_server.url(mariadb_database),
        strategy,
        item_table="post",
        item_id="no",
        item_count="likes",
    )
    votes.create_tables()
    votes.cast_many([1, 1, 2], [7, 8, 7])
    votes.flush()
    rows = mariadb_server.execute("SELECT no, likes FROM post", database=mariadb_database)
    assert rows == [(1, 2), (2, 1)]
    with pytest.raises(hotcount.IntegrityError, match="item 9, which does not exist"):
        votes.cast(9, 7)


def test_a_count_that_does_not_fit_its_column_stays_behind_and_is_exact_all_the_same(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    mariadb_server.execute(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count TINYINT NOT NULL DEFAULT 0)",
        database=mariadb_database,
    )
    votes = make(mariadb_server.url(mariadb_database))
    votes.create_tables()
    votes.add_items([1, 2])
    votes.cast_many([1, 1, 2], [7, 8, 7], [100, 100, 1])
    assert int(votes.count(1)) == 200
    assert int(votes.count(2)) == 1

    def shown() -> list[tuple[int, int]]:
        return mariadb_server.execute(
            "SELECT id, vote_count FROM item WHERE id = 2", database=mariadb_database
        )

    # The fold that fails is halved by item.
    eventually(lambda: shown() == [(2, 1)])
    assert int(votes.count(1)) == 200


def test_a_table_that_lacks_a_column_is_named(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    mariadb_server.execute("CREATE TABLE item (id BIGINT PRIMARY KEY)", database=mariadb_database)
    votes = make(mariadb_server.url(mariadb_database))
    with pytest.raises(hotcount.ConfigError, match=r"column item.vote_count.*migration\(\)"):
        votes.create_tables()


def test_votes_written_past_us_are_found_and_counted(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    votes = make(mariadb_server.url(mariadb_database))
    votes.create_tables()
    votes.add_items([1])
    votes.cast_many([1] * 3, [1, 2, 3])
    mariadb_server.execute(
        "INSERT INTO vote (item_id, user_id, val) VALUES (1, 4, 1)", database=mariadb_database
    )
    [drift] = votes.reconcile()
    assert (drift.counted, drift.actual) == (3, 4)
    assert int(votes.count(1)) == 4


@pytest.mark.mysql_only
@pytest.mark.parametrize(
    "change",
    [
        "RENAME INDEX pair TO another_name",
        "ALTER INDEX pair INVISIBLE",
        "ADD UNIQUE INDEX other (user_id, item_id), DROP INDEX pair",
    ],
)
def test_a_key_of_votes_may_change_while_a_process_votes(
    mariadb_server: MariaDbServer, mariadb_database: str, change: str
) -> None:
    def run_here(statement: str) -> None:
        mariadb_server.execute(statement, database=mariadb_database)

    run_here("CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)")
    run_here(
        "CREATE TABLE vote (id BIGINT AUTO_INCREMENT PRIMARY KEY, item_id BIGINT NOT NULL, "
        "user_id BIGINT NOT NULL, val BIGINT NOT NULL, prev BIGINT NOT NULL DEFAULT 0, "
        "version BIGINT, UNIQUE INDEX pair (item_id, user_id), INDEX of_items (item_id))"
    )
    url = mariadb_server.url(mariadb_database)
    votes = make(url, "batched", item_type=int, user_type=int, foreign_key=False)
    votes.create_tables()
    votes.add_items([1, 2])
    votes.cast_many([1, 2], [1, 1])
    run_here(f"ALTER TABLE vote {change}")
    for each in (votes, make(url, "batched", item_type=int, user_type=int, foreign_key=False)):
        assert all(each.cast_many([1, 2, 1], [2, 2, 3], errors="raise").counted)
        assert each.cast(1, 4).counted
    assert [int(count) for count in votes.count_many([1, 2])] == [4, 2]
    assert votes.reconcile(dry_run=True) == []
