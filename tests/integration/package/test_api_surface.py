"""The public names: there, documented, and callable by the keywords that others rely on."""

from __future__ import annotations

import inspect
import re
import sqlite3
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import blinker
import hotcount
import pytest
from django.dispatch import Signal  # type: ignore[import-untyped]
from hotcount import _core, aio

TIMEOUT = "timeout"

# What checks outside of this repository call: names of parameters count.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "connect": ("url", "**options"),
    "connect_store": ("url", "**options"),
    "connect_database": ("url", "**options"),
    "build_info": (),
    "new_op_id": (),
    "hit_all": ("hits", "*", "rate", TIMEOUT),
    "Memory": ("url", "*", "max_keys", "prefix", "when_full"),
    "Memory.ping": ("*", TIMEOUT),
    "Memory.stats": (),
    "Redis": (
        *("url", "*", TIMEOUT, "prefix", "client_name", "max_in_flight", "spin"),
        *("silence_limit", "max_queue", "connect_timeout", "protocol", "max_reply_bytes"),
    ),
    "Redis.ping": ("*", TIMEOUT),
    "Redis.stats": (),
    "Redis.execute": ("*command", TIMEOUT),
    "Database": (
        *("url", "*", TIMEOUT, "max_readers", "max_writers", "prepare", "idle_timeout"),
        "tcp_user_timeout",
    ),
    "Database.ping": ("*", TIMEOUT),
    "Database.stats": (),
    "Counter": ("store", "prefix", "ttl", "*", "op_keep", "method", "compensation", "retry"),
    "Counter.add": ("key", "n", "*", "op_id", TIMEOUT),
    "Counter.try_add": ("key", "n", "*", "min", "max", TIMEOUT),
    "Counter.add_many": ("keys", "n", "*", "errors", TIMEOUT),
    "Counter.get": ("key", "*", TIMEOUT),
    "Counter.get_many": ("keys", "*", "errors", TIMEOUT),
    "Counter.reset": ("key", "*", TIMEOUT),
    "Counter.ttl": ("key", "*", TIMEOUT),
    "Limiter": (
        *("store", "rate", "*", "algorithm", "name", "align", "charge_denied", "shadow"),
        *("table", "on_error", "deny_cache", "lease", "op_keep", "increx"),
    ),
    "Limiter.create_table": ("*", TIMEOUT),
    "Limiter.limit": ("*", "key", "cost", "rate", TIMEOUT),
    "Limiter.hit": ("key", "cost", "*", "rate", "who", "op_id", TIMEOUT),
    "Limiter.hit_many": ("keys", "cost", "*", "rate", "errors", TIMEOUT),
    "Limiter.at_most": ("key", "n", "*", "rate", TIMEOUT),
    "Limiter.refund": ("key", "n", "*", "rate", TIMEOUT),
    "Limiter.block": ("key", "seconds", "*", "rate", TIMEOUT),
    "Limiter.reserve": ("key", "n", "*", "lease", "rate", TIMEOUT),
    "Limiter.acquire": ("key", "cost", TIMEOUT, "*", "rate"),
    "Limiter.wait": ("key", "cost", TIMEOUT, "*", "rate"),
    "Limiter.test": ("key", "cost", "*", "rate", TIMEOUT),
    "Limiter.peek": ("key", "*", "rate", TIMEOUT),
    "Limiter.reset": ("key", "*", "rate", TIMEOUT),
    "Limiter.entries": ("key", "*", "rate", TIMEOUT),
    "ConcurrencyLimit": ("store", "limit", "lease", "*", "name"),
    "ConcurrencyLimit.acquire": ("key", TIMEOUT),
    "Rate": ("limit", "period", "burst"),
    "Rate.parse": ("text",),
    "Rate.parse_many": ("text",),
    "Decision.headers": ("style",),
    "PeriodCounter": ("store", "period", "tz", "keep", "*", "prefix", "retry"),
    "PeriodCounter.add": ("key", "n", "at", "*", TIMEOUT),
    "PeriodCounter.get": ("key", "at", "*", TIMEOUT),
    "PeriodCounter.series": ("key", "start", "end", "*", TIMEOUT),
    "SlottedCounter": (
        *("db", "table", "slots", "slot_choice", "key_column", "slot_column", "count_column"),
        *("*", "op_keep", "max_batch", "max_delay"),
    ),
    "SlottedCounter.create_table": ("*", TIMEOUT),
    "SlottedCounter.add": ("key", "n", "*", "slot", "op_id", TIMEOUT),
    "SlottedCounter.add_many": ("mapping", "*", "errors", TIMEOUT),
    "SlottedCounter.get": ("key", "*", TIMEOUT),
    "SlottedCounter.get_many": ("keys", "*", "errors", TIMEOUT),
    "SlottedCounter.reset": ("key", "*", TIMEOUT),
    "SlottedCounter.resize": ("slots",),
    "SlottedCounter.compact": ("key", "*", TIMEOUT),
    "SlottedCounter.statement": ("key", "n"),
    "Votes": (
        *("db", "cache", "strategy", "slots", "item_table", "item_id", "item_count", "vote_table"),
        *("vote_item", "vote_user", "item_type", "user_type"),
        *("max_age", "retention", "page", "interval", "workers"),
        *("max_batch", "max_delay", "missing_items", "commit_workers"),
        *("fold_interval", "foreign_key"),
        *("vote_value", "vote_previous", "vote_version"),
        *("read_url", "read_max_lag", "max_pending"),
    ),
    "Votes.migration": ("*", "existing_counts", "outside_writes", TIMEOUT),
    "Votes.create_tables": ("*", "existing_counts", "outside_writes", TIMEOUT),
    "Votes.schema": (),
    "Votes.add_items": ("items", "*", TIMEOUT),
    "Votes.cast": ("item", "user", "value", "*", "version", "op_id", TIMEOUT),
    "Votes.retract": ("item", "user", "*", "version", TIMEOUT),
    "Votes.cast_many": ("items", "users", "values", "*", "op_ids", "errors", TIMEOUT),
    "Votes.count": ("item", "*", "consistency", TIMEOUT),
    "Votes.count_many": ("items", "*", "consistency", TIMEOUT),
    "Votes.get": ("item", "user", "*", TIMEOUT),
    "Votes.get_many": ("items", "user", "*", TIMEOUT),
    "Votes.voters": ("item", "*", "after", "limit", "consistency", TIMEOUT),
    "Votes.tally": ("item", "*", "consistency", TIMEOUT),
    "Votes.top": ("n", "*", "consistency", TIMEOUT),
    "Votes.toggle": ("item", "user", "value", "*", TIMEOUT),
    "Votes.remove_item": ("item", "*", "delete_row", TIMEOUT),
    "Votes.erase_user": ("user", "*", TIMEOUT),
    "Votes.prune": ("before", "*", TIMEOUT),
    "Votes.reconcile": ("items", "*", "dry_run", "after", "progress", TIMEOUT),
    "Votes.flush": (TIMEOUT,),
    "Votes.sync_worker": (),
    "Votes.contract": (),
    "Votes.stats": ("*", TIMEOUT),
    "WriteBehindCounter": (
        *("db", "cache", "table", "prefix", "*", "flush_interval", "max_cells", "page"),
        *("interval", "horizon", "max_batch", "max_delay"),
    ),
    "WriteBehindCounter.create_tables": ("*", TIMEOUT),
    "WriteBehindCounter.add": ("key", "n", "*", "ack", TIMEOUT),
    "WriteBehindCounter.add_many": ("keys", "n", "*", "ack", "errors", TIMEOUT),
    "WriteBehindCounter.get": ("key", "*", TIMEOUT),
    "WriteBehindCounter.get_many": ("keys", "*", "errors", TIMEOUT),
    "WriteBehindCounter.flush": (TIMEOUT,),
    "WriteBehindCounter.sync_worker": (),
    "WriteBehindCounter.contract": (),
    "WriteBehindCounter.stats": (),
    "WriteBehindCounter.schema": (),
    "LiveSets": ("store", "*", "gate", "method", "prefix", "keep", "member_type"),
    "LiveSets.upsert": ("key", "member", "score", "*", "version", TIMEOUT),
    "LiveSets.upsert_many": (
        *("items", "batch", "*", "keys", "members", "scores", "versions", "errors"),
        TIMEOUT,
    ),
    "LiveSets.top": ("key", "n", "*", TIMEOUT),
    "LiveSets.range": ("key", "start", "stop", "*", TIMEOUT),
    "LiveSets.remove": ("key", "member", "version", "*", TIMEOUT),
    "LiveSets.rank": ("key", "member", "*", TIMEOUT),
    "LiveSets.create": ("key", "ttl", "members", "*", TIMEOUT),
    "LiveSets.sweep": ("match", "*", "dry_run", TIMEOUT),
    "LiveSets.rebuild": ("key", "ttl", "*", "lease"),
    "LiveSets.rebuild_many": ("sets", "ttl", "*", "lease"),
    "Rebuild": ("sets", "key", "ttl", "lease"),
    "Rebuild.add": ("member", "score", "version", "*", TIMEOUT),
    "Rebuild.add_many": ("members", "*", TIMEOUT),
    "Rebuild.renew": ("*", TIMEOUT),
    "Rebuild.publish": ("*", TIMEOUT),
    "Rebuild.abandon": ("*", TIMEOUT),
    "SyncWorker.run_once": ("*", TIMEOUT),
    "SyncWorker.run": ("stop",),
    "SyncWorker.stats": (),
}
VALUES = {
    "Cast": ("counted", "changed", "previous", "value", "pending"),
    "Count": ("value", "exact", "as_of", "source", "pending"),
    "TryAdd": ("applied", "value"),
    "Tally": ("up", "down", "score"),
    "Drift": ("item", "counted", "actual", "orphan"),
    "FlushReport": ("acked", "pending", "at_risk"),
    "SyncRound": (
        *("scanned", "filled", "saved", "deleted", "recounted", "unsettled", "at_risk", "refused"),
    ),
    "Contract": ("strategy", "acknowledged", "may_lose", "durable", "exact"),
    "Casts": ("counted", "changed", "previous", "value", "pending", "errors"),
    "Counts": ("value", "exact", "as_of", "pending", "errors"),
    "Int64Batch": ("errors",),
    "AddedBatch": ("value", "waiting", "durable", "errors"),
}


def find(name: str) -> Any:
    thing: Any = hotcount
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


def documented_signature(thing: Any) -> str:
    """The first line of a docstring, which arguments are bound by."""
    documented = thing.__init__ if inspect.isclass(thing) else thing
    return str(documented.__doc__).splitlines()[0]


def declared_parameters(thing: Any) -> tuple[str, ...]:
    """Of what is declared in Python: what inspect says."""
    names: list[str] = []
    for parameter in inspect.signature(thing).parameters.values():
        gathered = any(name.startswith("*") for name in names)
        if parameter.kind is parameter.KEYWORD_ONLY and not gathered:
            names.append("*")
        names.append(str(parameter.replace(annotation=parameter.empty, default=parameter.empty)))
    return tuple(name for name in names if name != "self")


def is_declared(thing: Any) -> bool:
    if inspect.isclass(thing):
        return issubclass(thing, _core.Handle) or is_dataclass(thing)
    return isinstance(thing, _core.NativeFunction) or inspect.isfunction(thing)


def parameters(signature: str) -> tuple[str, ...]:
    inside = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    # Types hold commas only in brackets.
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", inside)) != inside:
        inside = shorter
    names = [part.split(":")[0].split("=")[0].strip() for part in inside.split(",")]
    return tuple(name for name in names if name not in ("self", ""))


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_takes_the_parameters_of_the_contract(name: str) -> None:
    thing = find(name)
    if is_declared(thing):
        assert declared_parameters(thing) == SIGNATURES[name]
    else:
        assert parameters(documented_signature(thing)) == SIGNATURES[name]


def test_no_public_method_is_missing_above() -> None:
    found = set()
    names: tuple[str, ...]
    names = ("Memory", "Redis", "Database", "Counter", "PeriodCounter", "SlottedCounter", "Votes")
    names = (*names, "WriteBehindCounter")
    for name in (*names, "Limiter", "ConcurrencyLimit", "LiveSets", "Rebuild"):
        for method in vars(find(name)):
            if not method.startswith("_") and callable(getattr(find(name), method)):
                found.add(f"{name}.{method}")
    inherited = {name for name in names if is_declared(find(name))}  # Of Lifetime.
    assert found - set(SIGNATURES) == {f"{name}.close" for name in set(names) - inherited}


@pytest.mark.parametrize("name", hotcount.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    thing = find(name)
    if name == "__version__":
        return
    assert len(str(thing.__doc__)) > 20
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for attribute, value in vars(thing).items():
            is_field = attribute in getattr(thing, "__dataclass_fields__", ())
            if not attribute.startswith("_") and not is_field:
                assert value.__doc__, f"{name}.{attribute}"
                assert len(value.__doc__.split()) >= 3, f"{name}.{attribute}"


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_the_fields_of_the_contract(name: str) -> None:
    fields = {
        attribute
        for base in find(name).__mro__
        for attribute, value in vars(base).items()
        if isinstance(value, property) and not attribute.startswith("_")
    } or set(getattr(find(name), "__dataclass_fields__", ()))
    assert fields == set(VALUES[name])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.add(), "add() missing required argument 'key'"),
        (lambda c: c.add("k", 1, 2), "add() takes at most 2 positional arguments (3 given)"),
        (lambda c: c.add("k", key="k"), "add() got multiple values for argument 'key'"),
        (lambda c: c.add("k", m=1), "add() got an unexpected keyword argument 'm'"),
        (lambda c: type(c)(), "Counter() missing required argument 'store'"),
        (lambda c: type(c).add("k"), "descriptor 'add'"),
        (lambda c: type(c).add(hotcount.Memory(), "k"), "descriptor 'add'"),
        (lambda c: c.__class__.__new__(c.__class__).add("k"), "__init__"),
    ],
)
def test_arguments_that_do_not_fit_are_named_as_python_does(
    call: Callable[[Any], Any], says: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        call(hotcount.Counter("memory://"))


def test_classes_may_be_derived_from() -> None:
    class Likes(hotcount.Counter):
        def __init__(self, name: str) -> None:
            super().__init__(f"memory://{name}", prefix="likes")
            self.name = name

        def like(self, photo: int) -> int:
            return self.add(f"photo:{photo}")

    likes = Likes("derived")
    assert (likes.like(1), likes.like(1), likes.name) == (1, 2, "derived")


def test_keywords_need_not_be_interned_strings() -> None:
    counter: Any = hotcount.Counter("memory://")
    assert counter.add(**{"".join(["ke", "y"]): "k", "".join(["tim", "eout"]): 5}) == 1


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
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
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
