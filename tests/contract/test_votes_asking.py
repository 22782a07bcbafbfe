"""Asking for votes, and toggling them: with every strategy, on every database."""

import asyncio
import uuid
from typing import Any

import hotcount
import pytest
from hotcount import Cast, Database, Tally, Votes, aio

from tests.support.together import together
from tests.support.votes_strategies import is_consistent, make_votes


def test_get_says_what_the_users_vote_is(votes: Votes) -> None:
    votes.cast(1, 7, 5)
    votes.cast(2, 7, -3)
    votes.retract(2, 7)
    assert [votes.get(item, 7) for item in (1, 2, 3, 99)] == [5, 0, 0, 0]
    assert votes.get(1, 8) == 0


def test_get_many_answers_in_the_order_of_the_items(votes: Votes) -> None:
    votes.cast(1, 7, 5)
    votes.cast(3, 7, -2)
    votes.cast(2, 8)
    got = votes.get_many([3, 1, 2, 3, 99, 1], user=7)
    assert isinstance(got, hotcount.Int64Batch)
    assert list(got) == [-2, 5, 0, -2, 0, 5]
    assert list(votes.get_many([], user=7)) == []
    assert list(votes.get_many((item for item in (2, 1)), user=8)) == [1, 0]


@pytest.mark.parametrize("count", [1, 64, 65, 512, 513, 1500])
def test_get_many_of_any_number_of_items_finds_each(database: Database, count: int) -> None:
    votes = make_votes(database, "batched", missing_items="create", max_batch=1000)
    mine = range(0, count, 7)
    votes.cast_many(mine, [1] * len(mine), [item + 1 for item in mine])
    expected = [item + 1 if item % 7 == 0 else 0 for item in range(count)]
    assert list(votes.get_many(range(count), user=1)) == expected


def test_ids_of_text_and_uuid_are_asked_for_as_they_were_cast(database: Database) -> None:
    items = ["a'b", 'c"d', "ä{,}", "\\"]
    users = [uuid.UUID(int=n) for n in (3, 1, 2)]
    votes = make_votes(
        database, "batched", item_type=str, user_type=uuid.UUID, missing_items="create"
    )
    votes.cast_many([items[0]] * 3 + [items[2]], [*users, users[0]], [1, 2, 3, 4])
    assert list(votes.get_many(items, users[0])) == [1, 0, 4, 0]
    assert votes.get(items[2], users[0]) == 4
    ordered = [(uuid.UUID(int=1), 2), (uuid.UUID(int=2), 3), (uuid.UUID(int=3), 1)]
    assert votes.voters(items[0]) == ordered
    assert votes.voters(items[0], after=uuid.UUID(int=1), limit=1) == ordered[1:2]
    votes.flush(timeout=20)
    assert votes.top(2) == [(items[0], 6), (items[2], 4)]


def test_ids_of_another_type_are_refused_before_anything_is_sent(votes: Votes) -> None:
    calls: list[Any] = [
        lambda: votes.get("1", 7),
        lambda: votes.get(1, "7"),
        lambda: votes.get_many([1, "2"], 7),
        lambda: votes.get_many([1], None),  # type: ignore[arg-type]
        lambda: votes.toggle(1, None),  # type: ignore[arg-type]
        lambda: votes.voters(1, after="x"),
        lambda: votes.tally("1"),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    for refused in (
        lambda: votes.voters(1, limit=0),
        lambda: votes.voters(1, limit=10_001),
        lambda: votes.top(0),
        lambda: votes.toggle(1, 1, 0),
        lambda: votes.toggle(1, 1, 2**31),
    ):
        with pytest.raises(hotcount.ConfigError):
            refused()


def test_tables_that_are_missing_are_named(database: Database) -> None:
    votes = Votes(database)
    for call in (
        lambda: votes.get(1, 1),
        lambda: votes.get_many([1], 1),
        lambda: votes.voters(1),
        lambda: votes.tally(1),
        lambda: votes.toggle(1, 1),
    ):
        with pytest.raises(hotcount.HotcountError, match="create_tables"):
            call()


def test_voters_are_listed_page_by_page_without_retracted_votes(votes: Votes) -> None:
    users = [9, 2, 7, 4, 1]
    votes.cast_many([1] * 5, users, [1, 2, 3, 4, 5])
    votes.retract(1, 7)
    votes.cast(2, 3)
    votes.cast(1, None, op_id="nobody")
    live = [(1, 5), (2, 2), (4, 4), (9, 1)]
    assert votes.voters(1) == live
    pages, after = [], None
    while page := votes.voters(1, after=after, limit=3):
        pages.append(page)
        after = page[-1][0]
    assert pages == [live[:3], live[3:]]
    assert votes.voters(3) == []


def test_tally_counts_votes_by_sign(votes: Votes) -> None:
    votes.cast_many([1] * 5, range(5), [1, 1, -1, 4, -2])
    votes.retract(1, 1)
    votes.cast(1, None, op_id="someone", value=-5)
    assert votes.tally(1) == Tally(up=2, down=3, score=-3)
    assert votes.tally(2) == Tally(0, 0, 0)


def test_top_shows_exact_counts_in_descending_order(database: Database, strategy: str) -> None:
    votes = make_votes(database, strategy, items=range(1, 8))
    for item in range(1, 8):
        votes.cast_many([item] * item, range(item))
    votes.flush(timeout=20)
    # vote_count may not have these two yet.
    votes.cast(6, 100)
    votes.cast(6, 101)
    assert votes.top(3) == [(6, 8), (7, 7), (5, 5)]
    assert [item for item, _ in votes.top(100)] == [6, 7, 5, 4, 3, 2, 1]


def test_toggle_casts_and_retracts_in_turn(votes: Votes) -> None:
    assert votes.toggle(1, 7) == Cast(counted=True, changed=True, previous=0, value=1)
    assert int(votes.count(1)) == 1
    assert votes.toggle(1, 7) == Cast(counted=False, changed=True, previous=1, value=0)
    assert int(votes.count(1)) == 0
    assert votes.toggle(1, 7).value == 1
    # The other button.
    assert votes.toggle(1, 7, -1) == Cast(counted=True, changed=True, previous=1, value=-1)
    assert votes.toggle(1, 7, -1) == Cast(counted=False, changed=True, previous=-1, value=0)
    assert (votes.get(1, 7), int(votes.count(1))) == (0, 0)
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_a_toggle_is_applied_to_a_vote_with_a_version(votes: Votes) -> None:
    votes.cast(1, 7, version=5)
    assert votes.toggle(1, 7).value == 0
    assert votes.cast(1, 7, version=5).changed is False
    assert votes.cast(1, 7, version=6).changed is True


@pytest.mark.parametrize("foreign_key", [True, False])
def test_a_toggle_of_a_missing_item(database: Database, strategy: str, foreign_key: bool) -> None:
    votes = make_votes(database, strategy, foreign_key=foreign_key)
    with pytest.raises(hotcount.IntegrityError):
        votes.toggle(99, 7)
    assert votes.get(99, 7) == 0
    votes.add_items([99])
    assert votes.toggle(99, 7).value == 1
    assert int(votes.count(99)) == 1


def test_an_odd_number_of_toggles_leaves_a_vote_and_an_even_one_none(votes: Votes) -> None:
    for toggles, left in ((7, 1), (7, 0), (8, 0)):
        casts = together(lambda _: votes.toggle(1, 7), toggles)
        assert all(cast.changed for cast in casts)
        # Each saw what the one before it left.
        assert abs(sum(cast.value - cast.previous for cast in casts)) <= 1
        assert votes.get(1, 7) == left
        assert int(votes.count(1, consistency="exact")) == left
    assert is_consistent(votes)


def test_toggles_beside_casts_of_the_same_vote_keep_the_count_right(votes: Votes) -> None:
    def work(index: int) -> None:
        for _ in range(5):
            if index % 3 == 0:
                votes.toggle(1, 7)
            elif index % 3 == 1:
                votes.cast(1, 7, index)
            else:
                votes.retract(1, 7)

    together(work, 9)
    assert int(votes.count(1, consistency="exact")) == votes.get(1, 7)
    assert is_consistent(votes)


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
async def test_event_loops_ask_the_same_questions(database: Database, strategy: str) -> None:
    cache = "memory://" if strategy == "cached" else None
    votes = aio.Votes(database, cache, strategy)  # type: ignore[arg-type]
    await votes.create_tables()
    await votes.add_items([1, 2, 3])
    assert (await votes.toggle(1, 7)).value == 1
    await votes.cast(2, 7, -1)
    assert await votes.get(1, 7) == 1
    assert list(await votes.get_many([2, 1, 3], 7)) == [-1, 1, 0]
    assert await votes.voters(1, limit=5) == [(7, 1)]
    assert await votes.tally(2) == Tally(0, 1, -1)
    await votes.flush()
    assert (await votes.top(1)) == [(1, 1)]
    await asyncio.gather(*(votes.toggle(3, 9) for _ in range(9)))
    assert int(await votes.count(3)) == 1
    await votes.aclose()
