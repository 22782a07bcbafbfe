"""`hotcount ready`: whether stores and databases serve calls now, for probes."""

from __future__ import annotations

import argparse
import json
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import hotcount
from hotcount import _doctor, _schema
from hotcount.stores import kind_of_url

READY, NOT_READY = 0, 1
DESCRIPTION = (
    "Asks each server whether it serves calls now, and prints a line for each: for the probes of "
    "Kubernetes, systemd and load balancers. Changes nothing."
)
EPILOG = (
    "Example: hotcount ready env:REDIS_URL env:DATABASE_URL --timeout 2. Exit codes: 0 all are "
    "ready, 1 a server is not, 2 bad usage."
)


def add_arguments(
    parser: argparse.ArgumentParser,
    strategies: Sequence[str],
    url: Callable[[str], str],
    seconds: Callable[[str], float],
) -> None:
    add: Any = parser.add_argument
    add("urls", nargs="+", type=url, metavar="URL", help="a store or a database")
    add(
        "--for",
        dest="for_",
        choices=["writes", "reads"],
        default="writes",
        help="reads: a read-only replica will do (default: writes)",
    )
    add("--timeout", type=seconds, default=1.0, help="seconds for each URL (default: 1)")
    add("--json", action="store_true", help="the result as JSON")
    group: Any = parser.add_argument_group("tables of votes")
    group.add_argument(
        "--votes",
        nargs="?",
        const="batched",
        choices=strategies,
        metavar="STRATEGY",
        help="databases must have the tables of Votes, of that strategy (default: batched)",
    )
    _schema.add_names(group)


@dataclass(frozen=True)
class Target:
    """Whether the server of one URL is ready."""

    target: str
    ready: bool
    reason: str | None


class Reasons(logging.Handler):
    """A log handler that keeps the reasons which ready() logs when it returns False."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        kind, _, reason = record.getMessage().partition("not ready: ")
        if not kind:  # Else it is the library's line about an outage.
            self.said.append(reason)


def probe_id(id_type: Any) -> Any:
    return uuid.UUID(int=0) if id_type is uuid.UUID else id_type(0)


def missing_votes(
    database: hotcount.Database, options: argparse.Namespace, left: Callable[[], float]
) -> str | None:
    """The error of reading a count and a vote; None if both work. left: the seconds that remain."""
    names = _schema.names_of(options)
    item, user = probe_id(names["item_type"]), probe_id(names["user_type"])
    with _schema.votes_of_tables(database, options.votes, names) as votes:
        try:
            votes.count(item, consistency="exact", timeout=left())
            votes.get(item, user, timeout=left())
        except hotcount.HotcountError as error:  # A ConfigError if the strategy differs.
            return str(error)
    return None


def probe(url: str, options: argparse.Namespace, reasons: Reasons) -> Target:
    target = _doctor.without_login(url)
    kind = kind_of_url(url)
    if kind == "Database" and _doctor.missing_file(url):
        return Target(target, False, "there is no such file")
    until: float = time.monotonic() + options.timeout
    more: dict[str, Any] = {} if kind == "Memory" else {"timeout": options.timeout}
    if kind == "Redis":
        more["connect_timeout"] = options.timeout

    def left() -> float:
        return max(until - time.monotonic(), 0.001)

    try:
        with hotcount.connect(url, **more) as store:
            reason = None if store.ready(options.for_, timeout=left()) else reasons.said[-1]
            if reason is None and options.votes and isinstance(store, hotcount.Database):
                reason = missing_votes(store, options, left)
            return Target(target, reason is None, reason)
    except hotcount.ConfigError:
        raise
    except hotcount.HotcountError as error:  # A database is opened first.
        return Target(target, False, str(error))


def run(options: argparse.Namespace) -> int:
    reasons = Reasons()
    logger = logging.getLogger("hotcount")
    # The reason is printed on stdout; without this the library's log line would follow on stderr.
    logger.addHandler(logging.NullHandler())
    logger.addHandler(reasons)
    logger.propagate = False
    try:
        found = [probe(url, options, reasons) for url in options.urls]
    finally:
        logger.removeHandler(reasons)
        logger.propagate = True
    all_ready = all(each.ready for each in found)
    if options.json:
        targets = [asdict(each) for each in found]
        print(json.dumps({"ready": all_ready, "for": options.for_, "targets": targets}, indent=2))
    else:
        for each in found:
            print(f"{each.target}: {each.reason or f'ready for {options.for_}'}")
    return READY if all_ready else NOT_READY
