"""Votes from processes, as the workers of web servers are: few callers in each, many of them.

The cases of sql_votes.py whose names say "C++" or "gunicorn" and how many processes of
how many callers; "hot" is one item, "Zipf" 10,000 of them. Contenders, on each database:

    hotcount         strategy batched
    naive, slotted   hotcount's other strategies
    votes alone      the same vote rows inserted and nothing else, by hotcount's connections, and
                     its group commit if a process has several callers; an autocommit statement a
                     batch: the ceiling

Every load has empty tables of its own, and is audited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from loadtest.peers import native
from loadtest.peers.http_votes import http_votes
from loadtest.peers.private_servers import Server
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
WORKERS = (4, 12)


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
    strategy: str,
    shape: Shape,
    options: tuple[str, ...],
    seconds: float,
    seed: int,
) -> Measured:
    program = native.ROOT / "build" / "release" / native.VOTES_PROGRAM
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


def cpp_cases(group: str, server: Server) -> list[Case]:
    def load(name: str, strategy: str, shape: Shape) -> Load:
        return Load(name, partial(cpp_voters, server, strategy, shape, ()))

    made = []
    for shape in SHAPES:
        loads = [load(OURS, "batched", shape), load("naive", "naive", shape)]
        loads.append(load("slotted", "slotted", shape))
        if not shape.reads:
            loads.append(load(ALONE, "alone", shape))
        made.append(Case(f"C++ {shape.name}", group, loads))
    return made


def held_case(group: str, server: Server, held_s: float) -> Case:
    """The rate of voters on 99 items while another connection locks the hundredth.

    Votes for the locked item do not wait, in either kind of load; they have to land afterwards.
    """
    shape = Shape(4, 16, HELD_OF)

    def load(name: str, strategy: str, option: str) -> Load:
        def run(_seconds: float, seed: int) -> Measured:
            return cpp_voters(server, strategy, shape, (option,), held_s, seed)

        return Load(name, run)

    loads = [load(OURS, "batched", "--hold"), load("nothing held", "batched", "--aside")]
    for name in ("naive", "slotted"):
        loads.append(load(f"{name} held", name, "--hold"))
        loads.append(load(f"{name} nothing held", name, "--aside"))
    return Case(f"C++ 4 x 16 with 1 of {HELD_OF} items held for {held_s:g} s", group, loads)


# -- gunicorn --------------------------------------------------------------------


def http_cases(group: str, server: Server) -> list[Case]:
    def load(name: str, way: str, workers: int) -> Load:
        def run(seconds: float, seed: int) -> Measured:
            with empty_place(server) as url:
                return http_votes(url, way, workers, seconds, seed)

        return Load(name, run)

    made = []
    for workers in WORKERS:
        loads = [
            load(OURS, "batched", workers),
            load("Django-style", DJANGO, workers),
            load("slotted", "slotted", workers),
        ]
        made.append(Case(f"gunicorn {workers} sync workers hot", group, loads))
    return made


def process_cases(group: str, server: Server, held_s: float) -> list[Case]:
    return [
        *cpp_cases(group, server),
        held_case(group, server, held_s),
        *http_cases(group, server),
    ]
