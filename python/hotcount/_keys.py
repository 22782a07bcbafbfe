"""`hotcount get|peek|reset|top|block`: what an operator asks of single keys and items."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, get_args

import hotcount
from hotcount import _schema
from hotcount.limiter import Algorithm
from hotcount.stores import kind_of_url

SUMMARIES = {
    "get": "print counts: of keys of a Counter or SlottedCounter, of items of Votes",
    "peek": "print what a limiter has left for keys; takes nothing",
    "reset": "set keys of a counter to 0, or let a limiter forget them",
    "top": "print the highest members of a sorted set",
    "block": "let a limiter refuse keys for a while",
}
DESCRIPTIONS = {
    "get": "On Redis: the values of a Counter's keys. On a database: the counts of items of Votes, "
    "or with --slots of a SlottedCounter's keys. A key that does not exist counts 0.",
    "peek": "What the next hit of each key would be answered. A limiter keeps its state by name, "
    "algorithm and rate: give them as the application does.",
    "reset": "With --rate: the limiter forgets the keys, and lifts a block. Else: deletes the "
    "values of a Counter, or with --slots of a SlottedCounter, and prints what they were.",
    "top": "The highest members of a sorted set of LiveSets, with their scores.",
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


def _add_counter(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("counters").add_argument
    add("--prefix", default="count", help="of the Counter's keys (default: count)")
    add("--slots", action="store_true", help="of a SlottedCounter, in a database")


def _add_limiter(parser: argparse.ArgumentParser, *, required: bool) -> None:
    add = parser.add_argument_group("limiters").add_argument
    add("--rate", required=required, metavar="RATE", help="such as 100/minute")
    add("--name", default="default", help="of the limiter (default: default)")
    add("--algorithm", choices=get_args(Algorithm), help="default: gcra, in a database sliding_log")
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
    """urls: what --help says of URLs."""
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
            each.add_argument("key", metavar="KEY", help="in full, without the store's prefix")
            each.add_argument("-n", type=count, default=10, help="how many (default: 10)")
        else:
            each.add_argument("keys", nargs="+", metavar="KEY", help="or ITEM, of votes")
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
            "--store-prefix", default="", metavar="PREFIX", help="of all keys: Redis(prefix=)"
        )
        each.add_argument("--timeout", type=positive, help="seconds for each call")
        each.add_argument("--json", action="store_true", help="the result as JSON")
        each.set_defaults(run=run, refuse=each.error)


# -- what is behind the URL -------------------------------------------------


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
    if is_database:
        return hotcount.SlottedCounter(store, **_table(options))
    return hotcount.Counter(store, options.prefix)


def _limiter(store: Any, options: argparse.Namespace) -> hotcount.Limiter:
    is_database = isinstance(store, hotcount.Database)
    more: dict[str, Any] = _table(options) if is_database else {}
    more["algorithm"] = options.algorithm or ("sliding_log" if is_database else "gcra")
    if more["algorithm"] == "fixed_window":
        more["align"] = options.align
    return hotcount.Limiter(store, options.rate, name=options.name, **more)


def _limiter_keys(options: argparse.Namespace) -> list[str | tuple[str, ...]]:
    return [tuple(options.keys)] if options.tuple else list(options.keys)


def printable(key: str | bytes | tuple[str, ...]) -> str:
    """For a line: a key must not pass for two lines, or move the cursor."""
    if isinstance(key, tuple):
        return " ".join(map(printable, key))
    text = key if isinstance(key, str) else key.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _print(options: argparse.Namespace, result: dict[str, Any], lines: Sequence[str]) -> int:
    print(json.dumps(result, indent=2) if options.json else "\n".join(lines))
    return 0


# -- the commands -----------------------------------------------------------


def get(options: argparse.Namespace) -> int:
    with _open(options) as store:
        if isinstance(store, hotcount.Database) and not options.slots:
            return _get_votes(store, options)
        found = _counter(store, options).get_many(options.keys).tolist()
    counts = dict(zip(options.keys, found, strict=True))
    return _print(
        options,
        {"counts": [{"key": key, "value": value} for key, value in counts.items()]},
        [f"{printable(key)}: {value:,}" for key, value in counts.items()],
    )


def _get_votes(database: hotcount.Database, options: argparse.Namespace) -> int:
    names = _schema.names_of(options)
    try:
        items = [names["item_type"](text) for text in options.keys]
    except ValueError:
        options.refuse(f"an ITEM is not of --item-type {options.item_type}")
    strategy: Any = options.strategy or ("cached" if options.cache else "batched")
    with hotcount.Votes(database, options.cache, strategy, **names) as votes:
        found = votes.count_many(items, consistency="exact" if options.exact else "cached")
        counts = [
            {"item": text, **asdict(count)} for text, count in zip(options.keys, found, strict=True)
        ]
    for each in counts:
        each["item"] = int(each["item"]) if options.item_type == "int" else each["item"]
    return _print(
        options,
        {"counts": counts},
        [
            f"{each['item']}: {each['value']:,}"
            + ("" if each["exact"] else f" (from {each['source']}; --exact reads the tables)")
            for each in counts
        ],
    )


def peek(options: argparse.Namespace) -> int:
    keys = _limiter_keys(options)
    with _open(options) as store:
        limiter = _limiter(store, options)
        decisions = [limiter.peek(key) for key in keys]
    lines = []
    for key, each in zip(keys, decisions, strict=True):
        line = f"{printable(key)}: {each.reason}, {each.remaining:,} of {each.limit:,} left"
        if each.retry_after:
            line += f", again in {each.retry_after:.3f} s"
        lines.append(f"{line}, as new in {each.reset_after:.3f} s")
    found = [{"key": key, **asdict(each)} for key, each in zip(keys, decisions, strict=True)]
    return _print(options, {"keys": found}, lines)


def reset(options: argparse.Namespace) -> int:
    if options.rate is not None:
        return _reset_limiter(options)
    with _open(options) as store:
        counter = _counter(store, options)
        before = [{"key": key, "value": counter.reset(key)} for key in options.keys]
    lines = [f"{printable(each['key'])}: was {each['value']:,}" for each in before]
    return _print(options, {"before": before}, lines)


def _reset_limiter(options: argparse.Namespace) -> int:
    keys = _limiter_keys(options)
    with _open(options) as store:
        limiter = _limiter(store, options)
        for key in keys:
            limiter.reset(key)
    return _print(options, {"reset": keys}, [f"{printable(key)}: forgotten" for key in keys])


def top(options: argparse.Namespace) -> int:
    if kind_of_url(options.url) == "Database":
        options.refuse("sorted sets are in a Redis, and the URL names a database")
    with _open(options) as store:
        found = hotcount.LiveSets(store).top(options.key, options.n)
    members = [
        (each if isinstance(each, str) else each.decode(errors="backslashreplace"), score)
        for each, score in found
    ]
    return _print(
        options,
        {"members": [{"member": member, "score": score} for member, score in members]},
        [f"{score:g} {printable(member)}" for member, score in members],
    )


def block(options: argparse.Namespace) -> int:
    keys = _limiter_keys(options)
    with _open(options) as store:
        limiter = _limiter(store, options)
        for key in keys:
            limiter.block(key, options.seconds)
    result = {"blocked": keys, "seconds": options.seconds}
    return _print(
        options, result, [f"{printable(key)}: blocked for {options.seconds:g} s" for key in keys]
    )
