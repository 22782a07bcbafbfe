"""Votes on MariaDB: batches against a model, ids that collide, tables that were there before."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import hotcount
import pytest
from hotcount import Cast
from hotcount.integrations.sqlalchemy import cast_vote

from tests.support.eventually import eventually
from tests.support.mariadb_votes import MariaDbSide
from tests.support.sql_votes import STRATEGIES, open_votes
from tests.support.sqlalchemy_side import BACKENDS, BothSides

pytestmark = pytest.mark.server

ALL = [*STRATEGIES, "cached"]
FOLDING = "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
FOLDING_ITEMS = (
    f"CREATE TABLE item (id {FOLDING} PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)"
)


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


def test_batches_of_new_old_and_repeated_votes_end_as_one_by_one(
    maria: MariaDbSide, strategy: str
) -> None:
    votes = maria.new(strategy)
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


COLLIDING = ["a", "A", "a ", "ä", "A\u0308", "\u00e9", "e", "ss", "ß", "'", '"', "\\", "%", "💡"]


def test_ids_that_a_collation_takes_for_one_are_several(maria: MariaDbSide, strategy: str) -> None:
    votes = maria.votes(strategy, item_type=str, user_type=str)
    votes.create_tables()
    votes.add_items(COLLIDING)
    items = [item for item in COLLIDING for _ in COLLIDING]
    answers = votes.cast_many(items, COLLIDING * len(COLLIDING))
    assert all(answer.changed for answer in answers)
    assert {int(count) for count in votes.count_many(COLLIDING)} == {len(COLLIDING)}
    again = votes.cast_many(items, COLLIDING * len(COLLIDING))
    assert not any(answer.changed for answer in again)


@pytest.mark.parametrize("strategy", ALL)
def test_an_item_table_whose_ids_ignore_case_has_one_count_for_all_spellings(
    maria: MariaDbSide, strategy: str
) -> None:
    maria.run(FOLDING_ITEMS, "INSERT INTO item (id) VALUES ('Post')")
    votes = maria.votes(strategy, item_type=str)
    votes.create_tables()
    answers = votes.cast_many(["Post", "post", "POST", "post"], [1, 1, 2, 3])
    assert [answer.changed for answer in answers] == [True, False, True, True]
    spellings = ["Post", "post", "pOsT", "post "]
    assert [int(count) for count in votes.count_many(spellings)] == [3] * 4
    assert votes.flush().pending == 0
    assert maria.run("SELECT id, vote_count FROM item") == [("Post", 3)]
    # And once more where the counts are known: each spelling moves the one count.
    votes.cast_many(["POST", "post ", "Post"], [4, 5, 6])
    assert [int(count) for count in votes.count_many(spellings)] == [6] * 4
    assert [int(votes.count(each, consistency="exact")) for each in spellings] == [6] * 4
    assert votes.reconcile(dry_run=True) == []
    assert votes.reconcile(["pOST"]) == []
    assert votes.flush().pending == 0


@pytest.fixture
def folding_case(maria: MariaDbSide) -> hotcount.Votes:
    """Ids of items and users ignore case; one item, "Post"."""
    maria.run(
        FOLDING_ITEMS,
        f"CREATE TABLE vote (item_id {FOLDING}, user_id {FOLDING}, "
        "val BIGINT NOT NULL, prev BIGINT NOT NULL, version BIGINT, "
        "PRIMARY KEY (item_id, user_id), FOREIGN KEY (item_id) REFERENCES item (id))",
    )
    votes = maria.votes(item_type=str, user_type=str, fold_interval=3600)
    votes.create_tables()
    votes.add_items(["Post"])
    return votes


def test_a_fold_of_another_spelling_shows_the_count(
    maria: MariaDbSide, folding_case: hotcount.Votes
) -> None:
    for number, spelling in enumerate(("Post", "pOsT ", "post"), 1):
        folding_case.cast(spelling, f"user {number}")
        assert folding_case.flush(20).pending == 0
        assert maria.run("SELECT vote_count FROM item") == [(number,)]


def test_the_last_of_one_call_s_votes_stands_however_its_ids_are_spelled(
    folding_case: hotcount.Votes,
) -> None:
    folding_case.cast_many(["post", "POST", "Post"], ["u", "U", "u"], [1, 2, 3])
    assert int(folding_case.count("Post")) == 3
    folding_case.cast_many(["post", "POST"], ["u", "U"], [7, 0])
    assert int(folding_case.count("Post")) == 0
    # So many would be written item by item, and the last one with those for "Post".
    crowd = [str(number) for number in range(1_200)]
    folding_case.cast_many(
        ["Post"] * len(crowd) + ["post", "Post"], [*crowd, "u", "U"], [1] * len(crowd) + [5, 7]
    )
    assert int(folding_case.count("Post")) == len(crowd) + 7
    assert folding_case.reconcile(dry_run=True) == []


@pytest.mark.mariadb_only("MySQL is asked again for a held row, so nothing shows that a vote waits")
def test_a_held_vote_stops_no_user_whose_id_differs_in_case(maria: MariaDbSide) -> None:
    users = ["anna", "Anna", "aNNa", "ANNA"]  # Four users: the columns compare bytes.
    with (
        hotcount.Database(maria.url, timeout=10) as database,
        ThreadPoolExecutor(1) as thread,
    ):
        votes = hotcount.Votes(database, user_type=str)
        votes.create_tables()
        votes.add_items([1])
        votes.cast_many([1] * len(users), users)
        with maria.held("SELECT * FROM vote WHERE item_id = 1 AND user_id = 'anna' FOR UPDATE"):
            held = thread.submit(votes.cast, 1, "anna", 3)
            eventually(lambda: maria.lock_waits() == 1)
            assert [votes.cast(1, user, 3).value for user in users[1:]] == [3] * 3
            assert not held.done()
        assert held.result().value == 3
        assert votes.count(1, consistency="exact") == 12


@pytest.mark.parametrize("strategy", ALL)
@pytest.mark.parametrize("character_set", ["latin1", "utf8mb3", "ucs2"])
def test_an_item_table_whose_ids_have_other_bytes_is_counted(
    maria: MariaDbSide, character_set: str, strategy: str
) -> None:
    maria.run(
        f"CREATE TABLE item (id VARCHAR(40) CHARACTER SET {character_set} PRIMARY KEY, "
        "vote_count BIGINT NOT NULL DEFAULT 0)"
    )
    votes = maria.votes(strategy, item_type=str, user_type=int)
    votes.create_tables()
    items = ["größe", "plain"]
    votes.add_items(items)
    for user in range(3):
        assert all(votes.cast_many(items, [user, user]).changed)
        assert votes.flush().pending == 0
    # A cache that has lost everything knows what was saved.
    for each in (votes, maria.votes(strategy, item_type=str, user_type=int)):
        assert [int(count) for count in each.count_many(items)] == [3, 3]
    assert maria.run("SELECT vote_count FROM item") == [(3,), (3,)]
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("server", BACKENDS[2:], indirect=True)
def test_a_recount_asked_for_under_another_spelling_is_of_the_one_count(server: BothSides) -> None:
    server.run(FOLDING_ITEMS)
    votes = open_votes(server.url, "cached", item_type=str, user_type=int)
    votes.create_tables()
    votes.add_items(["Post"])
    votes.cast("Post", 1)
    with server.engine.begin() as connection:
        cast_vote(connection, votes, "pOST", 2)
    assert votes.flush().pending == 0
    assert int(votes.count("Post")) == 2
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("id_type", ["INT UNSIGNED", "BIGINT UNSIGNED", "SMALLINT"])
def test_an_item_table_with_other_integers_and_a_nullable_count_is_counted(
    maria: MariaDbSide, strategy: str, id_type: str
) -> None:
    maria.run(
        f"CREATE TABLE post (no {id_type} AUTO_INCREMENT PRIMARY KEY, title TEXT, likes INT)",
        "INSERT INTO post (title) VALUES ('one'), ('two')",
    )
    votes = maria.votes(strategy, item_table="post", item_id="no", item_count="likes")
    votes.create_tables()
    votes.cast_many([1, 1, 2], [7, 8, 7])
    votes.flush()
    assert maria.run("SELECT no, likes FROM post") == [(1, 2), (2, 1)]
    with pytest.raises(hotcount.IntegrityError, match="item 9, which does not exist"):
        votes.cast(9, 7)


def test_a_count_that_does_not_fit_its_column_stays_behind_and_is_exact_all_the_same(
    maria: MariaDbSide,
) -> None:
    maria.run("CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count TINYINT NOT NULL DEFAULT 0)")
    votes = maria.new()
    votes.cast_many([1, 1, 2], [7, 8, 7], [100, 100, 1])
    assert [int(n) for n in votes.count_many([1, 2])] == [200, 1]
    # The fold that fails is halved by item.
    eventually(lambda: maria.run("SELECT vote_count FROM item WHERE id = 2") == [(1,)])
    assert int(votes.count(1)) == 200


@pytest.mark.mysql_only
@pytest.mark.parametrize(
    "change",
    [
        "RENAME INDEX pair TO another_name",
        "ALTER INDEX pair INVISIBLE",
        "ADD UNIQUE INDEX other (user_id, item_id), DROP INDEX pair",
    ],
)
def test_a_key_of_votes_may_change_while_a_process_votes(maria: MariaDbSide, change: str) -> None:
    maria.run(
        "CREATE TABLE vote (id BIGINT AUTO_INCREMENT PRIMARY KEY, item_id BIGINT NOT NULL, "
        "user_id BIGINT NOT NULL, val BIGINT NOT NULL, prev BIGINT NOT NULL DEFAULT 0, "
        "version BIGINT, UNIQUE INDEX pair (item_id, user_id), INDEX of_items (item_id))",
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
    )
    votes = maria.new(foreign_key=False)
    votes.cast_many([1, 2], [1, 1])
    maria.run(f"ALTER TABLE vote {change}")
    for each in (votes, maria.votes(foreign_key=False)):
        assert all(each.cast_many([1, 2, 1], [2, 2, 3], errors="raise").counted)
        assert each.cast(1, 4).counted
    assert [int(count) for count in votes.count_many([1, 2])] == [4, 2]
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.mariadb_only("MySQL 8 takes no lock for numbers that count up")
def test_a_bulk_insert_that_holds_auto_increment_costs_the_deadline_only(
    maria: MariaDbSide,
) -> None:
    """The server's number for that wait, 1467, is no fault of the vote."""
    maria.run(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE vote (id BIGINT AUTO_INCREMENT PRIMARY KEY, item_id BIGINT NOT NULL, "
        "user_id BIGINT NOT NULL, val BIGINT NOT NULL, prev BIGINT NOT NULL DEFAULT 0, "
        "version BIGINT, UNIQUE (item_id, user_id), FOREIGN KEY (item_id) REFERENCES item (id))",
    )
    votes = maria.new(foreign_key=False)
    # It waits for the item within its INSERT, and so keeps the counter of ids.
    insert = "INSERT INTO vote (item_id, user_id, val) SELECT 1, seq, 1 FROM seq_1_to_3"
    with maria.server.connect(maria.database) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT * FROM item WHERE id = 1 FOR UPDATE")
        bulk = threading.Thread(target=maria.run, args=[insert])
        bulk.start()
        eventually(lambda: maria.server.row_waits() == 1)
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(2, 9, timeout=1)
        errors = votes.cast_many([2] * 3, range(3), errors="return", timeout=1).errors.values()
        assert {type(error) for error in errors} == {hotcount.DeadlineError}
        holder.rollback()
        bulk.join()
    assert votes.cast(2, 9).counted
