"""The triggers on MariaDB and MySQL: whose they are, who sees them, and tables that are renamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hotcount
import pytest

from tests.support.mariadb_votes import ALL_BUT_TRIGGER, DRIFTS, ITEMS, MariaDbSide, counts


@pytest.fixture
def maker(maria: MariaDbSide) -> Iterator[str]:
    """An account that may make tables and triggers."""
    account = maria.account(rights=f"{ALL_BUT_TRIGGER}, TRIGGER")
    yield account
    maria.run(f"DROP USER IF EXISTS {account}@localhost")


def made_by(maria: MariaDbSide, user: str, form: Any, strategy: Any = "batched") -> None:
    with maria.votes(strategy, user) as votes:
        votes.create_tables(outside_writes=form)
        votes.add_items(ITEMS)
        votes.cast_many([1] * 4 + [2] * 2, range(1, 7))


def owners(maria: MariaDbSide) -> set[str]:
    found = maria.run(
        "SELECT DISTINCT DEFINER FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
    )
    return {definer.split("@")[0] for (definer,) in found}


@pytest.mark.parametrize("form", ["count", "deletes"])
@pytest.mark.parametrize(
    "lost", ["DROP USER {0}@localhost", "REVOKE TRIGGER ON {1}.* FROM {0}@localhost"]
)
@pytest.mark.parametrize("way", ["create_tables", "migration"])
def test_triggers_of_an_account_that_lost_its_rights_are_made_anew(
    maria: MariaDbSide, maker: str, form: Any, lost: str, way: str
) -> None:
    made_by(maria, maker, form)
    with maria.votes() as votes:
        # As long as the account has its rights, its triggers stay.
        votes.create_tables(outside_writes=form)
        assert votes.migration(outside_writes=form) == ""
        assert owners(maria) == {maker}
        maria.run(lost.format(maker, maria.database))
        with pytest.raises(
            hotcount.PermissionDeniedError,
            match=rf"{maker}.*rights of the account that created it.*create_tables\(\)",
        ):
            votes.cast(1, 9) if form == "count" else votes.erase_user(1)
        if way == "migration":
            for statement in votes.migration().split("\n"):
                if "TRIGGER " in statement:
                    maria.run(statement.rstrip("/;"))
        votes.create_tables()
        assert owners(maria) == {"root"}
        assert votes.migration() == ""
        maria.run("DELETE FROM vote WHERE item_id = 1")
        votes.cast(1, 9)
        votes.erase_user(5)
        assert counts(votes) == [1, 1, 0]


def test_a_trial_of_the_rights_leaves_nothing_and_waits_for_no_voter(
    maria: MariaDbSide, maker: str
) -> None:
    made_by(maria, maker, "count", "naive")
    with maria.votes("naive") as votes, maria.session() as (session, cursor):
        cursor.execute("SELECT * FROM item FOR UPDATE")
        cursor.execute("SELECT * FROM vote_meta FOR UPDATE")
        votes.create_tables(timeout=5)
        session.rollback()
        assert maria.run("SELECT * FROM vote_anonymous") == []
        assert counts(votes) == [4, 2, 0]


COMPANIONS = ["_anonymous", "_meta", "_journal", "_cell"]
VOTES = ", ".join(f"vote{of} TO liked{of}" for of in ["", *COMPANIONS])
RENAMES: dict[str, tuple[list[str], dict[str, str]]] = {
    "items": (["RENAME TABLE item TO post"], {"item_table": "post"}),
    "votes": ([f"RENAME TABLE {VOTES}"], {"vote_table": "liked"}),
    "both": (
        ["RENAME TABLE item TO post", f"RENAME TABLE {VOTES}"],
        {"item_table": "post", "vote_table": "liked"},
    ),
    "column": (["ALTER TABLE item RENAME COLUMN vote_count TO n"], {"item_count": "n"}),
}


@pytest.mark.parametrize("strategy", ["naive", "batched"])
@pytest.mark.parametrize("form", [None, "count"])
@pytest.mark.parametrize("renamed", RENAMES)
def test_triggers_of_renamed_tables_are_made_anew(
    maria: MariaDbSide, renamed: str, form: Any, strategy: Any
) -> None:
    statements, names = RENAMES[renamed]
    maria.made("count", strategy).close()
    maria.run("DROP VIEW vote_live", "DROP VIEW vote_count", *statements)
    table = names.get("vote_table", "vote")
    with maria.votes(strategy, **names) as votes:
        # Those that count in the journal do not name the item table.
        stale = strategy == "naive" or "vote_table" in names
        assert ("CREATE TRIGGER" in votes.migration()) == stale
        votes.create_tables(outside_writes=form)
        assert votes.migration(outside_writes="count") == ""
        maria.run(
            f"DELETE FROM {table} WHERE item_id = 1 AND user_id = 1",
            f"INSERT INTO {table} (item_id, user_id, val) VALUES (3, 1, 1)",
            f"UPDATE {table} SET val = 5 WHERE item_id = 2 AND user_id = 5",
        )
        votes.cast(3, 2)
        assert counts(votes) == [3, 6, 2]
        events = ["deleted", "inserted", "updated", *(["inserting"] if strategy == "naive" else [])]
        assert maria.triggers() == {
            f"{table}{of}_hotcount_{event}" for of in ("", "_anonymous") for event in events
        }
        votes.create_tables(outside_writes="none")
        assert maria.triggers() == set()


def test_a_name_that_a_trigger_of_a_renamed_table_has_is_refused(maria: MariaDbSide) -> None:
    maria.made("count").close()
    maria.run("DROP VIEW vote_live", "DROP VIEW vote_count", f"RENAME TABLE {VOTES}")
    maria.run("UPDATE item SET vote_count = 0")  # Whether or not a fold has come.
    with maria.votes() as votes, maria.votes(vote_table="liked") as liked:
        for ask in (votes.create_tables, votes.migration):
            with pytest.raises(
                hotcount.ConfigError, match=r"trigger vote_hotcount_\w+ .*table liked.*DROP TRIGGER"
            ):
                ask(outside_writes="deletes")
        liked.create_tables(outside_writes="deletes")
        votes.create_tables(outside_writes="deletes")
        votes.cast(1, 1)
        maria.run("DELETE FROM vote", "DELETE FROM liked WHERE item_id = 2")
        assert (counts(votes), counts(liked)) == ([0, 0, 0], [4, 0, 0])


def test_triggers_that_an_account_does_not_see_are_what_the_marks_say(maria: MariaDbSide) -> None:
    app = maria.account(rights=ALL_BUT_TRIGGER)
    maria.made("count").close()
    with maria.votes(user=app) as votes:
        assert votes.stats()["outside_writes"] == "count"
        votes.create_tables(outside_writes="count")
        assert votes.migration(outside_writes="count") == ""
        with pytest.raises(hotcount.ConfigError, match="no TRIGGER privilege"):
            votes.create_tables(outside_writes="deletes")
    with maria.votes("naive", user=app) as moved:
        with pytest.raises(hotcount.ConfigError, match="no TRIGGER privilege"):
            moved.create_tables()
        # For an account that may run it.
        script = moved.migration()
        assert script.count("CREATE TRIGGER") == script.count("DROP TRIGGER IF EXISTS") == 8
        for line in moved.migration(outside_writes="none").split("\n"):
            if line.startswith("DROP TRIGGER"):
                maria.run(line)
    assert maria.triggers() == set()


def test_rows_that_an_ignored_update_leaves_do_not_count_below_a_snapshot(
    maria: MariaDbSide,
) -> None:
    with maria.made("count") as votes, maria.session() as (session, cursor):
        maria.run(
            "INSERT INTO vote_anonymous (item_id, op_id, val) VALUES (3, 'a', 1), (3, 'b', 1)"
        )
        cursor.execute("SELECT COUNT(*) FROM vote")  # Its snapshot.
        votes.cast(1, 2, 7)
        cursor.execute("UPDATE IGNORE vote SET user_id = 1, val = 9 WHERE user_id = 2")
        cursor.execute("UPDATE IGNORE vote_anonymous SET op_id = 'a', val = 9 WHERE op_id = 'b'")
        session.commit()
        assert maria.run(DRIFTS) == []
        assert counts(votes) == [10, 2, 2]


def test_votes_without_a_user_count_when_others_change_them(maria: MariaDbSide) -> None:
    with maria.made("none") as votes:
        maria.run(
            "ALTER TABLE vote DROP PRIMARY KEY, ADD UNIQUE (item_id, user_id), "
            "MODIFY user_id BIGINT NULL"
        )
        votes.create_tables(outside_writes="count")
        maria.run("INSERT INTO vote (item_id, user_id, val) VALUES (3, NULL, 1), (3, NULL, 1)")
        maria.run("UPDATE vote SET val = 5 WHERE user_id IS NULL LIMIT 1")
        assert counts(votes) == [4, 2, 6]
