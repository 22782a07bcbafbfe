"""`hotcount reconcile`: sets counts right that disagree with the votes."""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import hotcount
from hotcount import _schema

DONE, CHECK_FAILED = 0, 1
PAUSE = 1.0


def add_arguments(
    parser: argparse.ArgumentParser, strategies: Sequence[str], url: Callable[[str], str]
) -> None:
    add = parser.add_argument
    add("url", type=url, metavar="URL", help="the database of the votes")
    add("--cache", type=url, metavar="URL", help="the cache that counts them: of 'cached'")
    add("--strategy", choices=strategies, help="of Votes (default: batched; cached with --cache)")
    add("--dry-run", action="store_true", help="only look; exit code 1 if a count is wrong")
    add("--after", metavar="ITEM", help="begin behind that item, where an earlier run ended")
    add(
        "--timeout",
        type=float,
        default=60,
        metavar="SECONDS",
        help="of each page of at most 512 items (default: 60)",
    )
    _schema.add_names(parser)
    add("--json", action="store_true", help="the result as JSON")


class Lines:
    """Prints the progress on stderr, a line each second."""

    def __init__(self) -> None:
        self.items = 0
        self.drifts = 0
        self.last: Any = None
        self._next = time.monotonic() + PAUSE

    def __call__(self, last: Any, items: int, drifts: int) -> None:
        self.items, self.drifts = items, drifts
        if last is not None:
            self.last = last
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PAUSE
            self.say()

    def say(self) -> None:
        where = "" if self.last is None else f", up to {self.last}"
        print(
            f"  {self.items:,} items looked at{where}; {self.drifts:,} differ",
            file=sys.stderr,
            flush=True,
        )


def show(drifts: list[hotcount.Drift], items: int, options: argparse.Namespace) -> None:
    wrong = sum(drift.counted != drift.actual for drift in drifts)
    if options.json:
        found = [
            {
                "item": str(drift.item) if isinstance(drift.item, uuid.UUID) else drift.item,
                "counted": drift.counted,
                "actual": drift.actual,
                "orphan": drift.orphan,
            }
            for drift in drifts
        ]
        report = {"dry_run": options.dry_run, "items": items, "wrong": wrong, "drifts": found}
        print(json.dumps(report, indent=2))
        return
    for drift in drifts:
        orphan = "  (no such item: what is left of it)" if drift.orphan else ""
        print(f"{drift.item}: counted {drift.counted:,}, votes {drift.actual:,}{orphan}")
    done = "" if options.dry_run else ", set right"
    print(f"{items:,} items, {wrong:,} counts wrong{done if wrong else ''}")


def run(options: argparse.Namespace) -> int:
    strategy: Any = options.strategy or ("cached" if options.cache else "batched")
    names = _schema.names_of(options)
    if strategy in ("cached", "write_behind") and not options.cache:
        options.refuse(f"strategy {strategy} needs --cache, where its counts or votes are")
    if (options.cache or "").startswith("memory:"):
        options.refuse("--cache must be a server's: memory:// counts inside one process only")
    after: Any = None
    if options.after is not None:
        try:
            after = names["item_type"](options.after)
        except ValueError:
            options.refuse(f"--after is not of --item-type {options.item_type}")
    lines = Lines()
    with hotcount.Votes(options.url, options.cache, strategy, **names) as votes:
        try:
            drifts = votes.reconcile(
                dry_run=options.dry_run, after=after, progress=lines, timeout=options.timeout
            )
        except hotcount.CounterOverflowError as error:
            print(f"hotcount reconcile: {error}", file=sys.stderr)
            return CHECK_FAILED
        except (hotcount.HotcountError, KeyboardInterrupt):
            if lines.last is not None:
                print(
                    f"hotcount reconcile: --after {lines.last} goes on from there", file=sys.stderr
                )
            raise
    show(drifts, lines.items, options)
    wrong = any(drift.counted != drift.actual for drift in drifts)
    return CHECK_FAILED if wrong and options.dry_run else DONE
