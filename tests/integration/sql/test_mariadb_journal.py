"""The journal on MariaDB: what a batch waits for, what it leaves alone, and what it writes."""

from __future__ import annotations

from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.mariadb_votes import DRIFTS, MariaDbSide
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import in_background
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


@pytest.mark.mariadb_only("about a compound statement")
def test_a_vote_that_outlives_its_leader_s_deadline_is_not_lost_where_the_counts_were_moved() -> (
    None
):
    """The leader gives up on a statement that it cannot cancel; the other one waits for its answer,
    which says that nothing was written."""
    mark = "SELECT value FROM vote_meta WHERE name = 'vote_route' FOR UPDATE"
    with new_server(config=("--max-user-connections=50",)).started() as server:
        maria = MariaDbSide(server, server.create_database())
        maria.new()
        votes = maria.votes(user=maria.account(), fold_interval=3600, max_batch=2, max_delay=1)
        votes.cast(3, 3)
        with maria.held(mark) as switch:
            leader = in_background(lambda: votes.cast(1, 1, timeout=3))
            other = in_background(lambda: votes.cast(2, 2))
            eventually(lambda: server.row_waits() > 0)
            server.execute("SET GLOBAL max_user_connections = 1")
            outcome = leader()
            switch.cursor().execute("UPDATE vote_meta SET value = 'item' WHERE name = 'vote_route'")
            switch.commit()
            server.execute("SET GLOBAL max_user_connections = 50")
            answer = other()
        assert isinstance(outcome, hotcount.OutcomeUnknownError), outcome
        assert isinstance(answer, hotcount.ConfigError), answer
        assert maria.run("SELECT item_id, user_id FROM vote") == [(3, 3)]


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_an_item_table_whose_columns_are_named_as_ours_is_counted(
    maria: MariaDbSide, strategy: str
) -> None:
    maria.run(
        "CREATE TABLE item (id BIGINT PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0, "
        "val INT, prev INT, version INT, value INT, diff INT, item INT, hotcount_is INT)"
    )
    votes = maria.new(strategy)
    for value in (1, 5, 5, 0):
        votes.cast(1, 7, value)
        votes.cast_many([1, 2, 3], [8, 8, 8], [value] * 3)
        assert maria.run(DRIFTS) == []


@pytest.mark.parametrize("option", DIALECTS_OF_SQL)
def test_votes_count_on_servers_of_other_isolation_and_modes(option: str) -> None:
    with new_server(config=(option,)).started() as server:
        fired("server setting")
        for strategy in ("batched", "slotted"):
            maria = MariaDbSide(server, server.create_database())
            both = maria.new(strategy), maria.votes(strategy, timeout=19)

            def vote(user: int, both: Any = both) -> None:
                both[user % 2].cast(1, user)
                both[user % 2].cast_many([1, 2, 3], [user] * 3, [user % 3] * 3)
                both[1 - user % 2].cast(2, user, 4)

            together(vote, 12)
            assert int(both[1].count(2)) == 48
            assert maria.run(DRIFTS) == []


def test_two_processes_on_one_item_wait_for_nobody(maria: MariaDbSide) -> None:
    # What a voter has locked until its commit is shared with other voters; nothing of the journal.
    votes = maria.new()
    with maria.held("INSERT INTO vote_journal (item, diff) VALUES (1, 0)") as other:
        with other.cursor() as cursor:
            cursor.execute("SELECT id FROM item WHERE id = 1 LOCK IN SHARE MODE")
            cursor.execute("SELECT value FROM vote_meta LOCK IN SHARE MODE")
        for user in range(3):
            assert votes.cast(1, user, timeout=20).changed
        assert len(votes.cast_many([1] * 9, range(10, 19), timeout=20)) == 9
    assert maria.run(DRIFTS) == []
