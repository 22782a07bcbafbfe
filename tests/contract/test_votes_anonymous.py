"""Votes without a user: the op_id is what they are known by."""

import asyncio
import uuid
from itertools import chain
from typing import Any

import hotcount
import hotcount.aio
import pytest
from hotcount import Cast, Votes

from tests.support.together import THREADS, together
from tests.support.votes_strategies import is_consistent, over_memory

STRATEGIES = ["naive", "slotted", "batched", "cached"]


@pytest.fixture(params=STRATEGIES)
def votes(request: pytest.FixtureRequest, database: hotcount.Database) -> Votes:
    votes = over_memory(database, request.param)
    votes.create_tables()
    votes.add_items([1, 2])
    return votes


def test_an_anonymous_vote_counts_once_under_its_op_id(votes: Votes) -> None:
    assert votes.cast(1, None, op_id="a") == Cast(True, True, 0, 1)
    for _ in range(2):
        assert votes.cast(1, None, op_id="a") == Cast(True, False, 1, 1)
    # Another item's is another vote.
    assert votes.cast(2, None, op_id="a").changed
    assert votes.cast(1, None, op_id="b").changed
    assert [int(count) for count in votes.count_many([1, 2])] == [2, 1]
    assert is_consistent(votes)


def test_the_first_value_under_an_op_id_stands(votes: Votes) -> None:
    assert votes.cast(1, None, 5, op_id="a").value == 5
    assert votes.cast(1, None, -3, op_id="a") == Cast(True, False, 5, 5)
    assert int(votes.count(1)) == 5
    assert is_consistent(votes)


def test_anonymous_votes_and_votes_of_users_are_counted_apart(votes: Votes) -> None:
    votes.cast(1, 7)
    votes.cast(1, None, op_id="7")
    votes.retract(1, 7)
    assert int(votes.count(1, consistency="exact")) == 1
    assert int(votes.count(1)) == 1
    assert is_consistent(votes)


def test_of_many_at_once_each_op_id_is_counted_once(votes: Votes) -> None:
    each = 4

    def work(index: int) -> list[Cast]:
        # Every op_id is cast by two threads; users vote for the same items between.
        casts = []
        for k in range(each):
            item = 1 + (index + k) % 2
            casts.append(votes.cast(item, None, op_id=f"op-{index // 2}-{k}-{item}"))
            casts.append(votes.cast(item, 1_000 + index))
        return casts

    casts = list(chain.from_iterable(together(work)))
    changed = sum(cast.changed for cast in casts)
    assert sum(int(count) for count in votes.count_many([1, 2])) == changed
    # Of two threads that share op_ids one begins with item 1, the other with item 2.
    assert changed == THREADS * each + THREADS * 2
    assert is_consistent(votes)


def test_anonymous_votes_of_one_call_are_counted_once_for_each_op_id(votes: Votes) -> None:
    op_ids = [uuid.uuid4().hex for _ in range(50)]
    first = votes.cast_many([1] * 50, None, op_ids=op_ids)
    again = votes.cast_many([1] * 50, None, op_ids=[*op_ids[:25], *op_ids[:25]])
    assert all(cast.changed for cast in first)
    assert not any(cast.changed for cast in again)
    assert int(votes.count(1)) == 50
    assert is_consistent(votes)


def test_an_op_id_twice_in_one_call_is_counted_once(votes: Votes) -> None:
    casts = votes.cast_many([1, 1, 1], None, [4, 5, 6], op_ids=["a", "a", "b"])
    assert list(casts) == [Cast(True, True, 0, 4), Cast(True, False, 4, 4), Cast(True, True, 0, 6)]
    assert int(votes.count(1)) == 10


def test_awaited_anonymous_votes_count_once(votes: Votes, database: hotcount.Database) -> None:
    async def vote() -> list[Cast]:
        cache = hotcount.Memory() if votes.strategy == "cached" else None
        strategy: Any = votes.strategy
        async with hotcount.aio.Votes(database, cache, strategy) as awaited:
            calls = [awaited.cast(1, None, op_id=f"op-{k % 10}") for k in range(40)]
            calls += [awaited.cast(1, user) for user in range(10)]
            return list(await asyncio.gather(*calls))

    assert sum(cast.changed for cast in asyncio.run(vote())) == 20
    assert int(votes.count(1, consistency="exact")) == 20


def test_a_drift_is_repaired_by_both_kinds(votes: Votes, database: hotcount.Database) -> None:
    votes.cast(1, None, 3, op_id="a")
    votes.cast(1, 7)
    votes.flush()
    other = "naive" if votes.strategy != "naive" else "batched"
    # Taken over, the counts are summed from the votes again.
    over = Votes(database, None, other)  # type: ignore[arg-type]
    over.create_tables()
    assert int(over.count(1)) == 4
    assert over.reconcile() == []


def test_an_anonymous_vote_for_a_missing_item_is_refused_and_counts_nothing(votes: Votes) -> None:
    with pytest.raises(hotcount.IntegrityError, match="99"):
        votes.cast(99, None, op_id="a")
    casts = votes.cast_many([1, 99, 2], None, op_ids=["a", "b", "c"], errors="return")
    assert list(casts.errors) == [1]
    assert isinstance(casts.errors[1], hotcount.IntegrityError)
    assert [int(count) for count in votes.count_many([1, 2])] == [1, 1]


def test_the_longest_and_unusual_op_ids_are_told_apart(votes: Votes) -> None:
    op_ids = ["\u00e9" * 255, "a", "A", "a ", 'a"\\{},', "\U0001f5f3"]
    for op_id in op_ids:
        assert votes.cast(1, None, op_id=op_id).changed, op_id
    assert not any(votes.cast(1, None, op_id=op_id).changed for op_id in op_ids)
    assert int(votes.count(1)) == len(op_ids)


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ({"user": None}, TypeError, "user must be int"),
        ({"user": 7, "op_id": "a"}, hotcount.ConfigError, "op_id is for"),
        ({"user": None, "op_id": ""}, hotcount.ConfigError, "0 characters"),
        ({"user": None, "op_id": "x" * 256}, hotcount.ConfigError, "256 characters"),
        ({"user": None, "op_id": "a\0b"}, hotcount.ConfigError, "NUL"),
        ({"user": None, "op_id": 7}, TypeError, "op_id"),
        ({"user": None, "op_id": "a", "value": 0}, hotcount.ConfigError, "retracted"),
        ({"user": None, "op_id": "a", "version": 2}, hotcount.ConfigError, "version"),
    ],
)
def test_an_anonymous_vote_refuses_versions_users_and_retraction(
    arguments: dict[str, object], error: type[Exception], names: str
) -> None:
    with Votes("sqlite:///:memory:") as votes:
        votes.create_tables()
        votes.add_items([1])
        with pytest.raises(error, match=names):
            votes.cast(1, **arguments)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="user"):
            votes.retract(1, None)  # type: ignore[arg-type]
        assert int(votes.count(1)) == 0


def test_cast_many_refuses_columns_that_do_not_fit() -> None:
    with Votes("sqlite:///:memory:") as votes:
        votes.create_tables()
        votes.add_items([1])
        with pytest.raises(TypeError, match="users"):
            votes.cast_many([1], None)
        with pytest.raises(hotcount.ConfigError, match="op_ids is for"):
            votes.cast_many([1], [7], op_ids=["a"])
        with pytest.raises(hotcount.ConfigError, match="op_ids has 2 elements for 1 items"):
            votes.cast_many([1], None, op_ids=["a", "b"])
        casts = votes.cast_many([1, 1, 1], None, [1, 0, 1], op_ids=["a", "b", ""], errors="return")
        assert sorted(casts.errors) == [1, 2]
        assert int(votes.count(1)) == 1


def test_a_vote_table_whose_companions_names_would_be_cut_off_is_refused() -> None:
    with pytest.raises(hotcount.ConfigError, match="vote_table is 54 bytes"):
        Votes("sqlite:///:memory:", vote_table="v" * 54)
    Votes("sqlite:///:memory:", vote_table="v" * 53).close()
