"""Votes of write_behind while its processes are killed, and their rate beside batched and cached.

    .venv/bin/python -m loadtest.peers.write_behind
    .venv/bin/python -m loadtest.peers.write_behind --seconds 20 --only storm
    .venv/bin/python -m loadtest.peers.write_behind --only rates --rounds 5 --beside 4

Servers are private: a PostgreSQL with full durability, a Redis for each storm, and one Redis for
all rates. Two tables:

storm   A storm of --seconds for each appendfsync: three voters cast 2,000 votes a second each on
        10,000 items drawn by Zipf, beside 4 workers. Every 1 to 3 s a worker, a voter or Redis is
        killed and started again, or (not with "always") Redis gets FLUSHALL. At the end the votes
        in PostgreSQL are compared with the acknowledged ones. A missing vote ends the program with
        an error, unless Redis lost it with its data; column "lost by Redis" counts those.
rates   No process is killed. Three voters, a process each, cast 20 votes a call without a pause for
        --beside seconds; the strategies take turns for --rounds rounds. Figures are medians (least
        .. most). write_behind and cached have a worker thread in this process. "acknowledged":
        votes a second until the voters stop. "written": votes a second until PostgreSQL has all of
        them. max_pending is 500,000: the worker writes fewer votes a second than are cast, and the
        stream of a hot item would fill up.

Tables in Markdown on stdout, progress on stderr.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import Literal

import hotcount

from loadtest.peers.private_servers import say, start_redis
from tests.support.servers import PostgresServer, RedisServer
from tests.support.write_behind_storm import EVERYSEC, FSYNC, survive

Strategy = Literal["write_behind", "batched", "cached"]
STRATEGIES: tuple[Strategy, ...] = ("write_behind", "batched", "cached")
VOTERS, BATCH, ITEMS = 3, 20, 10_000


def storms(postgres: PostgresServer, seconds: float) -> list[str]:
    rows = [
        "| appendfsync | votes/s acknowledged | kills | acknowledged | lost by Redis "
        "| count UPDATEs per vote |",
        "|---|---|---|---|---|---|",
    ]
    for fsync, config in FSYNC.items():
        say(f"storm, appendfsync {fsync}")
        with ExitStack() as stack:
            done = survive(postgres, start_redis(stack, *config), fsync, seconds)
        kills = ", ".join(f"{number} {what}" for what, number in sorted(done.kills.items()))
        rows.append(
            f"| {fsync} | {done.votes_per_s:,.0f} | {kills} | {done.acknowledged:,} "
            f"| {done.lost:,} | {done.updates_per_vote:.4f} |"
        )
    return rows


VOTER = """
import hotcount, random, sys, time
db, cache, strategy, first, seconds = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])
votes = hotcount.Votes(
    hotcount.Database(db, timeout=60), cache or None, strategy, max_pending=500_000
)
draw = random.Random(first)
done, end = 0, 0.0
while end == 0 or time.monotonic() < end:
    items = [min(int(draw.paretovariate(1.0)), %(items)d) for _ in range(%(batch)d)]
    votes.cast_many(items, range(first + done, first + done + %(batch)d))
    done += %(batch)d
    if end == 0:
        print("ready", flush=True)
        sys.stdin.readline()
        begun, end = done, time.monotonic() + seconds
print(done, done - begun, flush=True)
"""


def rate(
    postgres: PostgresServer, redis: RedisServer, strategy: Strategy, seconds: float
) -> tuple[float, float]:
    """Votes a second until the last acknowledgement, and until the last write."""
    url = postgres.create_database().url
    cache = "" if strategy == "batched" else redis.url
    program = VOTER % {"items": ITEMS, "batch": BATCH}
    with hotcount.Votes(
        hotcount.Database(url, timeout=60), cache or None, strategy, interval=0.2
    ) as votes:
        votes.create_tables()
        votes.add_items(range(1, ITEMS + 1))
        stop = threading.Event()
        worker = None
        if strategy != "batched":
            worker = threading.Thread(target=votes.sync_worker().run, args=[stop], daemon=True)
            worker.start()
        voters = [
            subprocess.Popen(
                [sys.executable, "-c", program, url, cache, strategy, str(n * 10**9), str(seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(VOTERS)
        ]
        for voter in voters:
            if voter.stdout is None or voter.stdout.readline() != "ready\n":
                raise SystemExit(f"a voter of {strategy} did not begin")
        began = time.monotonic()
        said = [voter.communicate("\n")[0].split() for voter in voters]
        if any(voter.returncode != 0 for voter in voters):
            raise SystemExit(f"a voter of {strategy} failed")
        acknowledged = time.monotonic()
        stop.set()
        if worker is not None:
            worker.join()
        votes.flush(timeout=60)
        written = time.monotonic()
        all_votes, timed = (sum(int(words[i]) for words in said) for i in range(2))
        found = sum(int(count) for count in votes.count_many(list(range(1, ITEMS + 1))))
    if found != all_votes:
        raise SystemExit(f"{strategy}: {all_votes} votes were acknowledged, {found} are counted")
    return timed / (acknowledged - began), timed / (written - began)


def rates(postgres: PostgresServer, rounds: int, seconds: float) -> list[str]:
    found: dict[Strategy, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        redis = start_redis(stack, *EVERYSEC)
        for number in range(rounds):
            order = STRATEGIES if number % 2 == 0 else tuple(reversed(STRATEGIES))
            for strategy in order:
                found.setdefault(strategy, []).append(rate(postgres, redis, strategy, seconds))
                say(f"{strategy}: {found[strategy][-1][0]:,.0f} votes/s")

    def spread(values: list[float]) -> str:
        return f"{statistics.median(values):,.0f} ({min(values):,.0f} .. {max(values):,.0f})"

    rows = ["| strategy | votes/s acknowledged | votes/s written |", "|---|---|---|"]
    for strategy in STRATEGIES:
        acknowledged, written = zip(*found[strategy], strict=True)
        rows.append(f"| {strategy} | {spread(list(acknowledged))} | {spread(list(written))} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=["storm", "rates"])
    parser.add_argument("--seconds", type=float, default=20, help="of each storm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=float, default=4, help="seconds of each rate")
    options = parser.parse_args()
    postgres = PostgresServer().start()
    try:
        if options.only != "rates":
            print("\n".join(storms(postgres, options.seconds)), flush=True)
        if options.only != "storm":
            print("\n".join(rates(postgres, options.rounds, options.beside)), flush=True)
    finally:
        postgres.remove()


if __name__ == "__main__":
    main()
