"""The cost, for our own votes, of triggers that count outside writes (outside_writes).

    .venv/bin/python -m loadtest.peers.votes_outside
    .venv/bin/python -m loadtest.peers.votes_outside --only sqlite --rounds 3 --seconds 4

One private server for each database, one set of tables (SQLite: one file) for each form: 'none',
'deletes', 'count'.
In each round every form is driven for --seconds in turn, the order reversed from round to round,
with single votes of one thread and with batches of 64 votes (cast_many). Every vote is of a new
user for one of 100 items. Figures are votes per second, medians of the rounds, and the ratio to
'none' of the same round: median (least .. most). In the end counts must be the sums of the rows.

A line of JSON for each database on stdout, progress on stderr. Exit code 1 where a count is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import Any

import hotcount

from loadtest.peers.private_servers import say, start_database, url_of

FORMS: tuple[Any, ...] = ("none", "deletes", "count")
ITEMS = 100
BATCH = 64


# Where commits do not wait for the disk.
NOT_DURABLE = {
    "postgresql": "synchronous_commit=off",
    "mariadb": "--innodb-flush-log-at-trx-commit=2",
    "mysql": "--innodb-flush-log-at-trx-commit=2",
}


def place_of(kind: str, stack: ExitStack, durable: bool) -> str:
    if kind == "sqlite":
        return f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/votes.db"
    config = () if durable else (NOT_DURABLE[kind],)
    return url_of(start_database("postgres" if kind == "postgresql" else kind, stack, *config))


def drive(votes: hotcount.Votes, users: Any, batch: int, seconds: float) -> float:
    """Votes per second."""
    done, begin = 0, time.perf_counter()
    while (now := time.perf_counter()) < begin + seconds:
        ids = list(itertools.islice(users, batch))
        if batch == 1:
            votes.cast(1 + ids[0] % ITEMS, ids[0])
        else:
            votes.cast_many([1 + user % ITEMS for user in ids], ids)
        done += batch
    return done / (now - begin)


def measure(kind: str, options: argparse.Namespace) -> bool:
    with ExitStack() as stack:
        # Two tables with triggers in one SQLite file have them run for our own votes too.
        urls = [
            place_of(kind, stack, options.durable) for _ in (FORMS if kind == "sqlite" else [0])
        ]
        users = itertools.count(1)
        made = {}
        for form, url in zip(FORMS, itertools.cycle(urls)):
            votes = hotcount.Votes(
                hotcount.Database(url, timeout=30),
                vote_table=f"{form}_vote",
                item_table=f"{form}_item",
            )
            stack.callback(votes.close)
            votes.create_tables(outside_writes=form)
            votes.add_items(range(1, ITEMS + 1))
            made[form] = votes
        rates: dict[tuple[int, str], list[float]] = {}
        for round_ in range(options.rounds + 1):
            for batch in (1, BATCH):
                for form in FORMS if round_ % 2 else FORMS[::-1]:
                    # The first round warms up.
                    rate = drive(made[form], users, batch, options.seconds if round_ else 1.0)
                    if round_:
                        rates.setdefault((batch, form), []).append(rate)
                    say(f"{kind} round {round_}: {form}, {batch} a call: {rate:,.0f}/s")
        right = all(votes.reconcile(dry_run=True) == [] for votes in made.values())
    figures: dict[str, Any] = {"database": kind, "durable": options.durable, "counts_right": right}
    for (batch, form), each in rates.items():
        ratios = sorted(a / b for a, b in zip(each, rates[batch, "none"], strict=True))
        figures[f"{form}, {batch} a call"] = {
            "votes_per_s": round(statistics.median(each)),
            "ratio": f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} .. {ratios[-1]:.3f})",
        }
    print(json.dumps(figures, indent=1), flush=True)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    kinds = ["postgresql", "mariadb", "mysql", "sqlite"]
    parser.add_argument("--only", choices=kinds, nargs="+", default=kinds)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--durable", action="store_true", help="each commit waits for the disk")
    options = parser.parse_args()
    right = [measure(kind, options) for kind in options.only]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
