"""The exceptions and values: their tree, what they carry, and that they survive pickle and copy."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import hotcount.errors
import pytest

# design: the builtin classes that callers may already catch.
BUILTIN_BASES = {
    "HotcountError": (),
    "UnavailableError": (ConnectionError, OSError),
    "DeadlineError": (TimeoutError, OSError),
    "OutcomeUnknownError": (),
    "WrongTypeError": (),
    "AuthError": (PermissionError, OSError),
    "PermissionDeniedError": (PermissionError, OSError),
    "CapacityError": (),
    "IntegrityError": (),
    "CounterOverflowError": (OverflowError, ArithmeticError),
    "ConfigError": (ValueError,),
    "DatabaseError": (),
    "ReplyError": (),
    "LeaseLostError": (),
    "LimitExceeded": (),
    "BatchError": (),
    "ClosedError": (),
}


@pytest.mark.parametrize("name", BUILTIN_BASES)
def test_an_error_is_a_hotcount_error_and_its_builtin(name: str) -> None:
    error = getattr(hotcount, name)
    assert error is getattr(hotcount.errors, name)
    assert issubclass(error, hotcount.HotcountError)
    for base in BUILTIN_BASES[name]:
        assert issubclass(error, base)
    builtins = {base for base in error.__mro__ if base.__module__ == "builtins"}
    assert builtins == {object, BaseException, Exception, *BUILTIN_BASES[name]}


def test_every_error_is_in_the_tree() -> None:
    found = {
        name
        for name, value in vars(hotcount).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert found == set(BUILTIN_BASES) == set(hotcount.errors.__all__)


@pytest.mark.parametrize("name", sorted(set(BUILTIN_BASES) - {"BatchError", "LimitExceeded"}))
def test_an_error_survives_pickle_and_copy_with_its_code(name: str) -> None:
    error = getattr(hotcount, name)("what happened", "SQLITE_BUSY")
    for twin in (error, pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert (str(twin), twin.code) == ("what happened", "SQLITE_BUSY")
        assert twin.args == ("what happened",)
    assert getattr(hotcount, name)("no code").code is None


def test_a_batch_error_survives_pickle_with_its_result_and_errors() -> None:
    with pytest.raises(hotcount.BatchError) as caught:
        hotcount.Counter("memory://").add_many(["a", "", "b"])
    error = caught.value
    assert str(error).startswith("1 of 3 elements failed")
    assert "[1] ConfigError" in str(error)
    twin = pickle.loads(pickle.dumps(error))
    assert twin.result == error.result == [1, 0, 1]
    assert repr(twin.errors) == repr(error.errors)
    assert twin.errors.keys() == {1}


STORES = [
    pytest.param(lambda path: hotcount.Memory(), id="memory"),
    pytest.param(lambda path: hotcount.Redis("redis://localhost:1"), id="redis"),
    pytest.param(lambda path: hotcount.Database(f"sqlite:///{path}/a.db"), id="database"),
    pytest.param(lambda path: hotcount.Counter("memory://"), id="counter"),
    pytest.param(lambda path: hotcount.PeriodCounter("memory://"), id="period"),
    pytest.param(lambda path: hotcount.SlottedCounter("sqlite:///:memory:"), id="slotted"),
    pytest.param(lambda path: hotcount.Votes("sqlite:///:memory:"), id="votes"),
]


@pytest.mark.parametrize("make", STORES)
def test_what_stands_for_connections_refuses_to_pickle_and_says_what_to_do(
    make: Any, tmp_path: Path
) -> None:
    with make(tmp_path) as thing:
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"hotcount\.\w+ cannot be pickled.*URL"):
                call(thing)


@pytest.mark.parametrize("make", STORES)
def test_close_may_be_called_twice_and_with_ends_it(make: Any, tmp_path: Path) -> None:
    thing = make(tmp_path)
    assert not thing.closed
    with thing as entered:
        assert entered is thing
    assert thing.closed
    assert "(closed)" in repr(thing)
    thing.close()


def raised(call: Any) -> Any:
    with pytest.raises(hotcount.HotcountError) as caught:
        call()
    twin = pickle.loads(pickle.dumps(caught.value))
    assert vars(twin) == vars(caught.value)
    assert vars(copy.copy(caught.value)) == vars(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("call", "option", "value"),
    [
        (lambda: hotcount.Votes("sqlite:///:memory:", slots=0), "slots", "0"),
        (lambda: hotcount.Memory(max_keys=0), "max_keys", "0"),
        (lambda: hotcount.Redis("redis://h", max_queue=0), "max_queue", "0"),
        (lambda: hotcount.Redis("redis://h?bogus=1"), "bogus", None),
        (lambda: hotcount.Database("sqlite:///x.db?bogus=1"), "bogus", None),
        (lambda: hotcount.connect("memory://", bogus=1), "bogus", None),
        (lambda: hotcount.Counter("memory://", ttl=1e-9), "ttl", None),
        (lambda: hotcount.Counter("memory://").get("k", timeout=-1), "timeout", "-1.0"),
        (lambda: hotcount.Counter("memory://").get("\ud800"), "key", None),
        (lambda: hotcount.Limiter("memory://", "often"), "rate", "often"),
        (lambda: hotcount.Limiter("memory://", "5/s", name='"'), "name", '"'),
        (
            lambda: hotcount.Limiter("memory://", "5/s", algorithm="guess"),  # type: ignore[arg-type]
            "algorithm",
            "guess",
        ),
        (
            lambda: hotcount.LiveSets("memory://", method="guess"),  # type: ignore[arg-type]
            "method",
            "guess",
        ),
    ],
)
def test_a_config_error_has_the_option_and_its_value(
    call: Any, option: str, value: str | None
) -> None:
    error = raised(call)
    assert type(error) is hotcount.ConfigError
    assert (error.option, error.value, error.server) == (option, value, None)
    assert option in str(error)


def test_an_error_about_a_key_has_it_in_full_and_the_store() -> None:
    store = hotcount.Memory("memory://errors", prefix="p:")
    counter, long = hotcount.Counter(store), "k" * 900
    counter.add(long, 2**63 - 1)
    error = raised(lambda: counter.add(long))
    assert (error.key, error.server) == (f"p:count:{long}", "memory://errors")
    counter.add(b"\xff", 1)
    limits = hotcount.Limiter(store, "5/minute")
    assert limits.hit("k")
    error = raised(lambda: counter.add(b"\xff", 2**63 - 1))
    assert error.key == b"p:count:\xff"


def test_errors_of_a_batch_have_what_those_of_single_calls_have() -> None:
    counter = hotcount.Counter("memory://errors")
    counter.add("full", 2**63 - 1)
    errors = counter.add_many(["", "full"], errors="return").errors
    assert (errors[0].option, errors[0].key, errors[0].server) == ("key", None, None)
    full = errors[1]
    assert (full.option, full.key, full.server) == (None, "count:full", "memory://errors")
    store = hotcount.Redis("redis://user:canary@127.0.0.1:1", timeout=0.5)
    sets, limiter = hotcount.LiveSets(store), hotcount.Limiter(store, "5/minute")

    async def main() -> Any:
        return await hotcount.aio.Counter(store).add_many(["k"], errors="return", timeout=0.75)

    for batch, timeout in [
        (sets.upsert_many([("k", "m", 1)], errors="return"), 0.5),
        (limiter.hit_many(["k"], errors="return", timeout=0.25), 0.25),
        (asyncio.run(main()), 0.75),
    ]:
        error = batch.errors[0]
        assert type(error) is hotcount.UnavailableError
        assert (error.server, error.timeout) == ("redis 127.0.0.1:1", timeout)


def test_an_error_about_a_vote_has_its_item_and_user() -> None:
    votes = hotcount.Votes("sqlite:///:memory:")
    votes.create_tables()
    error = raised(lambda: votes.cast(7, 9))
    assert type(error) is hotcount.IntegrityError
    assert (error.item, error.user) == (7, 9)


async def test_no_server_is_told_with_its_name_and_the_time_that_the_call_had() -> None:
    store = hotcount.Redis("redis://user:canary@127.0.0.1:1", timeout=0.5)
    error = raised(lambda: hotcount.Counter(store).add("k"))
    assert (error.server, error.timeout) == ("redis 127.0.0.1:1", 0.5)
    assert raised(lambda: store.ping(timeout=0.25)).timeout == 0.25
    with pytest.raises(hotcount.UnavailableError) as caught:
        await hotcount.aio.Counter(store).add("k", timeout=0.75)
    error = caught.value
    assert (error.server, error.timeout) == ("redis 127.0.0.1:1", 0.75)
