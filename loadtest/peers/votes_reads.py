"""How long it takes to ask for the counts of many items over a slow link: count_many().

    .venv/bin/python -m loadtest.peers.votes_reads
    .venv/bin/python -m loadtest.peers.votes_reads --only mariadb --items 5000 --rounds 7

Private servers with full durability; the database and Redis are behind a proxy that keeps each
piece of data for 0.5 ms, either way. --items items have one vote each. Every strategy is asked for
all of them at once, in changing order: median (least .. most) of --rounds calls, in seconds. "one
by one" asks for --few items in as many calls of count(), as a loop would: seconds for all --items
at that pace.

A line of JSON for each server on stdout, progress on stderr. Exit code 1 where a count is wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Literal

import hotcount

from loadtest.peers.private_servers import far_url, say, start_database, start_redis

# The delay that the proxy adds to each piece of data, either way.
LINK_S = 0.0005
AT_ONCE = 500
SERVERS = ("postgres", "mariadb", "mysql")


class Timed:
    """The times of one way to ask; an answer that is not one vote for each item is an error."""

    def __init__(self, ask: Callable[[], list[int]]) -> None:
        self._ask = ask
        self.seconds: list[float] = []

    def run(self) -> None:
        began = time.perf_counter()
        counts = self._ask()
        self.seconds.append(time.perf_counter() - began)
        if set(counts) != {1}:
            raise SystemExit(f"counts are wrong: {sorted(set(counts))[:5]} where each is 1")

    def figures(self, factor: float = 1.0) -> dict[str, float]:
        chosen = {
            "median_s": statistics.median(self.seconds),
            "least_s": min(self.seconds),
            "most_s": max(self.seconds),
        }
        return {name: round(value * factor, 3) for name, value in chosen.items()}


def at_once(votes: hotcount.Votes, items: list[int], how: Literal["cached", "exact"]) -> list[int]:
    return list(votes.count_many(items, consistency=how, timeout=60).value)


def one_by_one(votes: hotcount.Votes, items: list[int]) -> list[int]:
    return [int(votes.count(item, timeout=60)) for item in items]


def measure(group: str, chosen: argparse.Namespace) -> dict[str, object]:
    items = list(range(1, chosen.items + 1))
    with ExitStack() as stack:
        url = stack.enter_context(far_url(start_database(group, stack), LINK_S))
        cache = stack.enter_context(far_url(start_redis(stack), LINK_S))
        results: dict[str, object] = {"server": group, "items": len(items)}
        strategies: tuple[Literal["batched", "cached"], ...] = ("batched", "cached")
        for strategy in strategies:
            votes = hotcount.Votes(
                url,
                cache if strategy == "cached" else None,
                strategy,
                item_table=f"{strategy}_item",
                vote_table=f"{strategy}_vote",
            )
            votes.create_tables()
            votes.add_items(items)
            say(f"{group}: {len(items):,} votes by {strategy}")
            for first in range(0, len(items), AT_ONCE):
                some = items[first : first + AT_ONCE]
                votes.cast_many(some, [1] * len(some), timeout=60)
            votes.flush(timeout=60)

            ways = {
                "count_many": Timed(partial(at_once, votes, items, "cached")),
                "count_many exact": Timed(partial(at_once, votes, items, "exact")),
            }
            loop = Timed(partial(one_by_one, votes, items[: chosen.few]))
            for number in range(chosen.rounds):
                for way in list(ways.values())[:: 1 if number % 2 else -1]:
                    way.run()
                loop.run()
            for name, way in ways.items():
                results[f"{strategy}: {name}"] = way.figures()
            results[f"{strategy}: one by one"] = loop.figures(chosen.items / chosen.few)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.peers.votes_reads", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", choices=SERVERS, action="append", help="(default: all)")
    parser.add_argument("--items", type=int, default=20_000, help="(default: %(default)s)")
    parser.add_argument("--few", type=int, default=200, help="one by one (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    chosen = parser.parse_args()
    if chosen.rounds < 1 or not 1 <= chosen.few <= chosen.items:
        parser.error("--rounds takes 1 or more, --few 1 to --items")
    for group in chosen.only or SERVERS:
        print(json.dumps(measure(group, chosen)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
