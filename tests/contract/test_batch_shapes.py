"""Every call that takes a batch, with every shape that a caller may take for one.

A shape either means what it says or is a TypeError that names the argument: a mapping whose numbers
were left out, or a set that was paired with a list, would be wrong data without a word.
"""

from __future__ import annotations

import asyncio
import types
from collections import Counter as Multiset
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import hotcount
import hotcount.aio
import numpy as np
import pytest

MAPPINGS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Multiset,
    "UserDict": UserDict,
    "mappingproxy": types.MappingProxyType,
}
SETS: dict[str, Callable[[list[Any]], Any]] = {"set": set, "frozenset": frozenset}


def array_of(items: list[Any]) -> Any:
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = item
    return array


ORDERED: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda items: (item for item in items),
    "dict keys": lambda items: dict.fromkeys(items).keys(),
    "dict values": lambda items: dict(enumerate(items)).values(),
    "object array": lambda items: array_of(items),
}
TEXTS = ["text", b"bytes", bytearray(b"bytes"), 5, None]


@dataclass
class Place:
    """One argument of one call that takes a batch."""

    argument: str
    call: Callable[..., Any]
    items: list[Any]
    paired: bool = False  # Another column follows its order.
    takes_mapping: bool = False


def awaited(call: Callable[..., Any]) -> Callable[..., Any]:
    async def outcome(arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return await call(*arguments, **options)

    return lambda *arguments, **options: asyncio.run(outcome(arguments, options))


@dataclass
class World:
    counter: hotcount.Counter
    places: dict[str, Place]


@pytest.fixture
def world() -> Iterator[World]:
    store = hotcount.Memory()
    counter = hotcount.Counter(store)
    awaitable = hotcount.aio.Counter(hotcount.aio.Memory("memory://"))
    limiter = hotcount.Limiter(store, "100/minute")
    sets = hotcount.LiveSets(store)
    sets.create("z", 60, {"m": 1})
    database = hotcount.Database("sqlite:///:memory:")
    slotted = hotcount.SlottedCounter(database)
    slotted.create_table()
    votes = hotcount.Votes(database)
    votes.create_tables()
    votes.add_items([1, 2])
    # Nothing listens there: what is acknowledged by SQL does not ask it.
    cache = hotcount.Redis("redis+unix:///nonexistent", timeout=0.01, connect_timeout=0.01)
    views = hotcount.WriteBehindCounter(database, cache)
    views.create_tables()
    keys, numbers = ["a", "b"], [1, 2]
    places = {
        "Counter.add_many keys": Place("keys", counter.add_many, keys, takes_mapping=True),
        "Counter.add_many keys with n": Place(
            "keys", lambda x: counter.add_many(x, [1, 2]), keys, True
        ),
        "Counter.add_many n": Place("n", lambda x: counter.add_many(keys, x), numbers, True),
        "Counter.get_many keys": Place("keys", counter.get_many, keys),
        "aio.Counter.add_many keys": Place(
            "keys", awaited(lambda *x: awaitable.add_many(*x)), keys, takes_mapping=True
        ),
        "aio.Counter.add_many n": Place(
            "n", awaited(lambda x: awaitable.add_many(keys, x)), numbers, True
        ),
        "aio.Counter.get_many keys": Place("keys", awaited(lambda x: awaitable.get_many(x)), keys),
        "Limiter.hit_many keys": Place("keys", limiter.hit_many, keys, takes_mapping=True),
        "Limiter.hit_many keys with cost": Place(
            "keys", lambda x: limiter.hit_many(x, [1, 2]), keys, True
        ),
        "Limiter.hit_many cost": Place("cost", lambda x: limiter.hit_many(keys, x), numbers, True),
        "LiveSets.upsert_many items": Place(
            "items", sets.upsert_many, [("z", "m", 1), ("z", "n", 2)]
        ),
        "LiveSets.upsert_many keys": Place(
            "keys",
            lambda x: sets.upsert_many(keys=x, members=["m", "n"], scores=[1, 2]),
            ["z", "y"],
            True,
        ),
        "LiveSets.upsert_many members": Place(
            "members",
            lambda x: sets.upsert_many(keys=["z", "z"], members=x, scores=[1, 2]),
            ["m", "n"],
            True,
        ),
        "LiveSets.upsert_many scores": Place(
            "scores",
            lambda x: sets.upsert_many(keys=["z", "z"], members=["m", "n"], scores=x),
            numbers,
            True,
        ),
        "SlottedCounter.get_many keys": Place("keys", slotted.get_many, keys),
        "WriteBehindCounter.add_many keys": Place(
            "keys", lambda *x: views.add_many(*x, ack="sql"), keys, takes_mapping=True
        ),
        "WriteBehindCounter.add_many n": Place(
            "n", lambda x: views.add_many(keys, x, ack="sql"), numbers, True
        ),
        "Votes.cast_many items": Place(
            "items", lambda x: votes.cast_many(x, [7, 8]), numbers, True
        ),
        "Votes.cast_many users": Place(
            "users", lambda x: votes.cast_many([1, 2], x), numbers, True
        ),
        "Votes.cast_many values": Place(
            "values", lambda x: votes.cast_many([1, 2], [7, 8], x), numbers, True
        ),
        "Votes.cast_many op_ids": Place(
            "op_ids", lambda x: votes.cast_many([1, 2], None, op_ids=x), ["x", "y"], True
        ),
        "Votes.count_many items": Place("items", votes.count_many, numbers),
        "Votes.get_many items": Place("items", lambda x: votes.get_many(x, 1), numbers),
        "Votes.add_items items": Place("items", votes.add_items, numbers),
        "Votes.reconcile items": Place("items", votes.reconcile, numbers),
    }
    yield World(counter, places)
    database.close()
    store.close()


PLACES = [
    f"{call} {argument}"
    for call, arguments in {
        "Counter.add_many": ("keys", "keys with n", "n"),
        "Counter.get_many": ("keys",),
        "aio.Counter.add_many": ("keys", "n"),
        "aio.Counter.get_many": ("keys",),
        "Limiter.hit_many": ("keys", "keys with cost", "cost"),
        "LiveSets.upsert_many": ("items", "keys", "members", "scores"),
        "SlottedCounter.get_many": ("keys",),
        "WriteBehindCounter.add_many": ("keys", "n"),
        "Votes.cast_many": ("items", "users", "values", "op_ids"),
        "Votes.count_many": ("items",),
        "Votes.get_many": ("items",),
        "Votes.add_items": ("items",),
        "Votes.reconcile": ("items",),
    }.items()
    for argument in arguments
]


def test_every_call_that_takes_a_batch_is_here(world: World) -> None:
    classes = {
        "": (hotcount.Counter, hotcount.Limiter, hotcount.LiveSets, hotcount.SlottedCounter),
        "aio.": (hotcount.aio.Counter,),
    }
    batches = {
        f"{prefix}{cls.__name__.removeprefix('Async')}.{name}"
        for prefix, members in classes.items()
        for cls in (*members, *((hotcount.Votes,) if prefix == "" else ()))
        for name in dir(cls)
        if name.endswith("_many")
    }
    assert set(world.places) == set(PLACES)
    # The second takes rows one after the other, however many they are.
    others = {"SlottedCounter.add_many", "LiveSets.rebuild_many"}
    assert batches - {place.split(" ")[0] for place in PLACES} == others


@pytest.mark.parametrize("shape", ORDERED)
@pytest.mark.parametrize("name", PLACES)
def test_a_batch_takes_every_ordered_shape(world: World, name: str, shape: str) -> None:
    place = world.places[name]
    place.call(ORDERED[shape](place.items))


@pytest.mark.parametrize("shape", MAPPINGS)
@pytest.mark.parametrize("name", PLACES)
def test_a_mapping_has_its_numbers_counted_or_is_refused(
    world: World, name: str, shape: str
) -> None:
    place = world.places[name]
    mapping = MAPPINGS[shape](dict(zip(place.items, (10, 20))))
    if place.takes_mapping:
        result = list(place.call(mapping))
        if "Limiter" in name:
            assert [decision.remaining for decision in result] == [90, 80]
        else:
            assert result == [10, 20]
        with pytest.raises(TypeError, match="must not be given where keys is a mapping"):
            place.call(mapping, 1)
    else:
        with pytest.raises(TypeError, match=rf"^{place.argument}\b|^n must not|^cost must not"):
            place.call(mapping)


@pytest.mark.parametrize("shape", SETS)
@pytest.mark.parametrize("name", PLACES)
def test_a_set_is_taken_only_where_nothing_follows_its_order(
    world: World, name: str, shape: str
) -> None:
    place = world.places[name]
    column = SETS[shape](place.items)
    if place.paired:
        with pytest.raises(TypeError, match=rf"^{place.argument} must be a sequence, in an order"):
            place.call(column)
    else:
        place.call(column)


@pytest.mark.parametrize("wrong", TEXTS, ids=repr)
@pytest.mark.parametrize("name", PLACES)
def test_an_argument_that_is_no_batch_is_named(world: World, name: str, wrong: Any) -> None:
    place = world.places[name]
    one_for_all = wrong == 5 and place.argument in ("n", "cost", "values")
    nothing = wrong is None and name in ("Votes.reconcile items", "Votes.cast_many op_ids")
    if one_for_all or nothing:
        return
    with pytest.raises((TypeError, hotcount.ConfigError), match=rf"{place.argument}|users"):
        place.call(wrong)


def test_a_mapping_may_be_empty_or_have_bytes(world: World) -> None:
    assert world.counter.add_many({}) == []
    assert world.counter.add_many({b"a": 3, b"\xff": -1}) == [3, -1]


def test_one_number_of_a_mapping_that_is_refused_leaves_the_others(world: World) -> None:
    added = world.counter.add_many({"a": 1, "": 2, "b": 2**64}, errors="return")
    assert added[0] == 1
    assert sorted(added.errors) == [1, 2]
    with pytest.raises(TypeError, match=r"n\[1\] must be int, not str"):
        world.counter.add_many({"a": 1, "b": "2"})
    assert world.counter.get("a") == 1


class Raises:
    """Of which every question raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error

    __int__ = __float__ = __iter__ = __len__ = __str__ = __fspath__ = __index__  # type: ignore[assignment]

    def __getitem__(self, at: int) -> Any:
        raise self.error


class Stop(BaseException):
    """Which nobody may swallow."""


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("within", [False, True], ids=["", "as an element"])
def test_what_a_hostile_batch_raises_comes_out(world: World, name: str, within: bool) -> None:
    place = world.places[name]
    hostile: Any = Raises(Stop())
    with pytest.raises((Stop, TypeError)):
        place.call([place.items[0], hostile] if within else hostile)


class HostileMapping(UserDict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise Stop

    def __iter__(self) -> Any:
        raise Stop


@pytest.mark.parametrize("name", PLACES)
def test_what_a_hostile_mapping_raises_comes_out(world: World, name: str) -> None:
    with pytest.raises((Stop, TypeError)):
        world.places[name].call(HostileMapping({"a": 1, "b": 2}))


@pytest.mark.server
def test_execute_stores_nothing_of_a_number_that_raises(own_redis: Any) -> None:
    with own_redis.redis() as redis:
        with pytest.raises(Stop):
            redis.execute("SET", "k", Raises(Stop()))
        assert redis.execute("EXISTS", "k") == 0
