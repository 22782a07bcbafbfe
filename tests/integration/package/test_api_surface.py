"""The public names are documented and behave as Python's own; tests/codebase/surface lists them."""

from __future__ import annotations

import inspect
import sqlite3
import weakref
from datetime import timedelta
from pathlib import Path
from unittest import mock

import blinker
import hotcount
import pytest
from django.dispatch import Signal
from hotcount import aio

from tests.support.programs import run_python


def test_times_are_seconds_or_timedelta() -> None:
    for ttl in (2, 2.0, timedelta(seconds=2)):
        counter = hotcount.Counter("memory://", ttl=ttl)
        counter.add("k")
        left = counter.ttl("k")
        assert left is not None
        assert 1.9 < left <= 2


def test_build_info_names_what_this_build_is_made_of() -> None:
    info = hotcount.build_info()
    assert info["version"] == hotcount.__version__
    assert {"hiredis", "tls", "sqlite", "compiler", "build_type"} <= set(info)
    assert all(isinstance(value, str) for value in info.values())


def test_sqlite_is_the_library_that_python_uses() -> None:
    # Two of them in one process would break each other's locks.
    assert hotcount.build_info()["sqlite"] == sqlite3.sqlite_version


def test_importing_it_needs_no_numpy_and_nothing_else_outside_of_python() -> None:
    code = """
import sys
before = set(sys.modules)
sys.modules["numpy"] = None  # An import of it fails from here on.
import hotcount
counter = hotcount.Counter("memory://")
assert counter.add_many(["a", "b"], [1, 2]) == [1, 2]
assert memoryview(counter.get_many(["a"])).tolist() == [1]
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names) - {"numpy"}))
"""
    run = run_python("-c", code)
    assert (run.stdout.split(), run.stderr) == (["hotcount"], "")


def test_the_package_says_that_it_is_typed() -> None:
    folder = Path(inspect.getfile(hotcount)).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_core.pyi").exists()


def test_a_bound_method_can_be_referred_to_weakly() -> None:
    counter = hotcount.Counter("memory://")
    for method in (hotcount.Counter.add, aio.Counter.add):
        assert weakref.ref(method)() is method
    kept = weakref.WeakMethod(counter.add)
    signal = Signal()
    signal.connect(kept())
    assert blinker.Signal().connect(counter.get) == counter.get
    assert [kept()("k") for _ in range(2)] == [1, 2]  # type: ignore[misc]
    del counter
    assert kept() is None


def test_autospec_checks_arguments() -> None:
    counter = mock.create_autospec(hotcount.Counter)("memory://")
    counter.add("k", 2, op_id="one")
    counter.add.assert_called_once_with("k", n=2, op_id="one")
    limiter = mock.create_autospec(aio.Limiter("memory://", "5/s"))
    hit = limiter.hit("k", cost=2)
    assert inspect.iscoroutine(hit)
    hit.close()
    add = mock.create_autospec(hotcount.Counter("memory://").add)
    for call, argument in ((counter.add, "m"), (limiter.hit, "n"), (add, "m")):
        with pytest.raises(TypeError, match=argument):
            call("k", **{argument: 1})
    with pytest.raises(TypeError, match="store"):
        mock.create_autospec(hotcount.Counter)()
