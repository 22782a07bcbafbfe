"""Declarations in Python and bodies in C++: what is passed through, and what the import refuses."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import doctest
import importlib
import inspect
import pickle
import pydoc
from collections.abc import Callable
from typing import Any

import hotcount
import hotcount.aio
import pytest
from hotcount._native import native, require_all_declared, result

from tests.support.commands import output_of

FACES = [hotcount.Limiter, hotcount.aio.Limiter]
MODULES = [
    *("hotcount.counter", "hotcount.aio.counter"),
    *("hotcount.limiter", "hotcount.aio.limiter"),
    *("hotcount.live_sets", "hotcount.aio.live_sets"),
    *("hotcount.period_counter", "hotcount.aio.period_counter"),
    *("hotcount.slotted_counter", "hotcount.aio.slotted_counter"),
    *("hotcount.stores", "hotcount.aio.stores"),
    *("hotcount.batches", "hotcount.functions"),
    *("hotcount.write_behind_counter", "hotcount.aio.write_behind_counter"),
    *("hotcount._votes_base", "hotcount.votes", "hotcount.aio.votes"),
    "hotcount.rate",
    "hotcount.results",
]


@pytest.mark.parametrize("cls", FACES)
def test_a_class_has_the_signature_of_its_constructor(cls: Any) -> None:
    parameters = inspect.signature(cls).parameters
    assert list(parameters)[:2] == ["store", "rate"]
    assert parameters["algorithm"].default == "gcra"
    assert parameters["name"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "algorithm" in pydoc.render_doc(cls)


def test_only_what_is_declared_async_is_a_coroutine_function() -> None:
    assert inspect.iscoroutinefunction(hotcount.aio.Limiter.hit)
    assert inspect.iscoroutinefunction(hotcount.aio.Limiter("memory://", "5/s").hit)
    assert not inspect.iscoroutinefunction(hotcount.Limiter.hit)


def test_a_function_pickles_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(hotcount.Limiter.hit)) is hotcount.Limiter.hit


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_hold(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 5 or module != "hotcount.limiter"
    assert outcome.failed == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.hit(), "hit() missing required argument 'key'"),
        (lambda c: c.hit("k", 1, 2), "hit() takes at most 2 positional arguments (3 given)"),
        (lambda c: c.hit("k", key="k"), "hit() got multiple values for argument 'key'"),
        (lambda c: c.hit("k", m=1), "hit() got an unexpected keyword argument 'm'"),
        (lambda c: type(c)(), "Limiter() missing required argument 'store'"),
        (lambda c: type(c)("memory://"), "Limiter() missing required argument 'rate'"),
        (lambda c: type(c).hit(), "descriptor 'hit'"),
        (lambda c: type(c).hit("k"), "descriptor 'hit'"),
        (lambda c: type(c).hit(hotcount.Memory(), "k"), "descriptor 'hit'"),
        (lambda c: c.hit("k", timeout="soon"), "timeout must be float seconds or timedelta"),
        (lambda c: c.hit("k", **{"\udc80": 1}), "unexpected keyword argument"),
    ],
)
@pytest.mark.parametrize("cls", FACES)
def test_arguments_that_do_not_fit_are_named(
    cls: Any, call: Callable[[Any], Any], says: str
) -> None:
    limiter = cls("memory://", "5/minute")
    with pytest.raises(TypeError) as caught:
        call(limiter)
    assert says in str(caught.value)


def test_a_keyword_need_not_be_interned() -> None:
    limiter: Any = hotcount.Limiter("memory://", "5/minute")
    assert limiter.hit(**{"".join(["ke", "y"]): "k", "".join(["co", "st"]): 2}).remaining == 3


def test_classes_may_be_derived_from_and_carry_weak_references() -> None:
    class Api(hotcount.Limiter):
        def __init__(self, who: str) -> None:
            super().__init__("memory://", "5/minute", name="api")
            self.who = who

        def knock(self) -> int:
            return self.hit(self.who).remaining

    assert Api("anna").knock() == 4
    assert repr(Api("anna")).startswith("hotcount.Limiter(")
    assert not hasattr(hotcount.Limiter("memory://", "5/s"), "__dict__")


def test_a_class_of_two_kinds_is_refused_where_it_is_made() -> None:
    for bases in [
        (hotcount.Limiter, hotcount.Counter),
        (hotcount.Counter, hotcount.aio.Limiter),
        (hotcount.Votes, hotcount.Memory),
    ]:
        with pytest.raises(TypeError, match="an object can be only one of them"):
            type("Both", bases, {})
    type("Derived", (type("Api", (hotcount.Limiter,), {}),), {})
    with pytest.raises(TypeError, match="LC derives from hotcount's Limiter and Counter"):
        type("LC", (hotcount.Limiter, hotcount.Counter), {})


class Unnamed(hotcount.Limiter):
    __module__ = None  # type: ignore[assignment]


def test_a_derived_class_that_has_no_module_is_shown_by_its_base() -> None:
    assert repr(Unnamed("memory://", "5/minute")).startswith("hotcount.Limiter(")
    with pytest.raises(TypeError, match=r"^Limiter.__init__\(\)"):
        Unnamed.__new__(Unnamed).hit("k")


def test_a_derived_class_that_is_abstract_is_not_made() -> None:
    class Api(hotcount.Limiter, abc.ABC):
        @abc.abstractmethod
        def knock(self) -> int:
            """."""

    abstract: Any = Api
    with pytest.raises(TypeError, match="abstract"):
        abstract("memory://", "5/minute")


@pytest.mark.parametrize("cls", FACES)
def test_options_are_attributes_that_cannot_be_set(cls: Any) -> None:
    limiter = cls("memory://", "5/minute burst 9", name="api")
    assert limiter.rate == hotcount.Rate(5, 60, 9)
    assert (limiter.algorithm, limiter.name, limiter.align) == ("gcra", "api", "clock")
    assert limiter.charge_denied is False
    with pytest.raises(AttributeError):
        limiter.name = "other"
    with pytest.raises(AttributeError):
        limiter.nam = "other"


def test_repr_shows_the_store_the_rate_the_algorithm_and_what_is_no_default() -> None:
    store = hotcount.Memory()
    limiter = hotcount.Limiter(store, "5/minute", name="api")
    assert repr(limiter) == (
        f"hotcount.Limiter({store!r}, rate='5/minute', algorithm='gcra', name='api')"
    )
    assert repr(hotcount.aio.Limiter(store, "5/s", algorithm="fixed_window")).startswith(
        "hotcount.aio.Limiter("
    )


def test_a_decision_is_a_frozen_dataclass_with_slots() -> None:
    decision = hotcount.Limiter("memory://", "5/minute").hit("k")
    assert not hasattr(decision, "__dict__")
    assert dataclasses.asdict(decision)["remaining"] == 4
    assert hash(decision) == hash(dataclasses.replace(decision))
    assert decision == pickle.loads(pickle.dumps(decision))
    assert decision != dataclasses.replace(decision, remaining=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision.remaining = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"period": None}, "period must be float seconds, not NoneType"),
        ({"reason": 1}, "reason must be str"),
        ({"limit": "1"}, "limit must be int"),
    ],
)
def test_headers_of_a_decision_with_other_types_are_a_type_error(
    changes: dict[str, Any], says: str
) -> None:
    decision = hotcount.Limiter("memory://", "5/minute").hit("k")
    with pytest.raises(TypeError, match=says):
        dataclasses.replace(decision, **changes).headers()
    with pytest.raises(TypeError, match=r"Decision.__init__\(\)"):
        hotcount.Decision.__new__(hotcount.Decision).headers()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policy": 'x"\r\nSet-Cookie: a=b'}, "policy"),
        ({"policy": "\u00e9"}, "policy"),
        ({"limit": -1}, "limit is -1"),
        ({"remaining": -1}, "remaining is -1"),
        ({"period": float("nan")}, "period is nan"),
        ({"period": -1.0}, "period is -1"),
        ({"reset_after": float("inf")}, "reset_after is inf"),
        ({"reset_after": 1e300}, "reset_after is 1"),
        ({"allowed": False, "retry_after": -5.0}, "retry_after is -5"),
    ],
)
@pytest.mark.parametrize("style", ["ietf", "legacy"])
def test_headers_of_a_decision_made_by_hand_are_headers_or_a_config_error(
    changes: dict[str, Any], says: str, style: Any
) -> None:
    decision = hotcount.Limiter("memory://", "5/minute").hit("k")
    with pytest.raises(hotcount.ConfigError, match=says):
        dataclasses.replace(decision, **changes).headers(style)


def test_headers_of_a_failed_element_are_given() -> None:
    failed = hotcount.Limiter("memory://", "5/minute").hit_many([""], errors="return")[0]
    assert failed.headers()["RateLimit"] == '"";r=0;t=0'


def test_a_result_that_is_declared_again_is_the_class_that_was() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Rate:
        limit: int
        period: float
        burst: int

    assert result(Rate) is hotcount.Rate  # type: ignore[comparison-overlap]
    assert type(hotcount.Rate.parse("5/s")) is hotcount.Rate


IMPORTED_TWICE = """
import importlib, sys
import hotcount
first, rate = hotcount, hotcount.Rate(5, 60.0, 5)
decision = hotcount.Limiter("memory://", rate).hit("k")
for name in [n for n in sys.modules if n == "hotcount" or n.startswith("hotcount.")]:
    del sys.modules[name]
import hotcount
import hotcount.batches, hotcount.limiter, hotcount.results
importlib.reload(hotcount.batches)
importlib.reload(hotcount.results)
importlib.reload(hotcount.limiter)
for module in (first, hotcount, hotcount.limiter):
    batch = module.Limiter("memory://", rate).hit_many(["k"])
    assert isinstance(batch, first.Decisions) and isinstance(batch.allowed, first.Column), batch
    assert hotcount.Decisions is first.Decisions
    answer = module.Limiter("memory://", rate).hit("k")
    assert answer == decision and isinstance(answer, first.Decision), answer
    assert answer.headers() == decision.headers()
"""


def test_an_import_after_the_modules_were_dropped_takes_the_same_results() -> None:
    output_of(IMPORTED_TWICE)


def refused(declare: Callable[[], object]) -> str:
    with pytest.raises(ImportError) as caught:
        declare()
    return str(caught.value)


def test_another_name_or_number_of_parameters_is_an_import_error() -> None:
    class Limiter:
        def peek(self, name: str, *, timeout: None = None) -> None:
            """."""

        def reset(self, key: str) -> None:
            """."""

        def hit(self, *keys: str) -> None:
            """."""

    assert "(name, timeout) where C++ has (key, rate, timeout)" in refused(
        lambda: native(Limiter.peek)
    )
    assert "(key) where C++ has (key, rate, timeout)" in refused(lambda: native(Limiter.reset))
    assert "(*keys) where C++ has (key, cost" in refused(lambda: native(Limiter.hit))


def test_every_native_method_is_declared_in_python() -> None:
    require_all_declared()


def test_awaited_calls_need_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        hotcount.aio.Limiter("memory://", "5/s").hit("k")  # type: ignore[unused-coroutine]
    assert asyncio.run(lone_hit()) == 4


async def lone_hit() -> int:
    async with hotcount.aio.Limiter("memory://", "5/minute") as limiter:
        return (await limiter.hit("k")).remaining


FIRST_CALLS = """
import sys, threading
import hotcount.aio
limiter = hotcount.aio.Limiter("memory://", "5/s")
assert "asyncio" not in sys.modules
together = threading.Barrier(4)
refused = []

def hit():
    together.wait()
    try:
        limiter.hit("k")
    except RuntimeError as error:
        refused.append(error)

threads = [threading.Thread(target=hit, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(30)
assert len(refused) == 4, "they wait for each other"
"""


def test_the_first_awaited_calls_may_be_made_by_several_threads_at_once() -> None:
    output_of(FIRST_CALLS)


FIRST_SCORES = """
import builtins, faulthandler, threading
import hotcount

faulthandler.dump_traceback_later(30, exit=True)
sets = hotcount.LiveSets("memory://")
importing, refused = threading.Event(), []
real = builtins.__import__

def slow(name, *more, **others):
    if name == "numbers" and not importing.is_set():
        importing.set()
        done.wait(1)  # Lets go of the GIL, as an import of a file does.
    return real(name, *more, **others)

def upsert():
    try:
        sets.upsert("k", "m", "no number")
    except TypeError as error:
        refused.append(error)

done = threading.Event()
builtins.__import__ = slow
first = threading.Thread(target=upsert)
first.start()
importing.wait()
second = threading.Thread(target=upsert)
second.start()
second.join()
done.set()
first.join()
assert len(refused) == 2
"""


def test_the_first_scores_that_are_no_floats_may_be_given_by_two_threads_at_once() -> None:
    output_of(FIRST_SCORES)
