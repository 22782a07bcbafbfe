"""Votes on SQL: what grouping gives over one transaction a vote, on private servers with full
durability, in alternating rounds.

    make votes
    make votes VOTES_ARGS="--only postgres --rounds 7 --json votes.json"
    make votes VOTES_ARGS="--cases C++,gunicorn"

PostgreSQL and MariaDB are the installed ones; MySQL is what `scripts/setup mysql` fetched or
HOTCOUNT_MYSQL names, and a run without it says so and goes on. All of them flush every commit. The
first cases are one process's callers, by hotcount-load; those of processes, with more contenders,
are described in vote_processes.py.
All of it with 5 rounds takes hours: choose. --list names the cases.

All calls vote for one item, unless a row says otherwise. Each load makes tables of its own; a vote
counts when it was acknowledged after its commit, and every load is audited: one lost or counted
twice fails the run.

Results are on stdout, progress on stderr. Exit code: 0, or 1 if a vote was lost, doubled or
failed, 2 on bad usage or if something is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from loadtest.peers import native, options
from loadtest.peers.private_servers import Server, far_url, start_database, start_redis, url_of
from loadtest.peers.report import summary, text_table
from loadtest.peers.rounds import OURS, P99, RATE, Case, Failed, Load, Measured, run_rounds
from loadtest.peers.vote_processes import ZIPF_ITEMS, process_cases
from tests.support.mysql_server import mysql_folder

GROUPS = ("postgres", "mariadb", "mysql", "sqlite")
IN_FLIGHT = 1000
WARM_UP = "400ms"
# No server waits for checkpoints in a load.
LOG_ROOM = {
    "postgres": "max_wal_size=4GB",
    "mariadb": "--innodb-log-file-size=512M",
    "mysql": "--innodb-redo-log-capacity=512M",
}
# The delay that the proxy adds to each piece of data, either way.
LINK_S = 0.0005

HOTCOUNT_LOAD = native.ROOT / ".venv/bin/hotcount-load"


def hotcount_load(
    url: str | None,
    strategy: str,
    workers: int,
    items: int,
    program: Path,
    seconds: float,
    seed: int,
    redis: str | None = None,
    processes: int = 0,
) -> Measured:
    """One run of the load generator, which audits it."""
    in_flight = ["--in-flight", str(IN_FLIGHT)] if strategy.endswith("/async") else []
    command = [
        *(str(program), "run", "-s", strategy, "--json"),
        *("-w", str(workers), "-d", f"{seconds}s", "--warmup", WARM_UP, "--seed", str(seed + 1)),
        *("--items", str(items), "--users", "1G", "--mix", "vote=100", "--dup", "0"),
        *("--timeout", "30s", "--progress", "none"),
        *(["--db", url] if url else []),
        *(["--redis", redis] if redis else []),
        *(["--processes", str(processes)] if processes else []),
        *in_flight,
    ]
    document = json.loads(native.run(command))
    if not document["audit"]["passed"] or document["result"]["operations"]["failed"]:
        raise Failed(f"{strategy}: {document['reasons']} {document['result']['errors']}")
    return Measured(
        document["audit"]["acknowledged"],
        {
            RATE: document["result"]["writes_per_s"],
            P99: document["result"]["service_us"]["p99"],
        },
    )


def cases_on(group: str, url: str | None) -> list[Case]:
    """The cases of one process's callers on one database."""

    def case(name: str, items: int, *loads: tuple[str, str, int]) -> Case:
        return Case(
            name,
            group,
            [
                Load(
                    contender,
                    partial(hotcount_load, url, strategy, workers, items, HOTCOUNT_LOAD),
                )
                for contender, strategy, workers in loads
            ],
        )

    return [
        *(
            case(
                f"{callers} callers",
                1,
                (OURS, "batched", callers),
                ("naive", "naive", callers),
                ("slotted", "slotted", callers),
            )
            for callers in (16, 64)
        ),
        case(
            f"{IN_FLIGHT:,} in flight",
            1,
            (OURS, "batched/async", 64),
            ("naive, 64 callers", "naive", 64),
        ),
        case(
            "64 callers, 10,000 items, Zipf 0.99",
            ZIPF_ITEMS,
            (OURS, "batched", 64),
            ("naive", "naive", 64),
        ),
    ]


def link_cases(group: str, server: Server, stack: ExitStack) -> list[Case]:
    """The database and Redis behind links that take 0.5 ms each way.

    In a run of some seconds most of 10,000 items get their first vote, with which their counts come
    into the cache; 100 items have theirs there before the measurement.
    """
    url = stack.enter_context(far_url(server, LINK_S))
    cache = stack.enter_context(far_url(start_redis(stack), LINK_S))

    def load(name: str, strategy: str, items: int) -> Load:
        def run(seconds: float, seed: int) -> Measured:
            used = cache if strategy != "batched" else None
            return hotcount_load(url, strategy, 64, items, HOTCOUNT_LOAD, seconds, seed, redis=used)

        return Load(name, run)

    made = []
    for words, items in [("counts come", ZIPF_ITEMS), ("counts are there", 100)]:
        case = Case(
            f"64 callers, a link of 0.5 ms, {words}",
            group,
            [load(OURS, "redis/cached", items), load("batched", "batched", items)],
        )
        made.append(case)
    return made


def cases_of(group: str, chosen: argparse.Namespace, stack: ExitStack) -> list[Case]:
    """Starts what the group needs; it ends with the stack."""
    if group == "sqlite":
        return cases_on(group, None)
    server = start_database(group, stack, LOG_ROOM[group])
    return [
        *cases_on(group, url_of(server)),
        *link_cases(group, server, stack),
        *process_cases(group, server, chosen.held),
    ]


def chosen_of(cases: list[Case], chosen: argparse.Namespace) -> list[Case]:
    """The cases that --cases names, with the loads that --contenders names."""

    def has(name: str, words: str) -> bool:
        return any(word in name for word in words.split(","))

    for case in cases:
        case.loads = [
            load
            for load in case.loads
            if load.contender == OURS or has(load.contender, chosen.contenders)
        ]
    return [case for case in cases if has(case.name, chosen.cases)]


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = options.parser_for(
        "sql_votes",
        "Votes on SQL: batched beside one transaction a vote, in alternating rounds.",
        GROUPS,
        rounds=5,
        seconds=2,
        short=[
            *("--only", "postgres,mariadb", "--cases", "C++ 4 x 1 hot,C++ 4 x 16 Zipf"),
            *("--contenders", "slotted", "--rounds", "3", "--seconds", "1"),
        ],
    )
    parser.add_argument(
        "--cases",
        default="",
        metavar="WORDS",
        help="only cases whose name has one of these words, by commas [all]",
    )
    parser.add_argument(
        "--contenders",
        default="",
        metavar="WORDS",
        help="beside hotcount's batched, only contenders whose name has one of these words [all]",
    )
    parser.add_argument(
        "--held", type=float, default=5, metavar="SECONDS", help="how long an item is held [5]"
    )
    parser.add_argument("--list", action="store_true", help="name the cases, run none")
    chosen = options.parse(parser, words)
    if chosen.held <= 0:
        parser.error("--held takes more than 0")
    return chosen


def compare(chosen: argparse.Namespace) -> None:
    cases: list[Case] = []
    for group in chosen.only:
        if group == "mysql" and chosen.only != [group] and mysql_folder() is None:
            print("mysql is left out: scripts/setup mysql brings a server", file=sys.stderr)
            continue
        # One server at a time: an idle one still writes checkpoints.
        with ExitStack() as stack:
            some = chosen_of(cases_of(group, chosen, stack), chosen)
            if chosen.list:
                for case in some:
                    names = "; ".join(load.contender for load in case.loads)
                    print(f"{group}: {case.name}: {names}")
                continue
            # Each load audits itself.
            run_rounds(some, chosen.rounds, chosen.seconds, lambda _case, _measured: None)
            cases += some
    if chosen.list:
        return
    summaries = [summary(case) for case in cases]
    print(
        f"Votes acknowledged a second, {os.cpu_count()} CPUs shared with the server, closed loop, "
        f"{chosen.rounds} rounds of {chosen.seconds:g} s in changing order: median (min .. max); "
        "ratios are taken within rounds.\n"
    )
    print(text_table(summaries))
    print("\nEvery load was audited: no vote was lost or counted twice.")
    document = {"rounds": chosen.rounds, "seconds": chosen.seconds, "cases": summaries}
    options.keep(chosen, document)


def main(words: list[str] | None = None) -> int:
    chosen = arguments(words)
    return options.exit_code_of(lambda: compare(chosen))


if __name__ == "__main__":
    sys.exit(main())
