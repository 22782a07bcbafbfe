"""The conftest.py with which test_limits_suite.py runs the suite of `limits` on our storages.

It stands in for that suite's own, which starts a dozen servers: whatever is run on "all storages"
there runs on hotcount in memory and on the Redis of HOTCOUNT_SUITE_URL.
"""

import asyncio
import inspect
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import hotcount
import hotcount.integrations.limits as ours
import pytest

REDIS = os.environ["HOTCOUNT_SUITE_URL"]
# Clients of other servers, which the suite's modules name and our runs never call.
for _name in ("redis", "redis.cluster", "redis.sentinel", "pymemcache", "pymemcache.client"):
    sys.modules.setdefault(_name, mock.MagicMock())
_fixtures = ModuleType("pytest_lazy_fixtures")
_fixtures.lf = lambda name: None  # type: ignore[attr-defined]
sys.modules.setdefault("pytest_lazy_fixtures", _fixtures)


def storages(prefix: str = "", *expected: object) -> list[Any]:
    uris = {"memory": "hotcount+memory://", "redis": f"hotcount+{REDIS}"}
    return [
        pytest.param(f"{prefix}{uri}", {}, *expected, None, id=f"{prefix}{name}")
        for name, uri in uris.items()
    ]


utils: Any = __import__("tests.utils").utils
for _prefix, _mark in (("", ""), ("async+", "async_")):
    for _kind in ("all", "moving_window", "sliding_window_counter"):
        _parameters = pytest.mark.parametrize(("uri", "args", "fixture"), storages(_prefix))
        setattr(utils, f"{_mark}{_kind}_storage", _parameters)


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> None:
    if name not in ("TestConcreteStorages", "TestAsyncConcreteStorages"):
        return
    chosen = storages("", ours.HotcountStorage)
    if inspect.iscoroutinefunction(obj.test_storage_check):
        chosen = storages("async+", ours.AsyncHotcountStorage)
    obj.pytestmark = [
        pytest.mark.parametrize(("uri", "args", "expected_instance", "fixture"), chosen)
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def empty_server() -> Iterator[None]:
    with hotcount.Redis(REDIS, timeout=20) as redis:
        redis.execute("FLUSHALL")
        yield
