"""The journal on MariaDB: what a batch waits for, what it leaves alone, and what it writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.together import together

pytestmark = pytest.mark.server

DIALECTS_OF_SQL = [
    "--transaction-isolation=SERIALIZABLE",
    "--transaction-isolation=REPEATABLE-READ",
    pytest.param("--sql-mode=ORACLE", marks=pytest.mark.mariadb_only("MySQL has no such mode")),
    "--sql-mode=ANSI,PIPES_AS_CONCAT,NO_ZERO_DATE,PAD_CHAR_TO_FULL_LENGTH",
    "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
    "--sql-mode=",
    "--innodb-autoinc-lock-mode=0",
]


class Tables:
    """Votes over one database, and what other sessions see of its tables."""

    def __init__(self, server: MariaDbServer, database: str, **options: Any) -> None:
        self.server = server
        self.database = database
        self.votes = self.open(**options)
        self.votes.create_tables()
        if options.get("item_type", int) is int:
            self.votes.add_items([1, 2, 3, 4])

    def open(self, *, timeout: float = 20, **options: Any) -> hotcount.Votes:
        database = hotcount.Database(self.server.url(self.database), timeout=timeout)
        return hotcount.Votes(database, None, **options)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.execute(sql, database=self.database)

    def cast_ids(self) -> set[tuple[Any, Any]]:
        return {(item, user) for item, user in self.rows("SELECT item_id, user_id FROM vote")}

    def assert_counts_are_the_votes(self) -> None:
        """Cells and journal, in one statement, beside the votes."""
        drifts = self.rows(
            "SELECT i.id, (SELECT COALESCE(SUM(val), 0) FROM vote WHERE item_id = i.id) + "
            "(SELECT COALESCE(SUM(val), 0) FROM vote_anonymous WHERE item_id = i.id) AS votes, "
            "(SELECT COALESCE(SUM(n), 0) FROM vote_cell WHERE item = i.id) + "
            "(SELECT COALESCE(SUM(diff), 0) FROM vote_journal WHERE item = i.id) AS counted "
            "FROM item AS i HAVING votes <> counted"
        )
        assert drifts == []

    @contextmanager
    def held(self, sql: str) -> Iterator[Any]:
        """What a locking statement locks, until the block ends."""
        with closing(self.server.connect(self.database)) as session, session.cursor() as cursor:
            cursor.execute(sql)
            yield session
            session.rollback()

    def is_waited_for(self) -> bool:
        return self.server.row_waits() > 0


@pytest.fixture
def tables(mariadb_server: MariaDbServer, mariadb_database: str) -> Tables:
    return Tables(mariadb_server, mariadb_database)


class Caller:
    """One call in a thread of its own."""

    def __init__(self, work: Any) -> None:
        self.answer: Any = None
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Any) -> None:
        try:
            self.answer = work()
        except hotcount.HotcountError as error:
            self.answer = error

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(60)
        assert self.is_over()
        return self.answer


ITEM_1 = "SELECT id FROM item WHERE id = 1 FOR UPDATE"


# -- held items -------------------------------------------------------------


def test_votes_for_other_items_are_answered_while_one_item_is_held(tables: Tables) -> None:
    with tables.held(ITEM_1):
        held = [Caller(lambda u=user: tables.votes.cast(1, u, timeout=60)) for user in range(4)]
        for user in range(20):
            assert tables.votes.cast(2 + user % 3, user).changed
        assert not any(caller.is_over() for caller in held)
    assert [caller.result().changed for caller in held] == [True] * 4
    tables.assert_counts_are_the_votes()


def test_one_call_s_votes_are_answered_but_those_for_the_held_item(tables: Tables) -> None:
    items = [1, 2, 3, 4] * 20
    with tables.held(ITEM_1):
        call = Caller(lambda: tables.votes.cast_many(items, list(range(80)), timeout=60))
        eventually(lambda: len(tables.cast_ids()) == 60)
        assert all(item != 1 for item, _ in tables.cast_ids())
    assert all(cast.changed for cast in call.result())
    assert len(tables.cast_ids()) == 80
    tables.assert_counts_are_the_votes()


def test_a_held_item_and_one_that_is_not_there_are_told_apart(tables: Tables) -> None:
    with tables.held(ITEM_1):
        call = Caller(
            lambda: tables.votes.cast_many([1, 9, 2], [7, 7, 7], errors="return", timeout=60)
        )
        eventually(lambda: (2, 7) in tables.cast_ids())
        with pytest.raises(hotcount.IntegrityError, match="item 9, which does not exist"):
            tables.votes.cast(9, 8)
    answers = call.result()
    assert list(answers.errors) == [1]
    assert "item 9, which does not exist" in str(answers.errors[1])
    tables.assert_counts_are_the_votes()


def test_votes_of_one_user_for_a_held_item_land_in_their_order(tables: Tables) -> None:
    with tables.held(ITEM_1):
        calls = []
        for value in (5, -3, 8):
            calls.append(Caller(lambda v=value: tables.votes.cast(1, 7, v, timeout=60)))
            time.sleep(0.05)  # Nothing says that a call was queued.
    assert [(call.result().previous, call.result().value) for call in calls] == [
        (0, 5),
        (5, -3),
        (-3, 8),
    ]
    tables.assert_counts_are_the_votes()


def test_a_held_item_costs_its_voters_the_deadline_and_nothing_is_applied(tables: Tables) -> None:
    with tables.held(ITEM_1):
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            tables.votes.cast(1, 7, timeout=0.5)
        answers = tables.votes.cast_many([1, 2], [7, 7], errors="return", timeout=2)
        assert isinstance(answers.errors[0], hotcount.DeadlineError)
        assert list(answers.errors) == [0]
    assert tables.cast_ids() == {(2, 7)}
    tables.assert_counts_are_the_votes()


def test_items_that_are_to_be_made_are_not_made_while_they_are_held(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    tables = Tables(mariadb_server, mariadb_database, missing_items="create")
    with tables.held(ITEM_1):
        call = Caller(lambda: tables.votes.cast_many([1, 9, 10], [7, 7, 7], timeout=60))
        eventually(lambda: tables.cast_ids() == {(9, 7), (10, 7)})
    assert all(cast.changed for cast in call.result())
    tables.assert_counts_are_the_votes()


# -- the vote's own row, and the mark ---------------------------------------


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_a_vote_s_own_row_held_to_its_deadline_applies_nothing(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    tables = Tables(mariadb_server, mariadb_database, strategy=strategy)
    tables.votes.cast(1, 7, 3)
    with tables.held("SELECT val FROM vote WHERE item_id = 1 AND user_id = 7 FOR UPDATE"):
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            tables.votes.cast(1, 7, 5, timeout=0.5)
        eventually(lambda: not tables.is_waited_for())
        assert tables.votes.cast(1, 8, 1).changed
    cast = tables.votes.cast(1, 7, 5)
    assert (cast.previous, cast.value) == (3, 5)
    tables.assert_counts_are_the_votes()


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
@pytest.mark.parametrize("votes", [1, 5])
def test_votes_wait_for_who_moves_the_counts_and_are_refused_then(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str, votes: int
) -> None:
    # Read without a lock, the mark was the one of before: the vote was counted where nobody looks.
    tables = Tables(mariadb_server, mariadb_database, strategy=strategy)
    with tables.held("SELECT value FROM vote_meta WHERE name = 'vote_route' FOR UPDATE") as switch:
        call = Caller(
            lambda: tables.votes.cast_many([1] * votes, list(range(votes)), errors="return")
        )
        eventually(tables.is_waited_for)
        with switch.cursor() as cursor:
            cursor.execute("UPDATE vote_meta SET value = 'item' WHERE name = 'vote_route'")
        switch.commit()
    answers = call.result()
    assert len(answers.errors) == votes
    assert all(isinstance(error, hotcount.ConfigError) for error in answers.errors.values())
    assert tables.cast_ids() == set()
    assert tables.rows("SELECT COUNT(*) FROM vote_journal") == [(0,)]


@pytest.mark.mariadb_only("about a compound statement")
def test_a_vote_that_outlives_its_leader_s_deadline_is_not_lost_where_the_counts_were_moved() -> (
    None
):
    """The leader gives up on a statement that it cannot cancel; the other one waits for its answer,
    which says that nothing was written."""
    server = new_server(config=("--max-user-connections=50",))
    try:
        server.start()
        database = server.create_database()
        server.execute("CREATE USER app@localhost")
        server.execute(f"GRANT ALL ON {database}.* TO app@localhost")
        tables = Tables(server, database)
        opened = hotcount.Database(server.url(database, user="app"), timeout=20)
        votes = hotcount.Votes(opened, None, fold_interval=3600, max_batch=2, max_delay=1)
        votes.cast(3, 3)
        mark = "SELECT value FROM vote_meta WHERE name = 'vote_route' FOR UPDATE"
        with tables.held(mark) as switch:
            leader = Caller(lambda: votes.cast(1, 1, timeout=3))
            other = Caller(lambda: votes.cast(2, 2))
            eventually(tables.is_waited_for)
            server.execute("SET GLOBAL max_user_connections = 1")
            outcome = leader.result()
            with switch.cursor() as cursor:
                cursor.execute("UPDATE vote_meta SET value = 'item' WHERE name = 'vote_route'")
            switch.commit()
            server.execute("SET GLOBAL max_user_connections = 50")
            answer = other.result()
        assert isinstance(outcome, hotcount.OutcomeUnknownError), outcome
        assert isinstance(answer, hotcount.ConfigError), answer
        assert tables.cast_ids() == {(3, 3)}
    finally:
        server.remove()


# -- what is written --------------------------------------------------------


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_votes_alone_come_to_what_batches_do(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    tables = Tables(mariadb_server, mariadb_database, strategy=strategy)

    def cast(value: int, version: int | None = None) -> tuple[bool, bool, int, int]:
        made = tables.votes.cast(1, 7, value, version=version)
        return made.counted, made.changed, made.previous, made.value

    assert cast(0) == (False, False, 0, 0)
    assert cast(5) == (True, True, 0, 5)
    for _ in range(3):
        assert cast(5) == (True, False, 5, 5)
    assert cast(-2, version=10) == (True, True, 5, -2)
    assert cast(9, version=10) == (True, False, -2, -2)
    assert cast(9, version=9) == (True, False, -2, -2)
    assert cast(0, version=11) == (False, True, -2, 0)
    assert cast(4) == (True, True, 0, 4)
    for _ in range(2):
        made = tables.votes.cast(1, None, 3, op_id="first")
        assert made.value == 3
    assert int(tables.votes.count(1)) == 7
    tables.assert_counts_are_the_votes()


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_an_item_table_whose_columns_are_named_as_ours_is_counted(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    mariadb_server.execute(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0, "
        "val INT, prev INT, version INT, value INT, diff INT, item INT, hotcount_is INT)",
        database=mariadb_database,
    )
    tables = Tables(mariadb_server, mariadb_database, strategy=strategy)
    for value in (1, 5, 5, 0):
        tables.votes.cast(1, 7, value)
        tables.votes.cast_many([1, 2, 3], [8, 8, 8], [value] * 3)
        tables.assert_counts_are_the_votes()


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_without_a_foreign_key_a_vote_for_no_item_is_refused_all_the_same(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    tables = Tables(mariadb_server, mariadb_database, strategy=strategy, foreign_key=False)
    [[shown]] = [row[1:] for row in tables.rows("SHOW CREATE TABLE vote")]
    assert "FOREIGN KEY" not in shown
    with pytest.raises(hotcount.IntegrityError, match="item 9, which does not exist"):
        tables.votes.cast(9, 7)
    answers = tables.votes.cast_many([1, 9, 2], [7, 7, 7], errors="return")
    assert list(answers.errors) == [1]
    assert tables.cast_ids() == {(1, 7), (2, 7)}
    tables.assert_counts_are_the_votes()


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_items_are_made_with_their_first_votes(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    tables = Tables(mariadb_server, mariadb_database, strategy=strategy, missing_items="create")
    together(lambda user: tables.votes.cast(100 + user % 4, user), 16)
    assert [int(count) for count in tables.votes.count_many([100, 101, 102, 103])] == [4] * 4
    tables.assert_counts_are_the_votes()


@pytest.mark.parametrize("option", DIALECTS_OF_SQL)
def test_votes_count_on_servers_of_other_isolation_and_modes(option: str) -> None:
    server = new_server(config=(option,))
    try:
        server.start()
        for strategy in ("batched", "slotted"):
            tables = Tables(server, server.create_database(), strategy=strategy)
            other = tables.open(timeout=19, strategy=strategy)

            def vote(user: int, both: Any = (tables.votes, other)) -> None:
                both[user % 2].cast(1, user)
                both[user % 2].cast_many([1, 2, 3], [user] * 3, [user % 3] * 3)
                both[1 - user % 2].cast(2, user, 4)

            together(vote, 12)
            assert int(other.count(2)) == 48
            tables.assert_counts_are_the_votes()
    finally:
        server.remove()


def test_two_processes_on_one_item_wait_for_nobody(tables: Tables) -> None:
    # What a voter has locked until its commit is shared with other voters; nothing of the journal.
    with tables.held("INSERT INTO vote_journal (item, diff) VALUES (1, 0)") as other:
        with other.cursor() as cursor:
            cursor.execute("SELECT id FROM item WHERE id = 1 LOCK IN SHARE MODE")
            cursor.execute("SELECT value FROM vote_meta LOCK IN SHARE MODE")
        for user in range(3):
            assert tables.votes.cast(1, user, timeout=20).changed
        assert len(tables.votes.cast_many([1] * 9, list(range(10, 19)), timeout=20)) == 9
    tables.assert_counts_are_the_votes()


def test_the_journal_is_written_by_values_alone(
    mariadb_server: MariaDbServer, tables: Tables
) -> None:
    # INSERT ... SELECT holds the table's AUTO-INC lock until it ends, and other voters wait for it.
    mariadb_server.execute("SET GLOBAL log_output = 'TABLE'")
    mariadb_server.execute("TRUNCATE TABLE mysql.general_log")
    mariadb_server.execute("SET GLOBAL general_log = 1")
    try:
        tables.votes.cast(1, 1)
        tables.votes.cast(1, 1, 2)
        tables.votes.cast_many([1, 2, 3, 4] * 30, list(range(120)))
    finally:
        mariadb_server.execute("SET GLOBAL general_log = 0")
    said = [
        text.decode() if isinstance(text, bytes) else text
        for (text,) in mariadb_server.execute("SELECT argument FROM mysql.general_log")
    ]
    written = [text for text in said if 'INSERT INTO "vote_journal"' in text]
    assert written
    for text in written:
        after = text.split('INSERT INTO "vote_journal"')[1]
        assert after.removeprefix(" (item, diff) ").startswith("VALUES (")
