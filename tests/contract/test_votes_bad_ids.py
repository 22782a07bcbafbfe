"""Ids that no database takes are refused by name before anything is sent, one by one."""

import uuid
from collections.abc import Callable
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.votes_strategies import over_memory

STRATEGIES = ["naive", "slotted", "batched", "cached"]
BAD = {
    "nul": ("a\0b", "NUL"),
    "surrogate": ("\ud800", "UTF-8"),
    "long": ("x" * 1001, "1001 bytes"),
    "long in bytes": ("\u20ac" * 334, "1002 bytes"),
}


def make(database: hotcount.Database, strategy: Any) -> hotcount.Votes:
    votes = over_memory(database, strategy, item_type=str, user_type=str)
    votes.create_tables()
    votes.add_items(["a", "b"])
    return votes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_bad_id_is_named_and_nothing_is_sent(database: hotcount.Database, strategy: str) -> None:
    votes = make(database, strategy)
    before = database.stats()["statements"]
    calls: list[tuple[Callable[[str], object], str]] = [
        (lambda bad: votes.cast(bad, "u"), "item"),
        (lambda bad: votes.cast("a", bad), "user"),
        (lambda bad: votes.retract("a", bad), "user"),
        (lambda bad: votes.cast(bad, None, op_id="o"), "item"),
        (lambda bad: votes.add_items(["c", bad]), "item"),
        (lambda bad: votes.count(bad), "item"),
        (lambda bad: votes.count_many(["a", bad]), "item"),
        (lambda bad: votes.count(bad, consistency="exact"), "item"),
        (lambda bad: votes.reconcile([bad]), "item"),
    ]
    for bad, says in BAD.values():
        for call, names in calls:
            with pytest.raises(ValueError, match=f"(?s){names}.*{says}") as refused:
                call(bad)
            assert isinstance(refused.value, hotcount.ConfigError)
    assert database.stats()["statements"] == before


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bad_ids_among_many_fail_alone(database: hotcount.Database, strategy: str) -> None:
    votes = make(database, strategy)
    items = ["a", "a", "b", "a"]
    users = ["u", "v", "w", "w"]
    says = []
    for place, (bad, why) in zip((0, 2, 5, 7), BAD.values()):
        items.insert(place, bad if place % 2 else "a")
        users.insert(place, "x" if place % 2 else bad)
        says.append(("item" if place % 2 else "user", why))
    casts = votes.cast_many(items, users, errors="return")
    assert sorted(casts.errors) == [0, 2, 5, 7]
    for (_, error), (names, why) in zip(sorted(casts.errors.items()), says):
        assert isinstance(error, hotcount.ConfigError)
        assert names in str(error)
        assert why in str(error)
    assert [cast.counted for cast in casts] == [place not in casts.errors for place in range(8)]
    assert [int(count) for count in votes.count_many(["a", "b"])] == [3, 1]
    assert votes.reconcile(dry_run=True) == []


async def test_a_bad_id_is_refused_where_it_is_awaited(database: hotcount.Database) -> None:
    make(database, "batched")
    votes = hotcount.aio.Votes(database, item_type=str, user_type=str)
    for bad, says in BAD.values():
        with pytest.raises(hotcount.ConfigError, match=says):
            await votes.cast("a", bad)
        casts = await votes.cast_many(["a", "a", "a"], ["u", bad, "v"], errors="return")
        assert sorted(casts.errors) == [1]
    assert int(await votes.count("a")) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_longest_ids_are_taken_whole(database: hotcount.Database, strategy: str) -> None:
    votes = make(database, strategy)
    item = uuid.uuid4().hex * 32
    longest, other = ("y" * (1000 - len(end)) + end for end in ("1", "2"))
    votes.add_items([item[:1000]])
    for user in (longest, other):
        assert votes.cast(item[:1000], user).changed
        assert not votes.cast(item[:1000], user).changed
    assert int(votes.count(item[:1000])) == 2
    assert votes.reconcile(dry_run=True) == []
