"""What cast_many() promises, with every strategy, on every database."""

from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import Cast, Votes

from tests.support.errors import kinds
from tests.support.together import together
from tests.support.votes_strategies import is_consistent


@pytest.mark.cast_writes
def test_cast_many_answers_each_vote_in_order(votes: Votes) -> None:
    casts = votes.cast_many([1, 2, 1, 1], [7, 7, 8, 7], [1, 1, 2, 5])
    assert casts == [
        Cast(True, True, 0, 1),
        Cast(True, True, 0, 1),
        Cast(True, True, 0, 2),
        Cast(True, True, 1, 5),
    ]
    assert [int(count) for count in votes.count_many([1, 2, 3])] == [7, 1, 0]
    assert votes.cast_many([], []) == []
    assert is_consistent(votes)


def test_cast_many_takes_columns_of_numpy(votes: Votes) -> None:
    items = np.array([1, 2, 1], dtype=np.int64)
    users = np.arange(3)
    casts = votes.cast_many(items, users)
    assert (np.asarray(casts.changed) | np.asarray(casts.pending)).all()
    assert list(votes.count_many(np.array([1, 2])).value) == [2, 1]
    votes.cast_many(items, users, np.array([3, 3, 3]))
    assert list(votes.count_many((1, 2)).value) == [6, 3]


@pytest.mark.cast_writes
def test_batches_from_many_threads_count_every_vote_once(votes: Votes) -> None:
    items = [1 + k % 3 for k in range(30)]
    # Neighbours overlap: half of each batch is cast by another thread too.
    casts = together(lambda index: votes.cast_many(items, [15 * index + k for k in range(30)]), 8)
    changed = sum(sum(batch.changed) for batch in casts)
    assert changed == sum(int(count) for count in votes.count_many([1, 2, 3]))
    assert changed == 30 + 7 * 15
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_one_bad_vote_is_reported_and_the_others_are_counted(votes: Votes) -> None:
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([1, 99, 2, 2**63, 3, 1], [7] * 6, [1, 1, 1, 1, 2**63, 4])
    assert kinds(caught.value.errors) == {
        1: "IntegrityError",
        3: "ConfigError",
        4: "CounterOverflowError",
    }
    first, again, nothing = Cast(True, True, 0, 1), Cast(True, True, 1, 4), Cast(False, False, 0, 0)
    assert list(caught.value.result) == [first, nothing, first, nothing, nothing, again]
    assert [int(count) for count in votes.count_many([1, 2, 3])] == [4, 1, 0]
    assert is_consistent(votes)


@pytest.mark.parametrize(
    ("items", "users", "says"),
    [
        ([1, "2"], [7, 7], r"items\[1\] must be int, not str"),
        ([1, 2], [7, True], r"users\[1\] must be int, not bool"),
        ([1, None], [7, 7], r"items\[1\] must be int, not NoneType"),
        ([1, 2], [7, 7.0], r"users\[1\] must be int, not float"),
        ("12", [7, 7], "items must be a sequence"),
        (5, [7], "items must be a sequence"),
    ],
)
def test_an_id_of_a_wrong_type_is_named(votes: Votes, items: Any, users: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        votes.cast_many(items, users)
    assert int(votes.count(1)) == 0


@pytest.mark.parametrize(("users", "values"), [([7], 1), ([7, 7, 7], 1), ([7, 7], [1])])
def test_columns_of_unequal_length_are_refused(votes: Votes, users: list[int], values: Any) -> None:
    with pytest.raises(hotcount.ConfigError, match="elements"):
        votes.cast_many([1, 2], users, values)
    assert int(votes.count(1)) == 0
