"""Batches of votes on PostgreSQL: each is one statement, which commits by itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.eventually import eventually
from tests.support.postgres_votes import in_background, make_votes, session, waiting
from tests.support.servers import PostgresDatabase
from tests.support.together import together

pytestmark = pytest.mark.server

JOURNAL = ["batched", "slotted"]


def other_votes(database: PostgresDatabase, index: int, strategy: str, url: str = "") -> Any:
    """As another process would have them: a timeout of its own makes it another database."""
    opened = hotcount.Database(url or database.url, timeout=30 + index / 100)
    return hotcount.Votes(opened, None, strategy)  # type: ignore[arg-type]


def stored_votes(database: PostgresDatabase) -> int:
    return int(database.psql("SELECT count(*) FROM vote"))


# -- what a vote came to ----------------------------------------------------


@pytest.mark.parametrize("strategy", JOURNAL)
def test_repeats_are_answered_right_while_others_change_the_same_votes(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    make_votes(postgres_database, strategy)
    items, users = [1, 2], [7, 8]

    def vote(index: int) -> list[tuple[int, int]]:
        votes = other_votes(postgres_database, index, strategy)
        drawn = random.Random(index)
        changes = []
        for _ in range(150):
            item, user, value = drawn.choice(items), drawn.choice(users), drawn.choice([-1, 0, 1])
            if index % 2:
                cast = votes.cast(item, user, value) if value else votes.retract(item, user)
                casts = [cast]
            else:
                batch = votes.cast_many([item] * 3, [user, 100 + index, user], [1, 1, -1])
                casts = [batch[0], batch[1], batch[2]]
                assert [cast.value for cast in casts] == [1, 1, -1]
                value = -1
            # What was asked for stands at the moment of the answer, by whomever it was set.
            assert casts[-1].value == value
            for cast in casts:
                assert cast.changed == (cast.previous != cast.value)
                changes.append((item, cast.value - cast.previous))
        return changes

    changes = [change for each in together(vote, 6) for change in each]
    votes = make_votes(postgres_database, strategy)
    for item in items:
        moved = sum(difference for of, difference in changes if of == item)
        assert int(votes.count(item)) == moved
        stored = postgres_database.psql(f"SELECT sum(val) FROM vote WHERE item_id = {item}")
        assert int(stored) == moved
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("foreign_key", [True, False])
@pytest.mark.parametrize("strategy", JOURNAL)
def test_missing_items_are_refused_by_name_and_the_others_are_written(
    postgres_database: PostgresDatabase, strategy: str, foreign_key: bool
) -> None:
    votes = make_votes(postgres_database, strategy, foreign_key=foreign_key)
    with pytest.raises(hotcount.IntegrityError, match=r"item 9 does not exist.*user 7 for item 9"):
        votes.cast(9, 7)
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([1, 9, 2, 10], [7, 7, 7, 7])
    assert sorted(caught.value.errors) == [1, 3]
    assert "item 10 does not exist" in str(caught.value.errors[3])
    assert [int(votes.count(item)) for item in (1, 2)] == [1, 1]
    assert stored_votes(postgres_database) == 2


@pytest.mark.parametrize("foreign_key", [True, False])
@pytest.mark.parametrize("strategy", JOURNAL)
def test_missing_items_are_created_where_asked_for(
    postgres_database: PostgresDatabase, strategy: str, foreign_key: bool
) -> None:
    votes = make_votes(postgres_database, strategy, missing_items="create", foreign_key=foreign_key)
    assert votes.cast(9, 7).changed
    changed = votes.cast_many([1, 11, 2, 10, 11], [7, 7, 7, 7, 8]).changed
    assert list(changed) == [True] * 5
    assert [int(votes.count(item)) for item in (9, 10, 11)] == [1, 1, 2]


@pytest.mark.parametrize("strategy", JOURNAL)
def test_items_that_cannot_be_created_are_refused_alone(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    postgres_database.psql(
        "CREATE TABLE item (id bigint PRIMARY KEY CHECK (id <> 13),"
        " vote_count bigint NOT NULL DEFAULT 0)"
    )
    votes = make_votes(postgres_database, strategy, missing_items="create")
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([12, 13, 14], [7, 7, 7])
    assert list(caught.value.errors) == [1]
    assert isinstance(caught.value.errors[1], hotcount.IntegrityError)
    assert [int(votes.count(item)) for item in (12, 14)] == [1, 1]


@pytest.mark.parametrize("strategy", JOURNAL)
def test_votes_without_a_user_share_batches_with_others(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)

    async def vote() -> list[Any]:
        database = hotcount.aio.Database(postgres_database.url, timeout=30)
        shared = hotcount.aio.Votes(database, None, strategy)  # type: ignore[arg-type]
        calls: list[Any] = []
        for n in range(40):
            calls.append(shared.cast(1 + n % 2, n))
            calls.append(shared.cast(1 + n % 2, None, op_id=f"op{n % 30}"))
        return list(await asyncio.gather(*calls))

    casts = asyncio.run(vote())
    assert sum(cast.changed for cast in casts) == 40 + 30
    assert sum(int(votes.count(item)) for item in (1, 2)) == 70
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", JOURNAL)
def test_an_older_version_is_told_what_stands(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    assert votes.cast(1, 7, 1, version=5).changed
    stale = votes.cast(1, 7, -1, version=5)
    assert (stale.changed, stale.value, stale.previous) == (False, 1, 1)
    newer = votes.cast(1, 7, -1, version=6)
    assert (newer.changed, newer.value, newer.previous) == (True, -1, 1)


@pytest.mark.parametrize("strategy", JOURNAL)
def test_a_trigger_that_makes_a_vote_anothers_fails_it_and_applies_nothing(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    postgres_database.psql(
        "CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.user_id := NEW.user_id + 1000; RETURN NEW; END $$;"
        "CREATE TRIGGER other BEFORE INSERT ON vote FOR EACH ROW WHEN (NEW.user_id = 8)"
        " EXECUTE FUNCTION other()"
    )
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([1, 1, 2], [7, 8, 7])
    assert list(caught.value.errors) == [1]
    assert "differs from the one it was given" in str(caught.value.errors[1])
    with pytest.raises(hotcount.DatabaseError, match="differs from the one it was given"):
        votes.cast(1, 8)
    assert stored_votes(postgres_database) == 2


@pytest.mark.parametrize("strategy", JOURNAL)
def test_a_trigger_that_divides_by_zero_is_quoted_and_nothing_is_guessed(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    postgres_database.psql(
        "CREATE FUNCTION divide() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.val := 1 / (NEW.user_id - 8); RETURN NEW; END $$;"
        "CREATE TRIGGER divide BEFORE INSERT ON vote FOR EACH ROW EXECUTE FUNCTION divide()"
    )
    with pytest.raises(hotcount.DatabaseError, match="division by zero") as caught:
        votes.cast(1, 8)
    assert "given" not in str(caught.value)
    assert stored_votes(postgres_database) == 0


@pytest.mark.parametrize("strategy", JOURNAL)
def test_a_row_that_a_trigger_keeps_out_is_an_error_in_the_end(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    postgres_database.psql(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN NULL; END $$;"
        "CREATE TRIGGER nothing BEFORE INSERT ON vote FOR EACH ROW WHEN (NEW.user_id = 8)"
        " EXECUTE FUNCTION nothing()"
    )
    with pytest.raises(hotcount.DatabaseError):
        votes.cast(1, 8)
    assert votes.cast(1, 7).changed
    assert int(votes.count(1)) == 1


@pytest.mark.parametrize("strategy", JOURNAL)
def test_a_write_that_fails_at_the_commit_is_not_applied(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    postgres_database.psql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = '23514'; END $$;"
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON vote DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW WHEN (NEW.user_id = 8) EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(hotcount.IntegrityError, match="late"):
        votes.cast(1, 8)
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([1, 1, 2], [7, 8, 9])
    assert list(caught.value.errors) == [1]
    assert stored_votes(postgres_database) == 2
    assert [int(votes.count(item)) for item in (1, 2)] == [1, 1]


# -- where the counts are kept, and how sessions see it ----------------------


@pytest.mark.parametrize("strategy", JOURNAL)
def test_tables_that_are_counted_elsewhere_refuse_each_vote(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    votes.cast(1, 7)
    postgres_database.psql("UPDATE vote_meta SET value = 'item' WHERE name = 'vote_route'")
    with pytest.raises(hotcount.ConfigError, match="was last counted in its item"):
        votes.cast(1, 8)
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([1, 2], [7, 8])
    assert all(isinstance(e, hotcount.ConfigError) for e in caught.value.errors.values())
    assert stored_votes(postgres_database) == 1


@pytest.mark.parametrize("strategy", JOURNAL)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_sessions_of_another_level_of_isolation_vote_as_others_do(
    postgres_database: PostgresDatabase, strategy: str, level: str
) -> None:
    make_votes(postgres_database, strategy)
    escaped = level.replace(" ", "%5C%20")
    url = postgres_database.url_for(
        postgres_database.server.superuser, f"%20-cdefault_transaction_isolation%3D{escaped}"
    )

    def vote(index: int) -> int:
        votes = other_votes(postgres_database, index, strategy, url)
        changed = 0
        for user in range(20):
            # A vote of one's own, and one that all cast.
            changed += sum(
                votes.cast_many([1, 2, 1], [1000 * (index + 1) + user, user, user]).changed
            )
            changed += votes.cast(3, 7, 1 - user % 2 * 2).changed
        return changed

    assert sum(together(vote, 4)) > 4 * 20
    votes = make_votes(postgres_database, strategy)
    assert [int(votes.count(item)) for item in (1, 2)] == [4 * 20 + 20, 20]
    assert votes.reconcile(dry_run=True) == []


# -- rows that others hold --------------------------------------------------


def test_a_held_item_keeps_nobody_waiting_and_its_votes_land_afterwards(
    postgres_database: PostgresDatabase,
) -> None:
    votes = make_votes(postgres_database, "batched", timeout=30)
    with session(postgres_database, "SELECT 1 FROM item WHERE id = 1 FOR UPDATE") as other:
        alone = in_background(lambda: votes.cast(1, 7))
        batch = in_background(lambda: votes.cast_many([1, 2, 3, 1], [8, 8, 8, 9]))
        for user in range(10, 40):
            assert votes.cast(2, user).changed
            assert all(votes.cast_many([2, 3], [100 + user, user]).changed)
        eventually(lambda: votes.stats()["held_votes"] == 3)
        assert votes.stats()["held_votes_s"] > 0
        assert int(votes.count(1)) == 0
        other.commit()
    assert alone().changed
    assert list(batch().changed) == [True] * 4
    assert int(votes.count(1)) == 3
    assert votes.stats()["held_votes"] == 0


def test_votes_of_one_user_keep_their_order_behind_a_held_item(
    postgres_database: PostgresDatabase,
) -> None:
    make_votes(postgres_database, "batched")

    async def vote() -> list[Any]:
        database = hotcount.aio.Database(postgres_database.url, timeout=30)
        votes = hotcount.aio.Votes(database, None, "batched")
        with session(postgres_database, "SELECT 1 FROM item WHERE id = 1 FOR UPDATE") as other:
            calls = [asyncio.ensure_future(votes.cast(1, 7, value)) for value in range(1, 30)]
            for user in range(5):
                assert (await votes.cast(2, user)).changed
            calls += [asyncio.ensure_future(votes.cast(1, 7, value)) for value in range(30, 60)]
            assert (await votes.cast(2, 5)).changed
            other.commit()
        return list(await asyncio.gather(*calls))

    casts = asyncio.run(vote())
    assert [(cast.previous, cast.value) for cast in casts] == [(n - 1, n) for n in range(1, 60)]


def test_a_vote_for_a_held_item_ends_at_its_deadline_with_nothing_applied(
    postgres_database: PostgresDatabase,
) -> None:
    votes = make_votes(postgres_database, "batched", timeout=30)
    with session(postgres_database, "SELECT 1 FROM item WHERE id = 1 FOR UPDATE") as other:
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, timeout=0.5)
        patient = in_background(lambda: votes.cast(1, 8))
        assert votes.cast(2, 7).changed
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 9, timeout=0.5)
        other.commit()
    assert patient().changed
    assert int(votes.count(1)) == 1
    assert postgres_database.psql("SELECT user_id FROM vote WHERE item_id = 1") == "8"


def test_an_item_that_others_hold_by_turns_is_waited_for_in_line(
    postgres_database: PostgresDatabase,
) -> None:
    votes = make_votes(postgres_database, "batched", timeout=30)
    done = threading.Event()

    def hold(index: int) -> None:
        # There is always one that holds it, and another in line.
        with session(postgres_database) as other:
            while not done.is_set():
                other.execute("SELECT 1 FROM item WHERE id = 1 FOR UPDATE")
                other.execute("SELECT pg_sleep(0.02)")
                other.commit()

    def vote() -> None:
        try:
            assert votes.cast(2, 7).changed
            assert all(votes.cast_many([1, 1, 1], [7, 8, 9]).changed)
        finally:
            done.set()

    together(lambda index: hold(index) if index < 3 else vote(), 4)
    assert int(votes.count(1)) == 3


def test_a_held_vote_row_keeps_only_its_own_votes_waiting(
    postgres_database: PostgresDatabase,
) -> None:
    votes = make_votes(postgres_database, "batched", timeout=30)
    votes.cast(1, 7)
    with session(
        postgres_database, "SELECT 1 FROM vote WHERE item_id = 1 AND user_id = 7 FOR UPDATE"
    ) as other:
        batch = in_background(lambda: votes.cast_many([1, 1, 2], [7, 8, 7], [-1, 1, 1]))
        assert votes.cast(3, 7).changed
        assert votes.cast(1, 9).changed
        other.commit()
    assert list(batch().changed) == [True] * 3
    assert int(votes.count(1)) == -1 + 1 + 1


# -- what is known at the deadline -------------------------------------------


@pytest.mark.parametrize("strategy", JOURNAL)
def test_a_statement_that_waits_past_its_deadline_is_cancelled(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    table = "vote_journal" if strategy == "batched" else "vote_cell"
    with session(postgres_database, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE") as other:
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, timeout=0.5)
        assert waiting(postgres_database) == 0
        other.rollback()
    assert stored_votes(postgres_database) == 0
    assert votes.cast(1, 7).changed


@pytest.mark.parametrize("strategy", JOURNAL)
def test_without_an_answer_the_outcome_is_unknown(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    votes.cast(1, 6)
    table = "vote_journal" if strategy == "batched" else "vote_cell"
    with session(postgres_database, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE") as other:
        cast = in_background(lambda: votes.cast(1, 7, timeout=4))
        # A fold waits for that lock too.
        voting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE '%INSERT INTO \"vote\" %'"
        )
        eventually(lambda: postgres_database.psql(voting) != "")
        held = int(postgres_database.psql(voting))
        os.kill(held, signal.SIGSTOP)
        try:
            other.rollback()
            assert isinstance(cast(), hotcount.OutcomeUnknownError)
        finally:
            os.kill(held, signal.SIGCONT)
    assert votes.cast(1, 7).value == 1
    assert int(votes.count(1)) == 2
    assert votes.reconcile(dry_run=True) == []


def test_a_vote_whose_session_is_ended_in_mid_statement_is_written_over_another(
    postgres_database: PostgresDatabase,
) -> None:
    votes = make_votes(postgres_database, "batched")
    with session(postgres_database, "LOCK TABLE vote_journal IN ACCESS EXCLUSIVE MODE") as other:
        cast = in_background(lambda: votes.cast(1, 7))
        eventually(lambda: waiting(postgres_database) == 1)
        postgres_database.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND application_name = 'hotcount'"
        )
        other.rollback()
        assert cast().changed
    assert int(votes.count(1)) == stored_votes(postgres_database) == 1


def test_batches_beside_folds_and_lockers_lose_nothing(postgres_database: PostgresDatabase) -> None:
    make_votes(postgres_database, "batched", fold_interval=0.01)
    voting = 4
    done = threading.Event()

    def lock() -> None:
        drawn = random.Random(1)
        with session(postgres_database) as other:
            while not done.is_set():
                other.execute("SELECT 1 FROM item WHERE id = %s FOR UPDATE", (drawn.randint(1, 3),))
                done.wait(drawn.random() / 20)
                other.commit()

    def vote(index: int) -> int:
        opened = hotcount.Database(postgres_database.url, timeout=30 + index)
        votes = hotcount.Votes(opened, None, "batched", fold_interval=0.01)
        changed = 0
        for user in range(60):
            own = 1000 * (index + 1) + user
            changed += votes.cast(1 + user % 3, own).changed
            changed += sum(votes.cast_many([1, 2, 3], [user, user, own]).changed)
        return changed

    locker = threading.Thread(target=lock)
    locker.start()
    try:
        changed = sum(together(vote, voting))
    finally:
        done.set()
        locker.join()
    votes = make_votes(postgres_database, "batched")
    assert sum(int(votes.count(item)) for item in (1, 2, 3)) == changed
    assert votes.reconcile(dry_run=True) == []
    votes.flush()
    assert int(postgres_database.psql("SELECT sum(vote_count) FROM item")) == changed
