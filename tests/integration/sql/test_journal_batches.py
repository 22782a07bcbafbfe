"""Batches of votes on the servers with a journal: rows that others hold, items that are missing."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.journal_side import JournalSide
from tests.support.postgres_votes import in_background
from tests.support.together import together

pytestmark = pytest.mark.server

JOURNAL = pytest.mark.parametrize("strategy", ["batched", "slotted"])
FOREIGN_KEY = pytest.mark.parametrize("foreign_key", [True, False])
ITEM_1 = "SELECT id FROM item WHERE id = 1 FOR UPDATE"
MISSING = r"item 9,? (which )?does not exist"


def ids_of(item_type: type, count: int) -> list[Any]:
    if item_type is uuid.UUID:
        return [uuid.uuid5(uuid.NAMESPACE_OID, str(number)) for number in range(count)]
    return [item_type(number) for number in range(1, count + 1)]


@pytest.mark.parametrize("item_type", [int, str, uuid.UUID])
def test_a_batch_counts_each_item_once_for_each_transaction_with_votes_for_it(
    side: JournalSide, item_type: type
) -> None:
    items, rounds, turns = 400, 8, 2
    votes = side.votes(max_batch=200, item_type=item_type)
    votes.create_tables(timeout=20)
    ids = ids_of(item_type, items)
    votes.add_items(ids)
    each = ids * rounds
    users = [i // items % (rounds // turns) for i in range(items * rounds)]
    # Each user votes twice for each item: first 1, then 3.
    values = [1 if i < len(each) // turns else 3 for i in range(len(each))]
    casts = votes.cast_many(each, users, values, timeout=60)
    assert list(casts.previous) == [value // 3 for value in values]
    assert list(casts.value) == values
    # As they come, 200 votes are for 200 items, and each would be a row. Here an item has a row for
    # its first votes, one for the second ones, and one where a transaction ends among them.
    assert side.pending() <= 3 * items < len(each)
    assert list(votes.count_many(ids).value) == [3 * rounds // turns] * items
    assert side.drifts() == []


def test_a_loop_s_calls_learn_that_texts_are_items_of_their_own(side: JournalSide) -> None:
    made = side.votes(item_type=str)
    made.create_tables(timeout=20)
    ids = ids_of(str, 400)
    made.add_items(ids)
    each, users = ids * 4, [user for user in range(4) for _ in ids]

    async def cast(times: int) -> None:
        opened = aio.Database(side.url, timeout=30)
        options: dict[str, Any] = {"item_type": str, "max_batch": 200, "fold_interval": 3600}
        async with opened, aio.Votes(opened, None, "batched", **options) as votes:
            for value in range(1, times + 1):
                await votes.cast_many(each, users, value, timeout=60)
                rows.append(side.pending() - sum(rows))
                if rows[-1] <= 2 * len(ids):
                    break

    rows: list[int] = []
    asyncio.run(cast(20))
    # A row for each vote, until the answer is there.
    assert rows[0] == len(each)
    assert rows[-1] <= 2 * len(ids)
    assert side.drifts() == []


@JOURNAL
@FOREIGN_KEY
def test_missing_items_are_made_with_their_first_votes(
    side: JournalSide, strategy: str, foreign_key: bool
) -> None:
    votes = side.made(strategy, missing_items="create", foreign_key=foreign_key)
    assert votes.cast(9, 7).changed
    assert list(votes.cast_many([1, 11, 2, 10, 11], [7, 7, 7, 7, 8]).changed) == [True] * 5
    together(lambda user: votes.cast(100 + user % 4, user), 16)
    counts = [int(n) for n in votes.count_many([9, 10, 11, 100, 101, 102, 103])]
    assert counts == [1, 1, 2, 4, 4, 4, 4]
    assert side.drifts() == []


@JOURNAL
@pytest.mark.parametrize("ballots", [1, 5])
def test_votes_wait_for_who_moves_the_counts_and_are_refused_then(
    side: JournalSide, strategy: str, ballots: int
) -> None:
    # Read without a lock, the mark was the one of before: the vote was counted where nobody looks.
    votes = side.made(strategy)

    def vote() -> Any:
        return votes.cast_many([1] * ballots, range(ballots), errors="return")

    with side.session() as switch:
        switch.execute("SELECT value FROM vote_meta WHERE name = 'vote_route' FOR UPDATE")
        early = in_background(vote) if side.dialect == "mysql" else None
        eventually(lambda: early is None or side.waits() > 0)
        switch.execute("UPDATE vote_meta SET value = 'item' WHERE name = 'vote_route'")
        switch.commit()
    answers = early() if early else vote()  # PostgreSQL reads the mark without a lock.
    assert len(answers.errors) == ballots
    for error in answers.errors.values():
        assert isinstance(error, hotcount.ConfigError)
        assert "was last counted in its item" in str(error)
    with pytest.raises(hotcount.ConfigError, match="was last counted in its item"):
        votes.cast(1, 8)
    assert (side.number("SELECT COUNT(*) FROM vote"), side.pending()) == (0, 0)


def test_a_held_item_keeps_nobody_waiting_and_its_votes_land_afterwards(side: JournalSide) -> None:
    votes = side.made()
    with side.session() as other:
        other.execute(ITEM_1)
        alone = in_background(lambda: votes.cast(1, 7, timeout=60))
        batch = in_background(lambda: votes.cast_many([1, 2, 3] * 20, range(100, 160), timeout=60))
        for user in range(10, 40):
            assert votes.cast(2, user).changed
            assert all(votes.cast_many([2, 3], [200 + user, user]).changed)
        eventually(lambda: votes.stats()["held_votes"] == 21)
        fired("held row")
        eventually(lambda: side.number("SELECT COUNT(*) FROM vote") == 3 * 30 + 40)
        assert votes.stats()["held_votes_s"] > 0
        assert (
            int(votes.count(1)) == side.number("SELECT COUNT(*) FROM vote WHERE item_id = 1") == 0
        )
        assert not alone.is_over()
    assert alone().changed
    assert all(batch().changed)
    assert (int(votes.count(1)), votes.stats()["held_votes"], side.drifts()) == (21, 0, [])


def test_a_vote_for_a_held_item_ends_at_its_deadline_with_nothing_applied(
    side: JournalSide,
) -> None:
    votes = side.made()
    with side.session() as other:
        other.execute(ITEM_1)
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, timeout=0.5)
        fired("held row")
        patient = in_background(lambda: votes.cast(1, 8))
        assert votes.cast(2, 7).changed
        answers = votes.cast_many([1, 3], [9, 9], errors="return", timeout=2)
        assert [type(error) for error in answers.errors.values()] == [hotcount.DeadlineError]
        assert list(answers.errors) == [0]
    assert patient().changed
    cast = "SELECT item_id, user_id FROM vote ORDER BY item_id"
    assert [tuple(map(int, row)) for row in side.run(cast)] == [(1, 8), (2, 7), (3, 9)]
    assert side.drifts() == []


def test_a_held_item_and_one_that_is_missing_are_told_apart(side: JournalSide) -> None:
    votes = side.made()
    with side.session() as other:
        other.execute(ITEM_1)
        call = in_background(
            lambda: votes.cast_many([1, 9, 2], [7, 7, 7], errors="return", timeout=60)
        )
        eventually(lambda: votes.get(2, 7) == 1)
        with pytest.raises(hotcount.IntegrityError, match=MISSING):
            votes.cast(9, 8)
    assert list(call().errors) == [1]
    assert "item 9" in str(call().errors[1])
    assert side.drifts() == []


def test_items_that_are_to_be_made_are_not_made_while_they_are_held(side: JournalSide) -> None:
    votes = side.made(missing_items="create")
    with side.session() as other:
        other.execute(ITEM_1)
        call = in_background(lambda: votes.cast_many([1, 9, 10], [7, 7, 7], timeout=60))
        eventually(lambda: [*votes.get_many([9, 10, 1], 7)] == [1, 1, 0])
    assert all(call().changed)
    assert side.drifts() == []


@JOURNAL
def test_a_held_vote_keeps_its_own_votes_alone_waiting(side: JournalSide, strategy: str) -> None:
    votes = side.made(strategy)
    votes.cast(1, 7, 3)
    with side.session() as other:
        other.execute("SELECT val FROM vote WHERE item_id = 1 AND user_id = 7 FOR UPDATE")
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, 5, timeout=0.5)
        eventually(lambda: side.waits() == 0)
        assert votes.cast(1, 8).changed
        if strategy == "batched":
            batch = in_background(lambda: votes.cast_many([1, 1, 2], [7, 10, 7], [-1, 1, 1]))
            assert votes.cast(3, 7).changed
            assert votes.cast(1, 9).changed
            other.commit()
            assert [cast.previous for cast in batch()] == [3, 0, 0]
    assert votes.cast(1, 7, 5).previous == (-1 if strategy == "batched" else 3)
    assert side.drifts() == []
