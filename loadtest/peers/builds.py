"""This build beside another one, as a ratio: what a change has cost or gained.

    make compare-builds BEFORE=../hotcount-before
    make compare-builds BEFORE=../hotcount-before BUILDS_ARGS="--only sync,postgres --rounds 5"

BEFORE is another work tree in which `make build` was run. Both builds run the same loads on the
same private servers, in turns: counters, limits and sets on Redis, votes on PostgreSQL, MariaDB
and SQLite, and calls in Python where nothing waits. Ratios are taken within rounds. A ratio over 1
means that this build is faster; for p99, that it is slower.
Adds and votes are audited: one lost or counted twice fails the run.

Results are on stdout, progress on stderr. Exit code: 0, or 1 if an add or a vote was lost,
doubled or failed, 2 on bad usage or if something is missing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from loadtest.peers import native, one_load, options
from loadtest.peers.private_servers import start_database, start_redis, url_of
from loadtest.peers.report import summary, text_table
from loadtest.peers.rounds import (
    OURS,
    RATE,
    Case,
    Failed,
    Load,
    Measured,
    Run,
    measure,
    run_rounds,
)
from loadtest.peers.sql_votes import IN_FLIGHT, LOG_ROOM, hotcount_load
from loadtest.peers.vote_processes import ZIPF_ITEMS
from tests.support.servers import free_port

BEFORE = "before"
GROUPS = ("calls", *one_load.LOADS, "cpp", "postgres", "mariadb", "sqlite")
ON_REDIS = (*one_load.LOADS, "cpp")


def python_program(tree: Path, load: str, module: str, *words: object) -> str:
    """The output of a program of this tree, run with the hotcount of `tree`."""
    done = subprocess.run(
        [str(tree / ".venv/bin/python"), "-m", module, *map(str, words)],
        cwd=native.ROOT,
        capture_output=True,
        text=True,
        timeout=native.PROGRAM_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(f"{load} with {tree.name}: {done.stderr.strip()}")
    return done.stdout


def redis_load(tree: Path, name: str, port: int, seconds: float, seed: int) -> Measured:
    printed = python_program(tree, name, "loadtest.peers.one_load", name, port, seconds, seed)
    line = json.loads(printed)
    return Measured(line["added"], {RATE: line["rate"]})


def cpp_load(tree: Path, mode: str, width: int, port: int, seconds: float, seed: int) -> Measured:
    program = tree / "build" / "release" / native.CPP_PROGRAM
    return native.singly(program, mode, width, one_load.KEYS, port, seconds, seed)


def both(name: str, group: str, run: Callable[[Path], Run], before: Path) -> Case:
    loads = [Load(OURS, run(native.ROOT)), Load(BEFORE, run(before))]
    return Case(name, group, loads, audited=group != "scripts")


def redis_cases(groups: list[str], port: int, before: Path) -> list[Case]:
    def python(name: str, tree: Path) -> Run:
        return partial(redis_load, tree, name, port)

    def cpp(mode: str, width: int, tree: Path) -> Run:
        return partial(cpp_load, tree, mode, width, port)

    made = [
        both(name, group, partial(python, name), before)
        for group, loads in one_load.LOADS.items()
        if group in groups
        for name in loads
    ]
    if "cpp" in groups:
        for mode, width in (("blocking", 64), ("completions", 256), ("completions", 1_024)):
            made.append(both(f"{width:,} {mode}", "cpp", partial(cpp, mode, width), before))
    return made


def vote_cases(group: str, url: str | None, before: Path) -> list[Case]:
    def votes(strategy: str, callers: int, items: int, processes: int, tree: Path) -> Run:
        program = tree / ".venv/bin/hotcount-load"
        return partial(hotcount_load, url, strategy, callers, items, program, processes=processes)

    shapes = [
        ("batched, 16 callers", "batched", 16, 1),
        ("batched, 64 callers", "batched", 64, 1),
        (f"batched, {IN_FLIGHT:,} in flight", "batched/async", 64, 1),
        ("batched, 64 callers, 10,000 items, Zipf 0.99", "batched", 64, ZIPF_ITEMS),
        ("naive, 16 callers", "naive", 16, 1),
        ("slotted, 64 callers", "slotted", 64, 1),
    ]
    together = [
        both(name, group, partial(votes, strategy, callers, items, 0), before)
        for name, strategy, callers, items in shapes
    ]
    # As the workers of web servers are.
    apart = [
        both(
            f"batched, {n} processes of {each}",
            group,
            partial(votes, "batched", n * each, 1, n),
            before,
        )
        for n, each in ((4, 1), (4, 16))
    ]
    return together + apart


def on_redis(chosen: argparse.Namespace) -> list[Case]:
    groups = [group for group in chosen.only if group in ON_REDIS]
    if not groups:
        return []
    with ExitStack() as stack:
        server = start_redis(stack, port=free_port())
        cases = redis_cases(groups, server.port, chosen.before)
        measure(server, cases, chosen.rounds, chosen.seconds)
    return cases


def calls(tree: Path, folder: Path, seconds: float) -> dict[str, float]:
    """Calls a second by the name of the case."""
    figures = folder / "calls.json"
    words = ("--rounds", 1, "--seconds", seconds, "--json", figures)
    python_program(tree, "calls", "loadtest.micro.call_cost", *words)
    cases = json.loads(figures.read_text())["cases"]
    return {case["case"]: 1e9 / case["ns"]["median"] for case in cases}


def in_python(chosen: argparse.Namespace) -> list[Case]:
    if "calls" not in chosen.only:
        return []
    trees = [(OURS, native.ROOT), (BEFORE, chosen.before)]
    cases: dict[str, Case] = {}
    with tempfile.TemporaryDirectory(prefix="hotcount-builds-") as folder:
        for number in range(chosen.rounds):
            for contender, tree in trees if number % 2 == 0 else trees[::-1]:
                for name, rate in calls(tree, Path(folder), chosen.seconds / 10).items():
                    case = cases.setdefault(name, Case(name, "calls", []))
                    case.record(contender, Measured(0, {RATE: rate}))
            print(f"round {number + 1} of {chosen.rounds}", file=sys.stderr)
    return list(cases.values())


def on_databases(chosen: argparse.Namespace) -> list[Case]:
    made: list[Case] = []
    for group in chosen.only:
        if group in (*ON_REDIS, "calls"):
            continue
        with ExitStack() as stack:
            # SQLite's place is the load generator's own choice.
            url = None
            if group != "sqlite":
                url = url_of(start_database(group, stack, LOG_ROOM[group]))
            cases = vote_cases(group, url, chosen.before)
            # hotcount-load audits each of its runs itself.
            run_rounds(cases, chosen.rounds, chosen.seconds, lambda _case, _measured: None)
        made += cases
    return made


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = options.parser_for(
        "builds",
        "This build beside another one.",
        GROUPS,
        rounds=10,
        seconds=0.5,
        short=["--rounds", "5", "--seconds", "0.4"],
    )
    parser.add_argument("before", type=native.tree_of, help="the other work tree, built")
    return options.parse(parser, words)


def compare(chosen: argparse.Namespace) -> None:
    cases = in_python(chosen) + on_redis(chosen) + on_databases(chosen)
    summaries = [summary(case) for case in cases]
    print(
        f"This build over the one before, {chosen.rounds} alternating rounds of "
        f"{chosen.seconds:g} s on the same servers: median (min .. max); ratios are taken within "
        "rounds.\n"
    )
    print(text_table(summaries))
    slower = [
        f"{one['group']}, {one['case']}: {ratio['ratio']['median']:.2f}"
        for one in summaries
        for ratio in one["ratios"]
        if ratio["metric"] == RATE and ratio["ratio"]["median"] < 0.95
    ]
    print("\nSlower by more than 5 %: " + ("; ".join(slower) or "nothing") + ".")
    options.keep(chosen, summaries)


def main(words: list[str] | None = None) -> int:
    chosen = arguments(words)
    return options.exit_code_of(lambda: compare(chosen))


if __name__ == "__main__":
    sys.exit(main())
