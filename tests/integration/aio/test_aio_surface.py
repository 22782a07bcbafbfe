"""hotcount.aio has the names and parameters of hotcount."""

from __future__ import annotations

import inspect
from typing import Any

import hotcount
import pytest
from hotcount import _core, aio

from tests.support.programs import run_python

CLASSES = {
    "Counter": (hotcount.Counter, aio.Counter),
    "Memory": (hotcount.Memory, aio.Memory),
    "Redis": (hotcount.Redis, aio.Redis),
    "Database": (hotcount.Database, aio.Database),
    "Votes": (hotcount.Votes, aio.Votes),
    "Limiter": (hotcount.Limiter, aio.Limiter),
    "LiveSets": (hotcount.LiveSets, aio.LiveSets),
    "SlottedCounter": (hotcount.SlottedCounter, aio.SlottedCounter),
    "PeriodCounter": (hotcount.PeriodCounter, aio.PeriodCounter),
}
FOR_LOOPS = {"close": "aclose"}


def public(cls: type) -> dict[str, Any]:
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("hotcount")]
    found = {name: value for base in ours for name, value in vars(base).items()}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def parameters(thing: Any) -> str:
    """The parameters in its signature; without one, those in its docstring's first line."""
    if inspect.isfunction(thing) or isinstance(thing, _core.NativeFunction):
        return str(inspect.signature(thing)).split(" ->")[0]
    line = str(thing.__doc__).splitlines()[0]
    return line[line.index("(") : line.rindex(") ->")]


@pytest.mark.parametrize("name", CLASSES)
def test_async_classes_have_the_methods_of_the_sync_ones(name: str) -> None:
    waiting, awaitable = CLASSES[name]
    methods = {name for name, value in public(waiting).items() if callable(value)}
    others = {name for name, value in public(awaitable).items() if callable(value)}
    assert {FOR_LOOPS.get(method, method) for method in methods} == others
    assert "closed" in public(waiting).keys() & public(awaitable).keys()
    classes: tuple[Any, ...] = CLASSES[name]
    constructors = [vars(cls).get("__init__", cls.__init__) for cls in classes]
    assert parameters(constructors[0]) == parameters(constructors[1])
    for method, value in public(awaitable).items():
        if callable(value) and method != "aclose":
            assert parameters(value) == parameters(getattr(waiting, method)), method


def test_importing_hotcount_does_not_import_asyncio() -> None:
    code = """
import sys, hotcount
hotcount.Counter("memory://").add("k")
print("asyncio" in sys.modules)
"""
    run = run_python("-c", code)
    assert (run.stdout.strip(), run.stderr) == ("False", "")


def test_messages_name_classes_by_their_public_module() -> None:
    not_a_store: Any = aio.Counter("memory://")
    with pytest.raises(TypeError, match=r"store must be .*, not hotcount\.aio\.Counter"):
        hotcount.Counter(not_a_store)
    with pytest.raises(TypeError, match=r"store must be .*, not int"):
        aio.Counter(7)  # type: ignore[arg-type]


async def test_classes_may_be_derived_from() -> None:
    class Likes(aio.Counter):
        def __init__(self, name: str) -> None:
            super().__init__(f"memory://{name}", prefix="likes")

        async def like(self, photo: int) -> int:
            return await self.add(f"photo:{photo}")

    async with Likes("aio-derived") as likes:
        assert (await likes.like(1), await likes.like(1)) == (1, 2)


@pytest.mark.parametrize("name", CLASSES)
async def test_close_of_an_async_object_names_aclose_which_both_have(name: str) -> None:
    urls = {"Redis": "redis://localhost", "Database": "sqlite:///:memory:", "Memory": "memory://"}
    of_sql = name in ("Votes", "SlottedCounter")
    url = urls.get(name, "sqlite:///:memory:" if of_sql else "memory://")
    more = ("5/minute",) if name == "Limiter" else ()
    waiting, awaitable = (cls(url, *more) for cls in CLASSES[name])
    with pytest.raises(AttributeError, match=rf"{name} of hotcount.aio .*await x.aclose\(\)"):
        _ = awaitable.close
    assert not hasattr(awaitable, "close")
    await waiting.aclose()
    await awaitable.aclose()
    assert waiting.closed
    assert awaitable.closed
