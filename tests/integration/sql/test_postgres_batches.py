"""Batches of votes on PostgreSQL: each is one statement, which commits by itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.postgres_votes import in_background, session, waiting
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import make_votes, open_votes
from tests.support.together import beside, together

JOURNAL = pytest.mark.parametrize("strategy", ["batched", "slotted"])


def stored_votes(database: PostgresDatabase) -> int:
    return int(database.psql("SELECT count(*) FROM vote"))


@JOURNAL
def test_repeats_are_answered_right_while_others_change_the_same_votes(
    postgres: PostgresDatabase, strategy: str
) -> None:
    make_votes(postgres, strategy)
    items, users = [1, 2], [7, 8]

    def vote(index: int) -> list[tuple[int, int]]:
        votes = open_votes(postgres, strategy, timeout=30 + index / 100)
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
    votes = make_votes(postgres, strategy)
    for item in items:
        moved = sum(difference for of, difference in changes if of == item)
        assert int(votes.count(item)) == moved
        stored = postgres.psql(f"SELECT sum(val) FROM vote WHERE item_id = {item}")
        assert int(stored) == moved
    assert votes.reconcile(dry_run=True) == []


@JOURNAL
def test_items_that_cannot_be_created_are_refused_alone(
    postgres: PostgresDatabase, strategy: str
) -> None:
    postgres.psql(
        "CREATE TABLE item (id bigint PRIMARY KEY CHECK (id <> 13),"
        " vote_count bigint NOT NULL DEFAULT 0)"
    )
    votes = make_votes(postgres, strategy, missing_items="create")
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([12, 13, 14], [7, 7, 7])
    assert list(caught.value.errors) == [1]
    assert isinstance(caught.value.errors[1], hotcount.IntegrityError)
    assert [int(votes.count(item)) for item in (12, 14)] == [1, 1]


@JOURNAL
async def test_votes_without_a_user_share_batches_with_others(
    postgres: PostgresDatabase, strategy: Any
) -> None:
    votes = make_votes(postgres, strategy)
    shared = aio.Votes(aio.Database(postgres.url, timeout=30), None, strategy)
    calls: list[Any] = []
    for n in range(40):
        calls.append(shared.cast(1 + n % 2, n))
        calls.append(shared.cast(1 + n % 2, None, op_id=f"op{n % 30}"))
    casts = list(await asyncio.gather(*calls))
    assert sum(cast.changed for cast in casts) == 40 + 30
    assert sum(int(votes.count(item)) for item in (1, 2)) == 70
    assert votes.reconcile(dry_run=True) == []


TRIGGERS = {
    "another-user": (
        "NEW.user_id := NEW.user_id + 1000; RETURN NEW;",
        "BEFORE",
        (hotcount.DatabaseError, "differs from the one it was given"),
    ),
    "an-error": ("NEW.val := 1 / 0; RETURN NEW;", "BEFORE", (hotcount.DatabaseError, "by zero")),
    "no-row": ("RETURN NULL;", "BEFORE", (hotcount.DatabaseError, "the one it was given")),
    "at-the-commit": (
        "RAISE EXCEPTION 'late' USING ERRCODE = '23514';",
        "AFTER",
        (hotcount.IntegrityError, "late"),
    ),
}


@JOURNAL
@pytest.mark.parametrize(("body", "when", "error"), TRIGGERS.values(), ids=TRIGGERS)
def test_a_vote_that_a_trigger_does_not_let_be_fails_alone(
    postgres: PostgresDatabase, strategy: str, body: str, when: str, error: tuple[Any, str]
) -> None:
    votes = make_votes(postgres, strategy)
    late = "CONSTRAINT" if when == "AFTER" else "", "DEFERRABLE INITIALLY DEFERRED"
    postgres.psql(
        f"CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;"
        f"CREATE {late[0]} TRIGGER act {when} INSERT ON vote {late[1] if late[0] else ''}"
        " FOR EACH ROW WHEN (NEW.user_id = 8) EXECUTE FUNCTION act()"
    )
    with pytest.raises(error[0], match=error[1]) as alone:
        votes.cast(1, 8)
    assert ("given" in str(alone.value)) == ("given" in error[1])
    assert stored_votes(postgres) == 0
    casts = votes.cast_many([1, 1, 2], [7, 8, 9], errors="return")
    assert list(casts.errors) == [1]
    assert isinstance(casts.errors[1], error[0])
    assert error[1] in str(casts.errors[1])
    assert (stored_votes(postgres), [*map(int, votes.count_many([1, 2]))]) == (2, [1, 1])


@JOURNAL
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_sessions_of_another_level_of_isolation_vote_as_others_do(
    postgres: PostgresDatabase, strategy: str, level: str
) -> None:
    make_votes(postgres, strategy)
    escaped = level.replace(" ", "%5C%20")
    url = postgres.url_for(
        postgres.server.superuser, f"%20-cdefault_transaction_isolation%3D{escaped}"
    )

    def vote(index: int) -> int:
        votes = open_votes(url, strategy, timeout=30 + index / 100)
        changed = 0
        for user in range(20):
            # A vote of one's own, and one that all cast.
            changed += sum(
                votes.cast_many([1, 2, 1], [1000 * (index + 1) + user, user, user]).changed
            )
            changed += votes.cast(3, 7, 1 - user % 2 * 2).changed
        return changed

    fired("server setting")
    assert sum(together(vote, 4)) > 4 * 20
    votes = make_votes(postgres, strategy)
    assert [int(votes.count(item)) for item in (1, 2)] == [4 * 20 + 20, 20]
    assert votes.reconcile(dry_run=True) == []


def test_an_item_that_others_hold_by_turns_is_waited_for_in_line(
    postgres: PostgresDatabase,
) -> None:
    votes = make_votes(postgres, "batched", timeout=30)

    def hold(done: threading.Event) -> None:
        # There is always one that holds it, and another in line.
        with session(postgres) as other:
            while not done.is_set():
                other.execute("SELECT 1 FROM item WHERE id = 1 FOR UPDATE")
                other.execute("SELECT pg_sleep(0.02)")
                other.commit()

    with beside(hold, hold, hold):
        assert votes.cast(2, 7).changed
        assert all(votes.cast_many([1, 1, 1], [7, 8, 9]).changed)
    assert int(votes.count(1)) == 3


@JOURNAL
def test_a_statement_that_waits_past_its_deadline_is_cancelled(
    postgres: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres, strategy)
    table = "vote_journal" if strategy == "batched" else "vote_cell"
    with session(postgres, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE") as other:
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, timeout=0.5)
        assert waiting(postgres) == 0
        other.rollback()
    assert stored_votes(postgres) == 0
    assert votes.cast(1, 7).changed


def test_a_script_that_waits_past_its_deadline_is_cancelled(postgres: PostgresDatabase) -> None:
    slots = hotcount.SlottedCounter(postgres.url)
    # Another session is making the table.
    with session(postgres, "CREATE TABLE hotcount_slot (key text)") as other:
        made = in_background(lambda: slots.create_table(timeout=0.5))
        over = made.is_over(10)
        other.rollback()
        assert isinstance(made(), hotcount.DeadlineError)
        assert over
    slots.create_table()


@JOURNAL
def test_without_an_answer_the_outcome_is_unknown(
    postgres: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres, strategy)
    votes.cast(1, 6)
    table = "vote_journal" if strategy == "batched" else "vote_cell"
    with session(postgres, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE") as other:
        cast = in_background(lambda: votes.cast(1, 7, timeout=4))
        # A fold waits for that lock too.
        voting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE '%INSERT INTO \"vote\" %'"
        )
        eventually(lambda: postgres.psql(voting) != "")
        held = int(postgres.psql(voting))
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
    postgres: PostgresDatabase,
) -> None:
    votes = make_votes(postgres, "batched")
    with session(postgres, "LOCK TABLE vote_journal IN ACCESS EXCLUSIVE MODE") as other:
        cast = in_background(lambda: votes.cast(1, 7))
        eventually(lambda: waiting(postgres) == 1)
        postgres.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND application_name = 'hotcount'"
        )
        other.rollback()
        assert cast().changed
    assert int(votes.count(1)) == stored_votes(postgres) == 1


def test_batches_beside_folds_and_lockers_lose_nothing(postgres: PostgresDatabase) -> None:
    make_votes(postgres, "batched", fold_interval=0.01)

    def lock(done: threading.Event) -> None:
        drawn = random.Random(1)
        with session(postgres) as other:
            while not done.is_set():
                other.execute("SELECT 1 FROM item WHERE id = %s FOR UPDATE", (drawn.randint(1, 3),))
                done.wait(drawn.random() / 20)
                other.commit()

    def vote(index: int) -> int:
        votes = open_votes(postgres, "batched", timeout=30 + index, fold_interval=0.01)
        changed = 0
        for user in range(60):
            own = 1000 * (index + 1) + user
            changed += votes.cast(1 + user % 3, own).changed
            changed += sum(votes.cast_many([1, 2, 3], [user, user, own]).changed)
        return changed

    with beside(lock):
        changed = sum(together(vote, 4))
    votes = make_votes(postgres, "batched")
    assert sum(int(votes.count(item)) for item in (1, 2, 3)) == changed
    assert votes.reconcile(dry_run=True) == []
    votes.flush()
    assert int(postgres.psql("SELECT sum(vote_count) FROM item")) == changed
