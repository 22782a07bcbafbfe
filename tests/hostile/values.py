"""What callers hand in on a bad day: objects that raise, lie, recurse, and change under way."""

from __future__ import annotations

import array
import datetime
import decimal
import fractions
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# Each method of the protocols that arguments are read by.
PROTOCOLS = (
    *("__index__", "__int__", "__float__", "__str__", "__repr__", "__eq__", "__hash__", "__iter__"),
    *("__len__", "__getitem__", "__bool__", "__fspath__", "__bytes__", "__buffer__", "__lt__"),
    *("__contains__", "keys", "items", "__enter__", "__call__", "utcoffset", "total_seconds"),
)


class Mishap(Exception):
    """Raised by hostile objects: seen by the caller as it is."""


class World:
    """What a hostile method may do to the objects of a run."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.closers: list[Callable[[], object]] = []
        self.again: Callable[[], object] = lambda: None
        self.depth = 0
        self.budget = 0  # Nested calls that one call may still make: each makes others.

    def act(self) -> Any:
        """What a hostile method answers, or does before it does."""
        kind = self.rng.randrange(9)
        if kind == 0:
            raise Mishap("raised")
        if kind == 1:
            raise self.rng.choice([MemoryError, RecursionError, KeyError, ValueError, OSError])
        if kind == 2 and self.closers:
            self.rng.choice(self.closers)()
        if kind == 3 and self.depth < 3 and self.budget > 0:
            self.depth += 1
            self.budget -= 1
            try:
                self.again()
            finally:
                self.depth -= 1
        return self.rng.choice(
            [0, 1, -1, 3, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, float("nan")]
            + [float("inf"), "k", "\udc80", "\0", b"\xff", None, NotImplemented, ..., [], {}, int]
        )


def hostile_class(world: World, base: type = object) -> Any:
    """A class of which some methods are hostile."""
    chosen = world.rng.sample(PROTOCOLS, world.rng.randint(1, 5))
    namespace: dict[str, Any] = {}
    for name in chosen:
        namespace[name] = lambda self, *args, **kw: world.act()
    if "__eq__" in namespace and "__hash__" not in namespace:
        namespace["__hash__"] = base.__hash__
    return type("Hostile", (base,), namespace)


def hostile_object(world: World) -> Any:
    base: Any = world.rng.choice([object, object, object, int, str, bytes, float, list, dict])
    cls = hostile_class(world, base)
    return cls() if base in (object, list, dict) else cls(base("7") if base is not bytes else b"7")


def changing_list(world: World) -> list[Any]:
    """A list that an element's conversion makes shorter, or longer, while it is read."""
    owner: list[Any] = ["a", "b", "c", "d"]

    def change(self: object, *args: object) -> Any:
        if world.rng.random() < 0.5:
            owner.clear()
        else:
            owner.extend(["more"] * 1000)
        return world.rng.choice([1, "k", b"k", 2**70, None])

    names = ("__index__", "__str__", "__hash__", "__eq__", "__float__", "__bool__", "__len__")
    cls = type("Changer", (), dict.fromkeys(names, change))
    changer: Any = cls
    owner.insert(world.rng.randrange(3), changer())
    return owner


def endless(world: World) -> Iterator[Any]:
    """Many and then an error: what takes any iterable must end."""
    yield from range(world.rng.choice([0, 1, 5000]))
    raise Mishap("the iterable broke off")


def odd_buffer(world: World) -> Any:
    rng = world.rng
    make: Any = rng.choice(
        [
            lambda: array.array(rng.choice("bBhHiIqQfd"), [1, 2, 3]),
            lambda: np.frombuffer(b"abcdefgh" * 4, rng.choice([*"bBhIqfc"])).data,
            lambda: memoryview(bytearray(32))[:: rng.choice([-1, 2, 3])],
            lambda: np.ones(12, dtype=rng.choice(["i8", ">i8", "u8", "i4", "f8", "?", "S3"])),
            lambda: np.arange(12, dtype="i8").reshape(3, 4).T,
            lambda: np.arange(12, dtype="i8")[::-2],
            lambda: np.array([1, "k", None], dtype=object),
            lambda: np.array(5, dtype="i8"),
            lambda: np.empty((0, 3), dtype="i8"),
            lambda: np.array([2**63], dtype="u8"),
            lambda: np.array(["k\udc80", "NaT"], dtype="U2"),
            lambda: np.array(["2026-11-21"], dtype="M8[D]"),
            lambda: np.zeros(3, dtype=[("a", "i8"), ("b", "f4")]),
        ]
    )
    made: Any = make()
    if isinstance(made, memoryview) and rng.random() < 0.2:
        made.release()
    return made


def plain(rng: random.Random) -> Any:
    return rng.choice(
        [
            *(None, True, False, ..., NotImplemented, int, len, object()),
            *(0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, -(2**64), 10**400),
            *(0.0, -0.0, 1e-320, 1e308, float("nan"), float("inf"), -float("inf"), 1j),
            *("", "k", "\0", "k\0k", "\udc80", "\U0001f600", "a" * 70_000, "%", "{}", "{k}", "1"),
            *(b"", b"k", b"\xff\xfe", b"\0", bytearray(b"k"), b"x" * 70_000),
            *((), [], {}, set(), frozenset({1}), [[]], [None], ["k", 1, b"k"], ("a", "b")),
            *({"k": 1}, {"k": 2**70}, {1: "x"}, [("k", 1)], [("k",)], ["k"] * 3000, range(10)),
            *(range(10**5), decimal.Decimal("1.5"), decimal.Decimal("sNaN")),
            *(fractions.Fraction(1, 3), datetime.datetime.max, datetime.datetime.min),
            *(datetime.timedelta.max, datetime.timedelta(-1), datetime.date(1, 1, 1)),
            *(datetime.timezone.utc, uuid.UUID(int=7), "day", "naive", "batched", "gcra", "10/s"),
            *("1/1e400s", "Europe/Berlin", "../etc", "raise", "return", "memory://"),
            *("sqlite:///:memory:", "redis+unix:///no/such.sock", "postgres://"),
        ]
    )


def hostile(world: World) -> Any:
    """One value, of any kind."""
    kind = world.rng.randrange(10)
    if kind == 0:
        itself: list[Any] = ["k"]
        itself.append(itself)
        return itself
    if kind == 1:
        return changing_list(world)
    if kind == 2:
        return endless(world)
    if kind == 3:
        return odd_buffer(world)
    if kind in (4, 5):
        return hostile_object(world)
    if kind == 6:
        return [hostile_object(world) for _ in range(world.rng.randrange(4))]
    if kind == 7:
        return {world.rng.choice(["k", 1, b"k"]): hostile_object(world)}
    return plain(world.rng)
