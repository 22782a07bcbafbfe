"""Votes from processes, as the workers of web servers are: few callers in each, many of them.

The cases of sql_votes.py whose names say "C++", "Python" or "gunicorn" and how many processes of
how many callers; "hot" is one item, "Zipf" 10,000 of them. Contenders, on each database:

    hotcount         strategy batched
    naive, slotted   hotcount's other strategies
    votes alone      the same vote rows inserted and nothing else. C++: by hotcount's connections,
                     and its group commit if a process has several callers; an autocommit
                     statement a batch: the ceiling. Python: by psycopg or PyMySQL, one autocommit
                     INSERT a vote, so not if processes have several callers: those clients cost
                     more than hotcount's, and it is no ceiling
    pgbench alone    the same by PostgreSQL's own client, a connection for each process, as many
                     votes a statement as the process has callers, all of them there at once
    before           batched, and slotted, of the other work tree that --before names

Every load has empty tables of its own, and is audited.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Union

import hotcount

from loadtest.peers import native
from loadtest.peers.http_votes import http_votes
from loadtest.peers.rounds import (
    HELD_WORST,
    OURS,
    P99,
    RATE,
    READS_P99,
    Case,
    Failed,
    Load,
    Measured,
)
from loadtest.peers.vote_app import DJANGO
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer

Server = Union[PostgresServer, MariaDbServer]

BEFORE = "before"
ALONE = "votes alone"
ZIPF_ITEMS = 10_000
READS = 0.15
HELD_OF = 100


@dataclass(frozen=True)
class Shape:
    processes: int
    callers: int
    items: int = 1
    reads: float = 0.0

    @property
    def name(self) -> str:
        items = "hot" if self.items == 1 else "Zipf"
        reads = f" with {self.reads:.0%} reads" if self.reads else ""
        return f"{self.processes} x {self.callers} {items}{reads}"


HOT_4, HOT_12, HOT_64 = Shape(4, 1), Shape(12, 1), Shape(4, 16)
ZIPF_12, ZIPF_64 = Shape(12, 1, ZIPF_ITEMS), Shape(4, 16, ZIPF_ITEMS)
ZIPF_ONE = Shape(1, 64, ZIPF_ITEMS)
HOT_READS, ZIPF_READS = Shape(4, 16, 1, READS), Shape(4, 16, ZIPF_ITEMS, READS)
SHAPES = (HOT_4, HOT_12, HOT_64, ZIPF_12, ZIPF_64, ZIPF_ONE, HOT_READS, ZIPF_READS)
IN_PYTHON = (HOT_4, HOT_12, HOT_64, ZIPF_12, ZIPF_64, HOT_READS)
WORKERS = (4, 12)

# What is to be reached in C++, by shape and contender: batched's rate over the contender's.
TARGETS = {
    "postgres": {
        HOT_4: {"naive": 2.5},
        HOT_12: {"naive": 5.0, "slotted": 0.85, ALONE: 0.7},
        HOT_64: {BEFORE: 3.0},
        ZIPF_64: {BEFORE: 2.5},
        ZIPF_ONE: {BEFORE: 2.5, ALONE: 0.65},
        HOT_READS: {BEFORE: 1.0},
        ZIPF_READS: {BEFORE: 1.0},
    },
    "mariadb": {
        HOT_12: {"naive": 2.0, f"{BEFORE} slotted": 1.0},
        ZIPF_64: {BEFORE: 2.3},
        HOT_READS: {BEFORE: 1.0},
        ZIPF_READS: {BEFORE: 1.0},
    },
}
# What the callers of the other items are to keep while one of them is held.
KEPT = {"postgres": 0.6, "mariadb": 0.9}


@contextmanager
def empty_place(server: Server) -> Iterator[str]:
    """The URL of an empty database or schema, which is dropped afterwards."""
    if isinstance(server, MariaDbServer):
        name = server.create_database()
        try:
            yield server.url(name)
        finally:
            server.leave_database(name)
            server.execute(f"DROP DATABASE {name}")
        return
    place = server.create_database()
    try:
        yield place.url
    finally:
        server.psql(f'SET client_min_messages = error; DROP SCHEMA "{place.schema}" CASCADE')


# -- C++ -----------------------------------------------------------------------


def cpp_voters(
    server: Server,
    tree: Path,
    strategy: str,
    shape: Shape,
    options: tuple[str, ...],
    seconds: float,
    seed: int,
) -> Measured:
    program = tree / "build" / "release" / native.VOTES_PROGRAM
    with empty_place(server) as url:
        command = [
            *(str(program), "--db", url, "--strategy", strategy, "--seed", str(seed + 1)),
            *("--processes", str(shape.processes), "--callers", str(shape.callers)),
            *("--items", str(shape.items), "--reads", str(shape.reads)),
            *("--seconds", str(seconds), *options),
        ]
        line = json.loads(native.run(command))
    if not line["votes"]:
        raise Failed(f"{strategy}: no vote was answered within {seconds} s")
    figures = {RATE: line["votes"] / line["seconds"], P99: line["vote_us"]["p99"]}
    if shape.reads:
        figures[READS_P99] = line["read_us"]["p99"]
    if "--hold" in options:
        aside = line["aside"]
        if not aside["sent"] or aside["landed"] != aside["sent"]:
            raise Failed(f"{strategy}: of the held item's votes landed {aside}")
        figures[HELD_WORST] = aside["worst_us"]
    return Measured(0, figures)


def cpp_cases(group: str, server: Server, before: Path | None) -> list[Case]:
    def load(
        name: str,
        strategy: str,
        shape: Shape,
        tree: Path = native.ROOT,
        options: tuple[str, ...] = (),
    ) -> Load:
        return Load(name, partial(cpp_voters, server, tree, strategy, shape, options))

    made = []
    for shape in SHAPES:
        loads = [load(OURS, "batched", shape), load("naive", "naive", shape)]
        loads.append(load("slotted", "slotted", shape))
        if not shape.reads:
            loads.append(load(ALONE, "alone", shape))
            if isinstance(server, PostgresServer):
                loads.append(Load("pgbench alone", partial(pgbench_alone, server, shape)))
        if before:
            loads.append(load(BEFORE, "batched", shape, before))
            loads.append(load(f"{BEFORE} slotted", "slotted", shape, before))
        case = Case(f"C++ {shape.name}", group, loads)
        wanted = TARGETS["postgres" if group.startswith("postgres") else "mariadb"].get(shape, {})
        names = {one.contender for one in loads}
        case.targets = {(peer, RATE): least for peer, least in wanted.items() if peer in names}
        if shape.reads and before:
            case.targets[BEFORE, READS_P99] = 1.0
        made.append(case)
    return made


def held_case(group: str, server: Server, before: Path | None, held_s: float) -> Case:
    """What the voters of 99 items keep while the hundredth is held by another connection.

    The votes for that one do not wait, in either kind of load; they have to land afterwards.
    """
    shape = Shape(4, 16, HELD_OF)

    def load(name: str, strategy: str, tree: Path, option: str) -> Load:
        def run(_seconds: float, seed: int) -> Measured:
            return cpp_voters(server, tree, strategy, shape, (option,), held_s, seed)

        return Load(name, run)

    loads = [
        load(OURS, "batched", native.ROOT, "--hold"),
        load("nothing held", "batched", native.ROOT, "--aside"),
    ]
    others = [(name, name, native.ROOT) for name in ("naive", "slotted")]
    if before:
        others.append((BEFORE, "batched", before))
    for name, strategy, tree in others:
        loads.append(load(f"{name} held", strategy, tree, "--hold"))
        loads.append(load(f"{name} nothing held", strategy, tree, "--aside"))
    case = Case(f"C++ 4 x 16 with 1 of {HELD_OF} items held for {held_s:g} s", group, loads)
    case.targets["nothing held", RATE] = KEPT[
        "postgres" if group.startswith("postgres") else "mariadb"
    ]
    return case


# -- pgbench ---------------------------------------------------------------------

# Uniform in the logarithm, which is Zipf's law with exponent 1.
ZIPF_ITEM = f"CAST(floor(exp(random() * ln({ZIPF_ITEMS + 1}))) AS bigint)"
ONE_ROW = "INSERT INTO vote (item_id, user_id, val, prev, version) "


def pgbench_alone(server: PostgresServer, shape: Shape, seconds: float, seed: int) -> Measured:
    item = "1" if shape.items == 1 else ZIPF_ITEM
    rows = f"SELECT {item}, CAST(random() * 9e15 AS bigint), 1, 0, NULL"
    if shape.callers > 1:
        rows += f" FROM generate_series(1, {shape.callers})"
    with empty_place(server) as url, tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        with hotcount.Votes(url, strategy="naive") as votes:
            votes.create_tables()
            votes.add_items(range(1, shape.items + 1))
        script.write(f"{ONE_ROW}{rows};\n")
        script.flush()
        printed = native.run(
            [
                *(str(server.programs / "pgbench"), "-n", "-M", "prepared"),
                *("-c", str(shape.processes), "-j", str(min(2, shape.processes))),
                *("-T", str(max(1, round(seconds))), "--random-seed", str(seed)),
                *("-f", script.name, url),
            ]
        )
    return Measured(0, {RATE: shape.callers * transactions_per_s(printed)})


def transactions_per_s(printed: str) -> float:
    found = re.search(r"tps = ([0-9.]+)", printed)
    if found is None or "failed transactions: 0 (" not in printed:
        raise Failed(f"pgbench said: {printed}")
    return float(found[1])


# -- Python ----------------------------------------------------------------------


def python_voters(
    server: Server, tree: Path, strategy: str, shape: Shape, seconds: float, _seed: int
) -> Measured:
    with empty_place(server) as url:
        return python_votes(
            tree / ".venv/bin/python",
            [url, strategy, "threads", shape.callers, shape.processes, seconds],
            ["--items", shape.items, "--reads", shape.reads],
        )


def python_votes(python: Path, words: list[object], options: list[object]) -> Measured:
    """Runs python_votes.py of this tree with the hotcount of that interpreter."""
    command = [str(python), "-m", "loadtest.peers.python_votes", *map(str, words + options)]
    line = json.loads(native.run(command))
    if not line["right"]:
        raise Failed(f"Python, {words[1]}: the counts are not what was acknowledged")
    figures = {RATE: line["votes"] / line["seconds"], P99: line["p99_us"]}
    if line["reads"]:
        figures[READS_P99] = line["read_p99_us"]
    return Measured(0, figures)


def python_cases(group: str, server: Server, before: Path | None) -> list[Case]:
    def load(name: str, strategy: str, shape: Shape, tree: Path = native.ROOT) -> Load:
        return Load(name, partial(python_voters, server, tree, strategy, shape))

    made = []
    for shape in IN_PYTHON:
        loads = [load(OURS, "batched", shape), load("naive", "naive", shape)]
        loads.append(load("slotted", "slotted", shape))
        if shape.callers == 1 and not shape.reads:
            loads.append(load(ALONE, "alone", shape))
        if before:
            loads.append(load(BEFORE, "batched", shape, before))
            loads.append(load(f"{BEFORE} slotted", "slotted", shape, before))
        made.append(Case(f"Python {shape.name}", group, loads))
    return made


# -- gunicorn --------------------------------------------------------------------


def http_cases(group: str, server: Server, before: Path | None) -> list[Case]:
    def load(name: str, way: str, workers: int, tree: Path = native.ROOT) -> Load:
        def run(seconds: float, seed: int) -> Measured:
            with empty_place(server) as url:
                return http_votes(url, way, workers, tree / ".venv/bin/python", seconds, seed)

        return Load(name, run)

    made = []
    for workers in WORKERS:
        loads = [
            load(OURS, "batched", workers),
            load("Django-style", DJANGO, workers),
            load("slotted", "slotted", workers),
        ]
        if before:
            loads.append(load(BEFORE, "batched", workers, before))
        made.append(Case(f"gunicorn {workers} sync workers hot", group, loads))
    return made


def process_cases(group: str, server: Server, before: Path | None, held_s: float) -> list[Case]:
    return [
        *cpp_cases(group, server, before),
        held_case(group, server, before, held_s),
        *python_cases(group, server, before),
        *http_cases(group, server, before),
    ]
