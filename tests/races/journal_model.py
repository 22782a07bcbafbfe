"""The votes' journal as a model: whose steps there are, and what must hold between them.

journal_world.py says what a statement sees and what it waits for. An actor takes one step of its
program at a time; test_journal_model.py explores every order of the steps.
"""

from collections.abc import Callable, Iterator

from tests.races import explorer
from tests.races.explorer import Findings
from tests.races.journal_movers import (
    dump_reader,
    eraser,
    holder,
    locking_cells_reader,
    locking_reader,
    reconciler,
    remover,
    switcher,
    updating_reader,
)
from tests.races.journal_voters import (
    filler,
    flusher,
    folder,
    naive_voter,
    short_voter,
    slotted_voter,
    voter,
)
from tests.races.journal_world import (
    FOLD,
    Design,
    Waits,
    World,
    at_rest,
    cells_of,
    counted_of,
    died,
    found,
    truth_of,
    votes_of,
)

Steps = Callable[[Design, World, int], Iterator[World]]

PROGRAMS: dict[str, Steps] = {
    "voter": voter,
    "short_voter": short_voter,
    "slotted_voter": slotted_voter,
    "naive_voter": naive_voter,
    "folder": folder,
    "flusher": flusher,
    "filler": filler,
    "reconciler": reconciler,
    "switcher": switcher,
    "remover": remover,
    "eraser": eraser,
    "holder": holder,
    "locking_reader": locking_reader,
    "locking_cells_reader": locking_cells_reader,
    "updating_reader": updating_reader,
    "dump_reader": dump_reader,
}


# -- what must hold ---------------------------------------------------------------------


def faults(design: Design, world: World) -> Iterator[str]:
    """Of a world between two steps: what every snapshot would show."""
    tables = world.tables
    for item, count in enumerate(tables.items):
        if count is None:
            if counted_of(tables, item) or votes_of(tables, item):
                yield "an item that is gone is counted"
            continue
        truth = truth_of(tables, item)
        if tables.mark == "item":
            if truth != count:
                yield "vote_count is not the votes"
            continue
        if truth - counted_of(tables, item) not in design.drifts:
            yield "cells and journal are not the votes"
        owed = any(row.item == item for row in tables.journal)
        if not owed and not design.lags and count != cells_of(tables, item):
            yield "vote_count is behind, and no fold will come back"
        copy, cell = world.copies[item], found(tables.cells, (item, FOLD))
        if copy is not None and copy.ver > (cell.ver if cell else 0):
            yield "a copy is newer than SQL"
    for actor in world.actors:
        if actor.memo and actor.memo[0] == "misread":
            yield "a reader counts what never was"
        if actor.memo and actor.memo[0] == "flushed":
            _, item, owed = actor.memo
            count = tables.items[item]
            if count is not None and count < owed:
                yield "vote_count is behind what was flushed"


def faults_between(before: World, after: World) -> Iterator[str]:
    for old, new in zip(before.copies, after.copies):
        if old is not None and new is not None and new.n < old.n:
            yield "a count in the cache falls back"


# -- every order ------------------------------------------------------------------------


def moves(design: Design, world: World, findings: Findings) -> Iterator[tuple[str, World]]:
    for me, actor in enumerate(world.actors):
        if at_rest(actor):
            continue
        try:
            for after in PROGRAMS[actor.kind](design, world, me):
                yield f"{actor.kind} {me} {actor.step}", after
        except Waits as waits:
            for other in waits.holders:
                findings.waits.add((actor.kind, world.actors[other].kind))
        if world.deaths and actor.step != "rest":
            yield f"{actor.kind} {me} dies", died(world, me)


class Journal(explorer.Model[World]):
    def __init__(self, design: Design) -> None:
        self.design = design

    def moves(self, state: World, findings: Findings) -> Iterator[tuple[str, World]]:
        return moves(self.design, state, findings)

    def faults(self, state: World) -> Iterator[str]:
        return faults(self.design, state)

    def faults_between(self, before: World, after: World) -> Iterator[str]:
        return faults_between(before, after)

    def may_end(self, state: World) -> bool:
        return all(at_rest(actor) for actor in state.actors)
