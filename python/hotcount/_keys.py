"""`hotcount get|peek|reset|top|block`: commands for single keys and items."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar, get_args

import hotcount
from hotcount import _schema
from hotcount.limiter import Algorithm
from hotcount.stores import kind_of_url

SUMMARIES = {
    "get": "print counts: of keys of a Counter or SlottedCounter, of items of Votes",
    "peek": "print what a limiter has left for keys; take nothing",
    "reset": "set keys of a counter to 0, or let a limiter forget them",
    "top": "print the highest members of a sorted set",
    "block": "let a limiter refuse keys for a while",
}
DESCRIPTIONS = {
    "get": "On Redis: prints the values of a Counter's keys. On a database: prints the counts of "
    "items of Votes, or with --slots of a SlottedCounter's keys. A missing key counts 0.",
    "peek": "Prints the decision that the next hit of each key would get. A limiter keeps its "
    "state by name, algorithm and rate: give them as the application does.",
    "reset": "With --rate: the limiter forgets the keys, and lifts a block. Otherwise: deletes the "
    "values of a Counter, or with --slots of a SlottedCounter, and prints the old values.",
    "top": "Prints the highest members of a sorted set of LiveSets, with their scores.",
    "block": "The limiter refuses all hits of the keys for --seconds, whatever its rate says. "
    "`hotcount reset` with the same options lifts the block.",
}
EXAMPLES = {
    "get": "hotcount get redis://cache/0 photo:42 photo:43; hotcount get env:DATABASE_URL 7 8 "
    "--exact; hotcount get env:DATABASE_URL home --slots",
    "peek": "hotcount peek redis://cache/0 user:7 --rate 100/minute --name api",
    "reset": "hotcount reset redis://cache/0 photo:42; hotcount reset redis://cache/0 user:7 "
    "--rate 100/minute --name api",
    "top": "hotcount top redis://cache/0 feed:7 -n 3",
    "block": "hotcount block redis://cache/0 user:7 --seconds 3600 --rate 100/minute --name api",
}

Url = Callable[[str], str]
Seconds = Callable[[str], float]
Key = str | bytes
LimiterKey = Key | tuple[Key, ...]
AnyKey = TypeVar("AnyKey", Key, LimiterKey)
Answer = TypeVar("Answer")

# Options that only votes, or only limiters, have.
OF_VOTES = (
    *("exact", "strategy", "cache", "item_type", "user_type", "no_item_count"),
    *(name for name, _ in _schema.NAMES),
)
OF_LIMITER = ("name", "algorithm", "align", "tuple")


def key(text: str) -> Key:
    """A key of a command line: bytes if they are not UTF-8."""
    given = os.fsencode(text)
    try:
        return given.decode()
    except UnicodeDecodeError:
        return given


def _add_counter(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("counters").add_argument
    add("--prefix", type=key, default="count", help="of the Counter's keys (default: count)")
    add("--slots", action="store_true", help="of a SlottedCounter, in a database")


def _add_limiter(parser: argparse.ArgumentParser, *, required: bool) -> None:
    add = parser.add_argument_group("limiters").add_argument
    add("--rate", required=required, metavar="RATE", help="such as 100/minute")
    add("--name", default="default", help="of the limiter (default: default)")
    add("--algorithm", choices=get_args(Algorithm), help="default: gcra")
    add("--align", choices=["clock", "first"], default="clock", help="of fixed_window")
    add("--tuple", action="store_true", help="the KEYs are the parts of one key, a tuple")


def _add_votes(parser: argparse.ArgumentParser, strategies: Sequence[str], url: Url) -> None:
    group = parser.add_argument_group("votes")
    group.add_argument("--exact", action="store_true", help="from the tables, past every cache")
    group.add_argument(
        "--strategy", choices=strategies, help="default: batched; with --cache cached"
    )
    group.add_argument("--cache", type=url, metavar="URL", help="the cache that counts them")
    _schema.add_names(group)


def add_commands(
    add_parser: Callable[..., argparse.ArgumentParser],
    strategies: Sequence[str],
    url: Url,
    positive: Seconds,
    count: Callable[[str], int],
    urls: str,
) -> None:
    """Adds the commands. urls: the paragraph of --help about URLs."""
    for name, run in (
        ("get", get),
        ("peek", peek),
        ("reset", reset),
        ("top", top),
        ("block", block),
    ):
        each = add_parser(
            name,
            help=SUMMARIES[name],
            description=DESCRIPTIONS[name],
            epilog=f"Example: {EXAMPLES[name]}. {urls} Exit codes: 0 done, 2 bad usage, 3 a "
            "server or a key failed.",
        )
        of = "the Redis" if name == "top" else "a Redis, or the database"
        each.add_argument("url", type=url, metavar="URL", help=of)
        if name == "top":
            each.add_argument(
                "key", type=key, metavar="KEY", help="in full, without the store's prefix"
            )
            each.add_argument("-n", type=count, default=10, help="how many (default: 10)")
        else:
            or_item = "or ITEM, of votes" if name == "get" else None
            each.add_argument("keys", nargs="+", type=key, metavar="KEY", help=or_item)
        if name == "block":
            each.add_argument("--seconds", type=positive, required=True, help="for how long")
        if name in ("get", "reset"):
            _add_counter(each)
        if name in ("peek", "reset", "block"):
            _add_limiter(each, required=name != "reset")
        if name == "get":
            _add_votes(each, strategies, url)
        if name != "top":
            each.add_argument("--table", help="of a SlottedCounter or a limiter, in a database")
        each.add_argument(
            *("--store-prefix",),
            type=key,
            default="",
            metavar="PREFIX",
            help="of all keys: Redis(prefix=)",
        )
        each.add_argument("--timeout", type=positive, help="seconds for each call")
        each.add_argument("--json", action="store_true", help="the result as JSON")
        each.set_defaults(run=run, refuse=each.error, default_of=each.get_default)


# -- the object behind the URL ----------------------------------------------


def _open(options: argparse.Namespace) -> Any:
    """The store or the database."""
    kind = kind_of_url(options.url)
    if kind == "Memory":
        options.refuse("a store in memory is of one process, and this one has nothing in it yet")
    more: dict[str, Any] = {} if options.timeout is None else {"timeout": options.timeout}
    if kind == "Redis":
        more["prefix"] = options.store_prefix
    elif options.store_prefix:
        options.refuse("--store-prefix is of Redis, and the URL names a database")
    return hotcount.connect(options.url, **more)


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Refuses options that this command would ignore."""
    for name in names:
        if hasattr(options, name) and getattr(options, name) != options.default_of(name):
            options.refuse(f"--{name.replace('_', '-')} is of {why}")


def _table(options: argparse.Namespace) -> dict[str, Any]:
    return {} if options.table is None else {"table": options.table}


def _counter(store: Any, options: argparse.Namespace) -> Any:
    """A Counter, or with --slots a SlottedCounter."""
    is_database = isinstance(store, hotcount.Database)
    if options.slots != is_database:
        options.refuse(
            "--slots is of a database, and the URL names a Redis"
            if options.slots
            else "what is reset in a database is a limiter (--rate) or a SlottedCounter (--slots)"
        )
    _refuse(options, OF_LIMITER, "a limiter, which --rate names")
    _refuse(options, OF_VOTES, "votes, in a database without --slots")
    if is_database:
        _refuse(options, ["prefix"], "a Counter, in a Redis")
        return hotcount.SlottedCounter(store, **_table(options))
    _refuse(options, ["table"], "a database, and the URL names a Redis")
    return hotcount.Counter(store, options.prefix)


def _limiter(store: Any, options: argparse.Namespace) -> hotcount.Limiter:
    _refuse(options, ["slots", "prefix"], "a counter, which has no --rate")
    if not isinstance(store, hotcount.Database):
        _refuse(options, ["table"], "a database, and the URL names a Redis")
    more: dict[str, Any] = _table(options)
    more["algorithm"] = options.algorithm or "gcra"
    if more["algorithm"] == "fixed_window":
        more["align"] = options.align
    else:
        _refuse(options, ["align"], "--algorithm fixed_window")
    return hotcount.Limiter(store, options.rate, name=options.name, **more)


def _limiter_keys(options: argparse.Namespace) -> list[LimiterKey]:
    return [tuple(options.keys)] if options.tuple else list(options.keys)


def printable(key: LimiterKey) -> str:
    """For a line: a key must not pass for two lines, or move the cursor."""
    if isinstance(key, tuple):
        return " ".join(map(printable, key))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text(key))


def text(key: Key) -> str:
    return key if isinstance(key, str) else key.decode(errors="backslashreplace")


def in_json(key: LimiterKey) -> str | list[str]:
    return [text(part) for part in key] if isinstance(key, tuple) else text(key)


def _print(
    options: argparse.Namespace,
    result: dict[str, Any],
    lines: Sequence[str],
    failed: Sequence[str] = (),
) -> int:
    """Prints the results, and then the keys that failed or were not tried."""
    if options.json:
        print(json.dumps(result, indent=2, allow_nan=False))
    else:
        for line in lines:
            print(line)
    for each in failed:
        print(f"hotcount {options.command}: {each}", file=sys.stderr)
    return 3 if failed else 0


def _one_by_one(
    keys: Sequence[AnyKey], call: Callable[[AnyKey], Answer]
) -> tuple[list[tuple[AnyKey, Answer]], list[str]]:
    """The answers until a key fails, and its error. An error of the first key is raised."""
    done: list[tuple[AnyKey, Answer]] = []
    for each in keys:
        try:
            done.append((each, call(each)))
        except hotcount.HotcountError as error:
            if not done:
                raise
            left = [printable(other) for other in keys[len(done) + 1 :]]
            not_tried = f"; not tried: {', '.join(left)}" if left else ""
            return done, [f"{printable(each)}: {error}{not_tried}"]
    return done, []


# -- the commands -----------------------------------------------------------


def get(options: argparse.Namespace) -> int:
    with _open(options) as store:
        if isinstance(store, hotcount.Database) and not options.slots:
            return _get_votes(store, options)
        found = _counter(store, options).get_many(options.keys, errors="return")
    if len(found.errors) == len(options.keys):
        raise found.errors[0]
    counts = [
        (key, value)
        for place, (key, value) in enumerate(zip(options.keys, found.tolist(), strict=True))
        if place not in found.errors
    ]
    return _print(
        options,
        {"counts": [{"key": text(key), "value": value} for key, value in counts]},
        [f"{printable(key)}: {value:,}" for key, value in counts],
        [f"{printable(options.keys[place])}: {error}" for place, error in found.errors.items()],
    )


def _get_votes(database: hotcount.Database, options: argparse.Namespace) -> int:
    _refuse(options, ["prefix"], "a Counter, in a Redis")
    _refuse(options, ["table"], "a SlottedCounter: give --slots too")
    names = _schema.names_of(options)
    try:
        if not all(isinstance(each, str) for each in options.keys):
            raise ValueError
        items = [names["item_type"](each) for each in options.keys]
    except ValueError:
        options.refuse(f"an ITEM is not of --item-type {options.item_type}")
    strategy: Any = options.strategy or ("cached" if options.cache else "batched")
    with hotcount.Votes(database, options.cache, strategy, **names) as votes:
        found = votes.count_many(items, consistency="exact" if options.exact else "cached")
        counts = [
            {"item": item, **asdict(count)} for item, count in zip(options.keys, found, strict=True)
        ]
    for each in counts:
        each["item"] = int(each["item"]) if options.item_type == "int" else each["item"]
    return _print(
        options,
        {"counts": counts},
        [
            f"{printable(str(each['item']))}: {each['value']:,}"
            + ("" if each["exact"] else f" (from {each['source']}; --exact reads the tables)")
            for each in counts
        ],
    )


def peek(options: argparse.Namespace) -> int:
    with _open(options) as store:
        found, failed = _one_by_one(_limiter_keys(options), _limiter(store, options).peek)
    lines = []
    for key, each in found:
        line = f"{printable(key)}: {each.reason}, {each.remaining:,} of {each.limit:,} left"
        if each.retry_after:
            line += f", again in {each.retry_after:.3f} s"
        lines.append(f"{line}, full again in {each.reset_after:.3f} s")
    keys = [{"key": in_json(key), **asdict(each)} for key, each in found]
    return _print(options, {"keys": keys}, lines, failed)


def reset(options: argparse.Namespace) -> int:
    if options.rate is not None:
        return _reset_limiter(options)
    with _open(options) as store:
        before, failed = _one_by_one(options.keys, _counter(store, options).reset)
    return _print(
        options,
        {"before": [{"key": text(key), "value": value} for key, value in before]},
        [f"{printable(key)}: was {value:,}" for key, value in before],
        failed,
    )


def _reset_limiter(options: argparse.Namespace) -> int:
    with _open(options) as store:
        done, failed = _one_by_one(_limiter_keys(options), _limiter(store, options).reset)
    keys = [key for key, _ in done]
    lines = [f"{printable(key)}: forgotten" for key in keys]
    return _print(options, {"reset": [in_json(key) for key in keys]}, lines, failed)


def top(options: argparse.Namespace) -> int:
    if kind_of_url(options.url) == "Database":
        options.refuse("sorted sets are in a Redis, and the URL names a database")
    with _open(options) as store:
        found = hotcount.LiveSets(store).top(options.key, options.n)
    return _print(
        options,
        {"members": [{"member": text(member), "score": finite(score)} for member, score in found]},
        [f"{repr(score).removesuffix('.0')} {printable(member)}" for member, score in found],
    )


def finite(score: float) -> float | str:
    """JSON has no number for inf and -inf."""
    return score if math.isfinite(score) else str(score)


def block(options: argparse.Namespace) -> int:
    with _open(options) as store:
        limiter = _limiter(store, options)
        done, failed = _one_by_one(
            _limiter_keys(options), lambda key: limiter.block(key, options.seconds)
        )
    keys = [key for key, _ in done]
    return _print(
        options,
        {"blocked": [in_json(key) for key in keys], "seconds": options.seconds},
        [f"{printable(key)}: blocked for {options.seconds:g} s" for key in keys],
        failed,
    )
