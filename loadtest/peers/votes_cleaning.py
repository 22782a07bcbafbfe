"""The cost of maintenance for voters: erase_user() and reconcile() beside votes.

    .venv/bin/python -m loadtest.peers.votes_cleaning
    .venv/bin/python -m loadtest.peers.votes_cleaning --only mariadb --votes 1000000 --do reconcile

A private server with full durability has --votes votes on --items items; SQL on the server writes
them and create_tables() counts them. Each round erases another user, who has --mine of them. Before
each round of reconcile every hundredth item gets a vote that is in no count. Voters in a process of
their own then cast --rate votes a second, on drawn items, for --seconds: first alone, then beside
the call. A vote's latency runs from the time when it was due, so it includes delays before the
call. Figures are medians of the rounds (least .. most). In the end a dry reconcile must find
nothing.

stdout has a line of JSON for each server and call, stderr the progress. The exit code is 1 if a
count is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any

import hotcount

from loadtest.peers.options import groups_of
from loadtest.peers.private_servers import Server, name_in, say, start_database, url_of
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer

USER = 9_000_000_000
CALLERS = 32
CONFIG = {
    "mariadb": ("--innodb-log-file-size=1G", "--innodb-buffer-pool-size=3G"),
    "postgres": ("max_wal_size=4GB", "shared_buffers=1GB"),
}
CALLS = ["erase_user", "reconcile"]


# -- voters, in a process of their own -----------------------------------------


def voters(url: str, items: int, rate: float, seconds: float, seed: int) -> dict[str, float]:
    """Casts votes of drawn users, each when it is due; a latency runs from then to its commit."""
    with hotcount.Database(url, timeout=30) as database:
        votes = hotcount.Votes(database)
        votes.cast(1, USER + 1)
        begin = time.perf_counter() + 0.2
        times: list[list[float]] = [[] for _ in range(CALLERS)]

        def caller(index: int) -> None:
            drawn = random.Random(seed * CALLERS + index)
            step = CALLERS / rate
            due = begin + index / rate
            while due < begin + seconds:
                time.sleep(max(0.0, due - time.perf_counter()))
                votes.cast(drawn.randint(1, items), drawn.randint(1, USER - 1))
                times[index].append((time.perf_counter() - due) * 1e6)
                due += step

        threads = [threading.Thread(target=caller, args=(index,)) for index in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begin
    latencies = sorted(value for of_caller in times for value in of_caller)
    return {
        "votes_per_s": round(len(latencies) / took),
        "p50_us": round(latencies[len(latencies) // 2]),
        "p99_us": round(latencies[len(latencies) * 99 // 100]),
        "longest_us": round(latencies[-1]),
    }


def start_voters(url: str, chosen: argparse.Namespace, seconds: float, seed: int) -> Any:
    words = ["--voters", url, "--items", chosen.items, "--rate", chosen.rate]
    words += ["--seconds", seconds, "--seed", seed]
    command = [sys.executable, "-m", "loadtest.peers.votes_cleaning", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# -- the tables ----------------------------------------------------------------


def erased_user(round_: int) -> int:
    return USER + 10 + round_


def fill(server: Server, url: str, chosen: argparse.Namespace) -> None:
    """Writes the items, an equal number of votes on each, and --mine votes of each round's user."""
    per_item = max(1, (chosen.votes - chosen.rounds * chosen.mine) // chosen.items)
    step = max(1, chosen.items // chosen.mine)
    erased = [erased_user(round_) for round_ in range(chosen.rounds)]
    with hotcount.Database(url, timeout=3600) as database:
        hotcount.Votes(database, strategy="naive").create_tables()
    if isinstance(server, MariaDbServer):
        name = name_in(url)
        # MariaDB's sequence tables (seq_1_to_N) are found in the selected database only.
        server.execute(
            f"INSERT INTO item (id) SELECT seq FROM seq_1_to_{chosen.items}", database=name
        )
        for first in range(1, chosen.items + 1, 10_000):
            last = min(first + 9_999, chosen.items)
            server.execute(
                "INSERT INTO vote (item_id, user_id, val) SELECT i.seq, u.seq, 1 FROM "
                f"seq_{first}_to_{last} AS i JOIN seq_1_to_{per_item} AS u",
                database=name,
            )
        for user in erased:
            server.execute(
                f"INSERT INTO vote (item_id, user_id, val) SELECT seq, {user}, 1 FROM "
                f"seq_1_to_{chosen.items}_step_{step} LIMIT {chosen.mine}",
                database=name,
            )
        server.execute(f"CREATE INDEX vote_by_user ON {name}.vote (user_id, item_id)")
        server.execute(f"ANALYZE TABLE {name}.vote")
        return
    server.psql(f"INSERT INTO item (id) SELECT generate_series(1, {chosen.items})")
    server.psql(
        "INSERT INTO vote (item_id, user_id, val) SELECT i, u, 1 FROM "
        f"generate_series(1, {chosen.items}) AS i, generate_series(1, {per_item}) AS u"
    )
    for user in erased:
        server.psql(
            f"INSERT INTO vote (item_id, user_id, val) SELECT i, {user}, 1 FROM "
            f"generate_series(1, {chosen.items}, {step}) AS i LIMIT {chosen.mine}"
        )
    server.psql("CREATE INDEX vote_by_user ON vote (user_id, item_id)")
    server.psql("VACUUM ANALYZE vote")


def settle(server: Server) -> None:
    """Flushes the fill to the disk, so that commits of the first loads do not wait for it."""
    if isinstance(server, PostgresServer):
        server.psql("CHECKPOINT")
    os.sync()


def lose_counts(server: Server, url: str, items: int, user: int) -> None:
    """Inserts a vote that is in no count, for every hundredth item."""
    if isinstance(server, MariaDbServer):
        name = name_in(url)
        server.execute(
            f"INSERT INTO vote (item_id, user_id, val) SELECT seq, {user}, 1 FROM "
            f"seq_1_to_{items}_step_100",
            database=name,
        )
        return
    server.psql(
        f"INSERT INTO vote (item_id, user_id, val) SELECT i, {user}, 1 FROM "
        f"generate_series(1, {items}, 100) AS i"
    )


# -- rounds --------------------------------------------------------------------


def call(votes: hotcount.Votes, name: str, round_: int) -> object:
    if name == "erase_user":
        return votes.erase_user(erased_user(round_), timeout=60)
    return len(votes.reconcile(timeout=60))


def over_rounds(figures: list[float]) -> str:
    return f"{statistics.median(figures):,.10g} ({min(figures):,.10g} .. {max(figures):,.10g})"


def measure_call(
    server: Server,
    url: str,
    votes: hotcount.Votes,
    name: str,
    chosen: argparse.Namespace,
) -> dict[str, Any]:
    alone: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    took: list[float] = []
    for round_ in range(chosen.rounds):
        if name == "reconcile":
            lose_counts(server, url, chosen.items, USER + 1000 + round_)
        alone.append(
            json.loads(start_voters(url, chosen, chosen.seconds, 2 * round_).communicate()[0])
        )
        say(f"{name}: without: {alone[-1]}")
        loaded = start_voters(url, chosen, chosen.seconds, 2 * round_ + 1)
        time.sleep(1)
        began = time.perf_counter()
        answer = call(votes, name, round_)
        took.append(round(time.perf_counter() - began, 2))
        beside.append(json.loads(loaded.communicate()[0]))
        say(f"{name} answered {answer} after {took[-1]} s; beside: {beside[-1]}")
    measured = {
        f"{figure}_{where}": over_rounds([load[figure] for load in loads])
        for where, loads in (("without", alone), ("beside", beside))
        for figure in ("votes_per_s", "p50_us", "p99_us", "longest_us")
    }
    return {"call": name, "seconds": over_rounds(took), **measured}


def measure(group: str, chosen: argparse.Namespace) -> int:
    """Prints a line for each call; returns the number of wrong counts in the end."""
    with ExitStack() as stack:
        server = start_database(group, stack, *CONFIG[group])
        url = url_of(server)
        say(f"{group}: {chosen.votes:,} votes on {chosen.items:,} items are being written")
        fill(server, url, chosen)
        say(f"{group}: they are being counted")
        database = stack.enter_context(hotcount.Database(url, timeout=3600))
        votes = hotcount.Votes(database)
        votes.create_tables(existing_counts="recount", timeout=3600)
        settle(server)
        shape = {"server": group, "votes": chosen.votes, "items": chosen.items}
        for name in chosen.do:
            print(json.dumps(shape | measure_call(server, url, votes, name, chosen)), flush=True)
        votes.flush(timeout=60)
        return len(votes.reconcile(dry_run=True, timeout=600))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.peers.votes_cleaning",
        description="The cost of maintenance for voters, on private servers.",
    )
    parser.add_argument("--only", default="postgres,mariadb", help="servers [postgres,mariadb]")
    parser.add_argument("--votes", type=int, default=10_000_000, help="[10,000,000]")
    parser.add_argument("--items", type=int, default=100_000, help="[100,000]")
    parser.add_argument("--mine", type=int, default=10_000, help="votes of an erased user [10,000]")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each call [3]")
    parser.add_argument(
        "--rate", type=float, default=2000, help="votes a second of all voters [2,000]"
    )
    parser.add_argument("--seconds", type=float, default=10, help="length of a load [10]")
    parser.add_argument("--do", type=groups_of(CALLS), default=CALLS, help=",".join(CALLS))
    parser.add_argument("--voters", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    chosen = parser.parse_args(words)
    if chosen.voters:
        found = voters(chosen.voters, chosen.items, chosen.rate, chosen.seconds, chosen.seed)
        print(json.dumps(found))
        return 0
    wrong = {group: measure(group, chosen) for group in chosen.only.split(",")}
    say(f"wrong counts: {wrong}")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
