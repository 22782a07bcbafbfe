"""python -m tests.hostile.fuzz SEED SECONDS REDIS_URL|- STATE_FILE: hostile calls of everything.

Functions, constructors, methods, properties and operators of hotcount and hotcount.aio, found by
inspection, are called with hostile objects. Each call must end with a value or with an exception
that is no SystemError. Each call is written to the state file before it starts, so that the file
names the call that killed a process. The same seed makes the same calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import faulthandler
import gc
import inspect
import operator
import os
import pickle
import random
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hotcount
import hotcount.aio
from hotcount import _core

from tests.hostile.classes import extension_classes, members
from tests.hostile.unfinished import NOT_OURS
from tests.hostile.values import World, hostile

# They wait for a stop that never comes, or for a child; or end the run by design.
NOT_CALLED = {"SyncWorker.run", "__class_getitem__", "__init__", "__new__"}

# Good values by parameter, so that calls come further than their first argument.
GOOD: dict[str, Any] = {
    "key": "k", "keys": ["k", "l"], "mapping": {"k": 1}, "member": "m", "members": ["m", "n"],
    "item": 1, "items": [1, 2], "user": 1, "users": [1, 2], "value": 1, "values": [1, 1],
    "n": 1, "score": 1.5, "min": 0, "max": 9, "at": 0, "start": 0, "end": 1, "ttl": 60,
    "op_id": "op", "op_ids": ["op", "oq"], "rate": "10/s", "period": "day", "msg": None,
    "url": "memory://", "store": "memory://", "db": "sqlite:///:memory:",
    "pattern": "*", "match": "*",
}  # fmt: skip


class Fuzz:
    def __init__(self, seed: int, redis_url: str | None, state: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(self.rng)
        self.redis_url = redis_url
        self.state = state
        self.calls = 0
        self.values = 0
        self.wrong: list[str] = []
        self.pool: list[Any] = []
        self.made: dict[int, str] = {}

    # -- what is called on ------------------------------------------------------

    def fill_pool(self) -> None:
        """Fresh stores, and concepts on them; closed ones of before are dropped."""
        self.pool.clear()
        self.world.closers.clear()
        memory = hotcount.Memory(max_keys=self.rng.choice([3, 1000]))
        database = hotcount.Database("sqlite:///:memory:")
        stores: list[Any] = [memory]
        if self.redis_url is None:
            stores.append(hotcount.Redis("redis+unix:///no/such.sock", timeout=0.05))
        else:
            stores.append(hotcount.Redis(self.redis_url, timeout=2))
        self.pool += [*stores, database]
        for store in stores:
            self.pool += [
                hotcount.Counter(store),
                hotcount.Counter(store, ttl=60),
                hotcount.PeriodCounter(store, "day"),
                hotcount.Limiter(store, "10/s"),
                hotcount.LiveSets(store),
            ]
        slotted = hotcount.SlottedCounter(database)
        slotted.create_table()
        self.pool.append(slotted)
        views = hotcount.WriteBehindCounter(database, stores[1], flush_interval=60)
        views.create_tables()
        self.pool += [views, views.sync_worker()]
        for strategy in ("naive", "slotted", "batched", "cached"):
            base = hotcount.Database("sqlite:///:memory:")
            votes = hotcount.Votes(
                base, memory if strategy == "cached" else None, strategy=strategy
            )
            votes.create_tables()
            votes.add_items([1, 2])
            self.pool += [base, votes]
            if strategy == "cached":
                self.pool.append(votes.sync_worker())
        self.world.closers += [each.close for each in self.pool if hasattr(each, "close")]

    def fill_aio_pool(self) -> None:
        """The awaitable faces, in a running loop."""
        self.pool.clear()
        self.world.closers.clear()
        memory = hotcount.aio.Memory()
        stores: list[Any] = [memory]
        if self.redis_url is not None:
            stores.append(hotcount.aio.Redis(self.redis_url, timeout=2))
        database = hotcount.Database("sqlite:///:memory:")
        setup = hotcount.Votes(database, strategy="batched")
        setup.create_tables()
        setup.add_items([1, 2])
        self.pool += stores
        self.pool += [hotcount.aio.Counter(store) for store in stores]
        self.pool.append(hotcount.aio.Votes(database, strategy="batched"))
        self.pool.append(database)

    # -- one call ---------------------------------------------------------------

    def argument(self, name: str, good: float) -> Any:
        if name == "timeout":
            return self.rng.choice([0.05, 0.05, 0, -1, None, "soon", float("nan"), hostile])
        if self.rng.random() < good and name in GOOD:
            return copy.copy(GOOD[name])
        if self.rng.random() < 0.1 and self.pool:
            return self.rng.choice(self.pool)
        return hostile(self.world)

    def parameters(self, what: object) -> list[tuple[str, bool, bool]]:
        """Name, keyword-only, required; as the first line of the docstring has them."""
        line = (inspect.getdoc(what) or "").split("\n", 1)[0]
        shown = re.match(r"[\w.]+\((.*)\)", line)
        found, keyword_only, depth, part = [], False, 0, ""
        for character in (shown[1] if shown else "") + ",":
            depth += (character in "[({") - (character in "])}")
            if character != "," or depth:
                part += character
                continue
            name = re.split(r"[:=]", part.strip())[0].strip()
            required = "=" not in part
            part = ""
            if name.startswith("*"):
                keyword_only = True
            elif name and name not in ("self", "/"):
                found.append((name, keyword_only, required))
        return found

    def invoke(self, what: Any, bound: tuple[Any, ...] = ()) -> object:
        good = self.rng.choice([0.0, 0.5, 0.8, 0.95])
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, keyword_only, required in self.parameters(what):
            if not required and self.rng.random() < 0.5:
                if name == "timeout":
                    keywords[name] = 0.05
                continue
            value = self.argument(name, good)
            if keyword_only or keywords or not required:
                keywords[name] = value
            else:
                positional.append(value)
        if self.rng.random() < 0.05:
            positional.append(hostile(self.world))
        if self.rng.random() < 0.05:
            keywords[self.rng.choice(["nosuch", "self", "\udc80", "timeout"])] = 1
        return what(*bound, *positional, **keywords)

    def operations(self, thing: Any) -> list[tuple[str, Callable[[], object]]]:
        other = hostile(self.world)
        index = self.rng.choice([0, -1, 99, 2**70, slice(None, None, -1), slice(0, 2**70), other])
        spec = self.rng.choice(["", ">9", "d", "\0", "{}"])
        return [
            ("repr", lambda: repr(thing)),
            ("hash", lambda: hash(thing)),
            ("==", lambda: thing == other),
            ("reflected ==", lambda: other == thing),
            ("<", lambda: thing < other),
            ("+", lambda: thing + other),
            ("[]", lambda: thing[index]),
            ("[] =", lambda: operator.setitem(thing, index, other)),
            ("in", lambda: other in thing),
            ("len", lambda: len(thing)),
            ("list", lambda: list(thing)[:3]),
            ("bool", lambda: bool(thing)),
            ("int", lambda: int(thing)),
            ("format", lambda: format(thing, spec)),
            ("memoryview", lambda: memoryview(thing).tolist()[:3]),
            ("pickle", lambda: pickle.loads(pickle.dumps(thing))),
            ("copy", lambda: copy.copy(thing)),
            ("deepcopy", lambda: copy.deepcopy(thing)),
            ("setattr", lambda: setattr(thing, self.rng.choice(dir(thing)), other)),
            ("delattr", lambda: delattr(thing, self.rng.choice(dir(thing)))),
            ("with", lambda: contextlib.ExitStack().enter_context(thing)),
            ("init", lambda: thing.__init__(other)),
        ]

    def choose(self) -> tuple[str, Callable[[], object]]:
        kind = self.rng.random()
        if kind < 0.15:
            name, cls = self.rng.choice(sorted(extension_classes().items()))
            init = getattr(cls, "__init__", None)
            if self.rng.random() < 0.1:
                return f"{name}.__new__", lambda: cls.__new__(cls)
            return f"{name}()", lambda: self.construct(cls, init)
        if kind < 0.25:
            functions = [
                (f"{module.__name__}.{name}", value)
                for module in (hotcount, hotcount.aio, _core)
                for name, value in sorted(vars(module).items())
                if inspect.isbuiltin(value)
            ]
            name, function = self.rng.choice(functions)
            return name, lambda: self.invoke(function)
        thing = self.rng.choice(self.pool)
        cls = type(thing)
        if kind < 0.4 or not cls.__module__.startswith("hotcount"):
            what, use = self.rng.choice(self.operations(thing))
            return f"{what} of {cls.__module__}.{cls.__name__}", use
        has = sorted(set(members(cls)) - NOT_OURS)
        name = self.rng.choice(has)
        member = inspect.getattr_static(cls, name)
        if name in NOT_CALLED or f"{cls.__name__}.{name}" in NOT_CALLED:
            return "nothing", lambda: None
        if inspect.isdatadescriptor(member):
            return f"{cls.__name__}.{name}", lambda: getattr(thing, name)
        method = getattr(thing, name)
        if not callable(method):
            return "nothing", lambda: None
        if self.rng.random() < 0.05:  # As a function, on a self of another kind.
            self_ = hostile(self.world)
            return f"{cls.__name__}.{name}(hostile)", lambda: self.invoke(
                getattr(cls, name), (self_,)
            )
        return f"{cls.__name__}.{name}()", lambda: self.invoke(method)

    def construct(self, cls: Any, init: object) -> object:
        made: list[object] = []

        class Construct:
            __doc__ = inspect.getdoc(init)

            def __call__(self, *args: Any, **kw: Any) -> object:
                made.append(cls(*args, **kw))
                return made[0]

        return self.invoke(Construct())

    def once(self) -> object:
        what, use = self.choose()
        self.calls += 1
        os.pwrite(self.state, f"call {self.calls}: {what}".ljust(300).encode(), 0)
        self.world.again = use if self.rng.random() < 0.3 else (lambda: None)
        self.world.budget = 20
        try:
            value = use()
        except SystemError as wrong:
            self.wrong.append(f"call {self.calls}: {what}: {wrong!r}")
            return None
        except (KeyboardInterrupt, SystemExit, GeneratorExit) as wrong:
            self.wrong.append(f"call {self.calls}: {what}: {wrong!r}")
            return None
        except BaseException as refused:
            # What a log would make of it.
            with contextlib.suppress(Exception):
                str(refused)
            return None
        self.values += 1
        self.made[id(value)] = f"call {self.calls}: {what}"
        if type(value).__module__.startswith("hotcount._core"):
            with contextlib.suppress(Exception):
                repr(value)
            if len(self.pool) < 60 and not hasattr(value, "close"):
                self.pool.append(value)
        return value

    # -- runs -------------------------------------------------------------------

    def rounds(self, until: float) -> Iterator[None]:
        while time.monotonic() < until:
            yield
            gc.collect()

    def run(self, seconds: float) -> None:
        half = time.monotonic() + seconds / 2
        for _ in self.rounds(half):
            self.fill_pool()
            for _ in range(300):
                self.once()
        asyncio.run(self.run_aio(half + seconds / 2))

    async def run_aio(self, until: float) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in self.rounds(until):
            self.fill_aio_pool()
            waiting: list[Any] = []
            for _ in range(300):
                value = self.once()
                if type(value).__name__ == "Pending":
                    waiting.append(value)
                if self.rng.random() < 0.1:
                    await asyncio.sleep(0)
                if waiting and self.rng.random() < 0.05:
                    await self.until_done([waiting[-1]])
            await self.until_done(waiting)
            for each in waiting:
                with contextlib.suppress(BaseException):
                    each.exception()

    async def until_done(self, waiting: list[Any]) -> None:
        until = time.monotonic() + 20
        while not all(each.done() for each in waiting):
            if time.monotonic() > until:
                late = [self.made[id(each)] for each in waiting if not each.done()]
                self.wrong.append(f"not ended within 20 s: {late}")
                return
            await asyncio.sleep(0.001)


def main(words: list[str]) -> int:
    seed, seconds, redis_url, state_file = int(words[0]), float(words[1]), words[2], words[3]
    faulthandler.enable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda *_: None
    threading.excepthook = lambda *_: None
    sys.set_int_max_str_digits(0)
    state = os.open(state_file, os.O_RDWR | os.O_CREAT, 0o600)
    # A call that hangs is shown before the parent gives up.
    faulthandler.dump_traceback_later(seconds + 45, exit=True)
    fuzz = Fuzz(seed, None if redis_url == "-" else redis_url, state)
    fuzz.run(seconds)
    faulthandler.cancel_dump_traceback_later()
    print(f"seed {seed}: {fuzz.calls} calls, {fuzz.values} of them returned a value")
    for line in fuzz.wrong:
        print("WRONG", line)
    return 1 if fuzz.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
