"""Every public callable, found by walking the package: what tools read of it, in both faces."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import typing
from typing import Any

import hotcount
import hotcount.aio
import pytest


def callables() -> dict[str, Any]:
    """Classes, their methods, and functions, by the module and name that they say they have."""
    found: dict[str, Any] = {}

    def add(thing: Any) -> None:
        if not str(getattr(thing, "__module__", "")).startswith("hotcount"):
            return
        if not hasattr(thing, "__qualname__"):  # Such as a member of an enum.
            return
        name = f"{thing.__module__}.{thing.__qualname__}"
        if name in found or not callable(thing):
            return
        found[name] = thing
        if inspect.isclass(thing):
            for attribute in dir(thing):
                member = inspect.getattr_static(thing, attribute)
                member = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if not attribute.startswith("_") or attribute in ("__init__", "__getitem__"):
                    add(member)

    for module in (hotcount, hotcount.aio):
        for name in module.__all__:
            add(getattr(module, name))
    return found


CALLABLES = callables()


def test_the_walk_finds_sync_and_async_classes_methods_and_functions() -> None:
    assert {
        *("hotcount.stores.Redis.execute", "hotcount.aio.stores.Redis.execute"),
        *("hotcount.counter.Counter.add", "hotcount.aio.counter.Counter.add"),
        *("hotcount.rate.Rate.parse", "hotcount.results.Decision.headers"),
        *("hotcount.stores.connect_store", "hotcount.aio.stores.connect_database"),
        *("hotcount.functions.new_op_id", "hotcount.batches.Batch.to_dict"),
        *("hotcount._lifetime.Lifetime.close", "hotcount._lifetime.Lifetime.aclose"),
        "hotcount._lifetime.AsyncLifetime.aclose",
        *("hotcount.errors.BatchError", "hotcount.batches.Batch.errors"),
    } <= set(CALLABLES)


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_a_callable_has_a_signature_types_and_help(name: str) -> None:
    thing = CALLABLES[name]
    signature = inspect.signature(thing)
    assert all(parameter.name.isidentifier() for parameter in signature.parameters.values())
    hints = typing.get_type_hints(thing)
    if not inspect.isclass(thing):
        own = [each for each in signature.parameters if each not in ("self", "cls")]
        assert set(hints) == {*own, "return"}
        assert thing.__name__ in pydoc.plain(pydoc.render_doc(thing))
    assert len(str(inspect.getdoc(thing)).split()) >= 1
    if ".aio." in name and inspect.iscoroutinefunction(thing):
        assert name.split(".")[1] == "aio"


@pytest.mark.parametrize("name", hotcount.aio.__all__)
def test_what_is_awaited_is_a_coroutine_function_and_the_rest_is_not(name: str) -> None:
    waits: Any = getattr(hotcount, name)
    awaited: Any = getattr(hotcount.aio, name)
    if name.startswith("connect"):
        return
    if inspect.isfunction(waits):
        assert (inspect.iscoroutinefunction(waits), inspect.iscoroutinefunction(awaited)) == (0, 1)
        assert str(inspect.signature(awaited)) == str(inspect.signature(waits))
        return
    for method, thing in inspect.getmembers(waits, callable):
        if method.startswith("_") or method in ("close", "aclose"):
            continue
        other = getattr(awaited, method)
        assert not inspect.iscoroutinefunction(thing)
        if method in ("rebuild", "reserve") or thing is hotcount.ConcurrencyLimit.acquire:
            # What it returns is entered by `async with`.
            assert not inspect.iscoroutinefunction(other)
            continue
        if other is not thing:  # Of the base that both have.
            assert inspect.iscoroutinefunction(other), method
            assert str(inspect.signature(other)) == str(inspect.signature(thing)), method
    if awaited in (hotcount.aio.Rebuild, hotcount.aio.Place, hotcount.aio.Reservation):
        assert inspect.iscoroutinefunction(awaited.__aexit__)
        return
    assert inspect.iscoroutinefunction(awaited.aclose)
    assert not asyncio.iscoroutinefunction(waits.close)
