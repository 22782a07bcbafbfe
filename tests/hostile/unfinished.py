"""python -m tests.hostile.unfinished CLASS: every use of an object whose __init__ never ran.

Prints each way before it tries it, so that the last line of a process that died names the culprit,
and ends with 1 where a way did something else than to refuse.
"""

from __future__ import annotations

import asyncio
import copy
import faulthandler
import inspect
import operator
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hotcount import _core

from tests.hostile.classes import class_named, members, required_keywords, required_parameters

# Of Python and pybind11, not of the class: they look at no C++ object.
NOT_OURS = {
    *("__new__", "__init__", "__doc__", "__module__", "__dict__", "__weakref__", "__annotations__"),
    *("_pybind11_conduit_v1_", "__class_getitem__", "__firstlineno__", "__static_attributes__"),
    *("__orig_bases__", "__parameters__", "__match_args__"),
    "__slots__",
    *("__buffer__", "__release_buffer__"),  # From 3.12 on; memoryview() has them.
    "__getitem__",  # Overloaded: its docstring shows no parameters. operators() has it.
}


async def enter(thing: Any) -> None:
    async with thing:
        pass


async def wait_for(thing: Any) -> None:
    await thing


def with_it(thing: Any) -> None:
    with thing:
        pass


def operators(has: dict[str, object]) -> Iterator[tuple[str, Callable[[Any], object]]]:
    """What syntax and builtins do, each where the class defines what it needs."""
    table: list[tuple[str, str, Callable[[Any], object]]] = [
        ("__repr__", "repr", repr),
        ("__repr__", "str", str),
        ("__repr__", "format", format),
        ("__hash__", "hash", hash),
        ("__hash__", "as a key", lambda it: {it: 1}),
        ("__eq__", "== itself", lambda it: it == it),
        ("__eq__", "== []", lambda it: it == []),
        ("__eq__", "!=", lambda it: it != []),
        ("__len__", "len", len),
        ("__iter__", "iter", iter),
        ("__iter__", "list", list),
        ("__reversed__", "reversed", reversed),
        ("__getitem__", "[0]", lambda it: it[0]),
        ("__getitem__", "[:]", lambda it: it[:]),
        ("__contains__", "in", lambda it: 0 in it),
        ("__bool__", "bool", bool),
        ("__int__", "int", int),
        ("__index__", "index", operator.index),
        ("__float__", "float", float),
        ("__enter__", "with", with_it),
        ("__aenter__", "async with", lambda it: asyncio.run(enter(it))),
        ("__await__", "await", lambda it: asyncio.run(wait_for(it))),
        ("__reduce__", "pickle", pickle.dumps),
        ("__reduce__", "copy", copy.copy),
        ("__reduce__", "deepcopy", copy.deepcopy),
    ]
    for needed, what, use in table:
        if callable(has.get(needed)):
            yield what, use


def attributes(has: dict[str, object]) -> Iterator[tuple[str, Callable[[Any], object]]]:
    for name, member in has.items():
        if name in NOT_OURS or isinstance(member, (staticmethod, classmethod)):
            continue
        if not callable(member) and not inspect.isdatadescriptor(member):
            continue
        if inspect.isdatadescriptor(member):
            yield f".{name}", operator.attrgetter(name)
            continue
        arguments = ["1"] * required_parameters(member)
        keywords = dict.fromkeys(required_keywords(member), "1")

        def call(
            it: Any,
            member: Any = member,
            arguments: list[str] = arguments,
            keywords: dict[str, str] = keywords,
        ) -> object:
            return member(it, *arguments, **keywords)

        yield f".{name}()", call


def refuses(cls: type, use: Callable[[Any], object], thing: object) -> str:
    """Empty where it refuses as it should, else what it did."""
    try:
        value = use(thing)
        if inspect.iscoroutine(value):  # Of an `async def` that Python runs.
            asyncio.run(value)
    except TypeError as refusal:
        text = str(refusal)
        owner = next(base for base in cls.__mro__ if base.__module__.startswith("hotcount"))
        if f"{owner.__name__}.__init__()" in text:
            return ""
        return f"TypeError without the class: {text}"
    except BufferError as refusal:
        return "" if isinstance(refusal.__cause__, TypeError) else repr(refusal)
    except BaseException as refusal:
        return repr(refusal)
    return f"returned a {type(value).__name__}"


def main(name: str) -> int:
    cls = class_named(name)
    has = members(cls)

    class Forgetful(cls):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            pass

    makers: dict[str, Callable[[], object]] = {
        "new": lambda: cls.__new__(cls),
        "subclass": lambda: Forgetful.__new__(Forgetful),
    }
    ways = [*operators(has), *attributes(has)]
    if hasattr(cls, "__buffer__") or getattr(cls, "itemsize", None) is not None:
        ways.append(("memoryview", memoryview))
    wrong = 0
    for maker, make in makers.items():
        for what, use in ways:
            print(f"{name} {maker} {what}", flush=True)
            told = refuses(cls, use, make())
            if told:
                wrong += 1
                print(f"WRONG {name} {maker} {what}: {told}", flush=True)
    # The constructor's own check of a subclass that forgot its base: pybind11's.
    told = "" if issubclass(cls, _core.Handle) else refuses(cls, lambda _: Forgetful(), None)
    if told:
        wrong += 1
        print(f"WRONG {name} of a forgetful subclass: {told}")
    return 1 if wrong else 0


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main(sys.argv[1]))
