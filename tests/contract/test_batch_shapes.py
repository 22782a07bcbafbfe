"""Every call that takes a batch, with every shape that a caller may take for one.

A shape either means what it says or is a TypeError that names the argument: a mapping whose numbers
were left out, or a set that was paired with a list, would be wrong data without a word.
"""

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
class World:
    counter: hotcount.Counter
    awaitable: hotcount.aio.Counter
    limiter: hotcount.Limiter
    sets: hotcount.LiveSets
    slotted: hotcount.SlottedCounter
    votes: hotcount.Votes
    views: hotcount.WriteBehindCounter


@dataclass
class Place:
    """One argument of one call that takes a batch: "Class.call argument"."""

    name: str
    call: Callable[..., Any]  # With a World before the batch.
    items: list[Any]
    paired: bool = False  # Another column follows its order.
    takes_mapping: bool = False

    @property
    def argument(self) -> str:
        return self.name.split()[1]


def awaited(call: Callable[..., Any]) -> Callable[..., Any]:
    async def outcome(*arguments: Any) -> Any:
        return await call(*arguments)

    return lambda *arguments: asyncio.run(outcome(*arguments))


@pytest.fixture
def world() -> Iterator[World]:
    store = hotcount.Memory()
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
    awaitable = hotcount.aio.Counter(hotcount.aio.Memory("memory://"))
    limiter = hotcount.Limiter(store, "100/minute")
    yield World(hotcount.Counter(store), awaitable, limiter, sets, slotted, votes, views)
    database.close()
    store.close()


KEYS, NUMBERS = ["a", "b"], [1, 2]
ROWS = [("z", "m", 1), ("z", "n", 2)]


def upsert(
    w: World, keys: Any = ("z", "z"), members: Any = ("m", "n"), scores: Any = (1, 2)
) -> Any:
    return w.sets.upsert_many(keys=keys, members=members, scores=scores)


ALL_PLACES = [
    Place("Counter.add_many keys", lambda w, *x: w.counter.add_many(*x), KEYS, takes_mapping=True),
    Place("Counter.add_many keys with n", lambda w, x: w.counter.add_many(x, [1, 2]), KEYS, True),
    Place("Counter.add_many n", lambda w, x: w.counter.add_many(KEYS, x), NUMBERS, True),
    Place("Counter.get_many keys", lambda w, x: w.counter.get_many(x), KEYS),
    Place(
        *("aio.Counter.add_many keys", awaited(lambda w, *x: w.awaitable.add_many(*x)), KEYS),
        takes_mapping=True,
    ),
    Place(
        "aio.Counter.add_many n", awaited(lambda w, x: w.awaitable.add_many(KEYS, x)), NUMBERS, True
    ),
    Place("aio.Counter.get_many keys", awaited(lambda w, x: w.awaitable.get_many(x)), KEYS),
    Place("Limiter.hit_many keys", lambda w, *x: w.limiter.hit_many(*x), KEYS, takes_mapping=True),
    Place(
        "Limiter.hit_many keys with cost", lambda w, x: w.limiter.hit_many(x, [1, 2]), KEYS, True
    ),
    Place("Limiter.hit_many cost", lambda w, x: w.limiter.hit_many(KEYS, x), NUMBERS, True),
    Place("LiveSets.upsert_many items", lambda w, *x: w.sets.upsert_many(*x), ROWS),
    Place("LiveSets.upsert_many keys", lambda w, x: upsert(w, keys=x), ["z", "y"], True),
    Place("LiveSets.upsert_many members", lambda w, x: upsert(w, members=x), ["m", "n"], True),
    Place("LiveSets.upsert_many scores", lambda w, x: upsert(w, scores=x), NUMBERS, True),
    Place("SlottedCounter.get_many keys", lambda w, x: w.slotted.get_many(x), KEYS),
    Place(
        *("WriteBehindCounter.add_many keys", lambda w, *x: w.views.add_many(*x, ack="sql"), KEYS),
        takes_mapping=True,
    ),
    Place(
        *("WriteBehindCounter.add_many n", lambda w, x: w.views.add_many(KEYS, x, ack="sql")),
        *(NUMBERS, True),
    ),
    Place("Votes.cast_many items", lambda w, x: w.votes.cast_many(x, [7, 8]), NUMBERS, True),
    Place("Votes.cast_many users", lambda w, x: w.votes.cast_many([1, 2], x), NUMBERS, True),
    Place(
        "Votes.cast_many values", lambda w, x: w.votes.cast_many([1, 2], [7, 8], x), NUMBERS, True
    ),
    Place(
        "Votes.cast_many op_ids", lambda w, x: w.votes.cast_many([1, 2], None, op_ids=x), KEYS, True
    ),
    Place("Votes.count_many items", lambda w, x: w.votes.count_many(x), NUMBERS),
    Place("Votes.get_many items", lambda w, x: w.votes.get_many(x, 1), NUMBERS),
    Place("Votes.add_items items", lambda w, x: w.votes.add_items(x), NUMBERS),
    Place("Votes.reconcile items", lambda w, x: w.votes.reconcile(x), NUMBERS),
]
PLACES = {place.name: place for place in ALL_PLACES}


def test_every_call_that_takes_a_batch_is_here() -> None:
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
    # The second takes rows one after the other, however many they are.
    others = {"SlottedCounter.add_many", "LiveSets.rebuild_many"}
    assert batches - {place.split(" ")[0] for place in PLACES} == others


@pytest.mark.parametrize("shape", ORDERED)
@pytest.mark.parametrize("name", PLACES)
def test_a_batch_takes_every_ordered_shape(world: World, name: str, shape: str) -> None:
    place = PLACES[name]
    place.call(world, ORDERED[shape](place.items))


@pytest.mark.parametrize("shape", MAPPINGS)
@pytest.mark.parametrize("name", PLACES)
def test_a_mapping_has_its_numbers_counted_or_fails(world: World, name: str, shape: str) -> None:
    place = PLACES[name]
    mapping = MAPPINGS[shape](dict(zip(place.items, (10, 20))))
    if place.takes_mapping:
        result = list(place.call(world, mapping))
        if "Limiter" in name:
            assert [decision.remaining for decision in result] == [90, 80]
        else:
            assert result == [10, 20]
        with pytest.raises(TypeError, match="must not be given where keys is a mapping"):
            place.call(world, mapping, 1)
    else:
        with pytest.raises(TypeError, match=rf"^{place.argument}\b|^n must not|^cost must not"):
            place.call(world, mapping)


@pytest.mark.parametrize("shape", SETS)
@pytest.mark.parametrize("name", PLACES)
def test_a_set_is_taken_where_nothing_is_paired(world: World, name: str, shape: str) -> None:
    place = PLACES[name]
    column = SETS[shape](place.items)
    if place.paired:
        with pytest.raises(TypeError, match=rf"^{place.argument} must be a sequence, in an order"):
            place.call(world, column)
    else:
        place.call(world, column)


@pytest.mark.parametrize("wrong", TEXTS, ids=repr)
@pytest.mark.parametrize("name", PLACES)
def test_an_argument_that_is_no_batch_is_named(world: World, name: str, wrong: Any) -> None:
    place = PLACES[name]
    one_for_all = wrong == 5 and place.argument in ("n", "cost", "values")
    nothing = wrong is None and name in ("Votes.reconcile items", "Votes.cast_many op_ids")
    if one_for_all or nothing:
        return
    with pytest.raises((TypeError, hotcount.ConfigError), match=rf"{place.argument}|users"):
        place.call(world, wrong)


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
    """An argument that raises at every use."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error

    __int__ = __float__ = __iter__ = __len__ = __str__ = __fspath__ = __index__  # type: ignore[assignment]

    def __getitem__(self, at: int) -> Any:
        raise self.error


class Stop(BaseException):
    """An exception that no call may swallow."""


class HostileMapping(UserDict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise Stop

    def __iter__(self) -> Any:
        raise Stop


@pytest.mark.parametrize("name", PLACES)
def test_what_a_hostile_batch_raises_comes_out(world: World, name: str) -> None:
    hostile: Any = Raises(Stop())
    element, mapping = [PLACES[name].items[0], hostile], HostileMapping({"a": 1, "b": 2})
    for batch in (hostile, element, mapping):
        with pytest.raises((Stop, TypeError)):
            PLACES[name].call(world, batch)


def test_execute_stores_nothing_of_a_number_that_raises(own_redis: Any) -> None:
    with own_redis.redis() as redis:
        with pytest.raises(Stop):
            redis.execute("SET", "k", Raises(Stop()))
        assert redis.execute("EXISTS", "k") == 0
