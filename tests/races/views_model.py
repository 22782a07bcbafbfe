"""A model of WriteBehindCounter: one key, its cells, and everybody who moves them.

Processes add and send what they have counted; messages are lost, doubled and late; Redis forgets
all; workers bring cells to SQL and take them out of Redis; ids are renewed; rows of old ids go.
A Variant leaves out one rule of the protocol: tests/races/test_views_model.py finds what it breaks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.races.explorer import Findings, Model

TOO_HIGH = "counted more than was added"
LOST = "an add of a process that lives is lost"
READ_TOO_HIGH = "a read says more than was added"


@dataclass(frozen=True)
class Variant:
    fork_keeps_id: bool = False
    drop_keeps_id: bool = False
    retire_forgets: bool = False  # The row of a cell goes when the cell is taken out of Redis.
    purge_accepts: bool = False  # A cell whose row is gone is counted as a new one.
    retire_blindly: bool = False  # Takes out what has grown since it was read.
    deltas: bool = (
        False  # A batch and its number, which Redis remembers; not what was counted so far.
    )
    never_sent_again: bool = False
    split_apply: bool = False  # The row and the total in two transactions.


RIGHT = Variant()


@dataclass(frozen=True)
class Process:
    writer: int
    counted: int = 0
    sent_with: int = -1  # The epoch of Redis under which `cached` was acknowledged.
    cached: int = 0
    applied: int = 0
    adds: int = 0  # Still to be made.
    lives: bool = True


@dataclass(frozen=True)
class Worker:
    step: str = "idle"
    writer: int = 0
    counted: int = 0


@dataclass(frozen=True)
class World:
    processes: tuple[Process, ...]
    workers: tuple[Worker, ...]
    messages: frozenset[tuple[int, int, int, int]] = frozenset()  # process, writer, counted, epoch
    redis: tuple[tuple[int, int], ...] = ()
    epoch: int = 0
    rows: tuple[tuple[int, int], ...] = ()
    total: int = 0
    forgotten: int = 0  # Rows of writers below are gone.
    next_writer: int = 100
    made: int = 0
    with_the_dead: int = 0
    doubles: int = 1
    losses: int = 1
    flushes: int = 1
    forks: int = 1
    drops: int = 1
    deaths: int = 0
    purges: int = 1


def start(adds: tuple[int, ...] = (2, 1), workers: int = 2, **budgets: Any) -> World:
    return World(
        processes=tuple(Process(writer=i + 1, adds=n) for i, n in enumerate(adds)),
        workers=(Worker(),) * workers,
        **budgets,
    )


def raised(pairs: tuple[tuple[int, int], ...], key: int, to: int) -> tuple[tuple[int, int], ...]:
    known = dict(pairs)
    known[key] = max(known.get(key, 0), to)
    return tuple(sorted(known.items()))


def without(pairs: tuple[tuple[int, int], ...], key: int) -> tuple[tuple[int, int], ...]:
    return tuple(pair for pair in pairs if pair[0] != key)


class Views(Model[World]):
    def __init__(self, variant: Variant = RIGHT) -> None:
        self.variant = variant

    # -- steps ------------------------------------------------------------------------------------

    def moves(self, state: World, findings: Findings) -> Iterator[tuple[str, World]]:
        for index, process in enumerate(state.processes):
            if process.lives:
                yield from self.of_process(state, index, process)
        yield from self.of_messages(state)
        for index, worker in enumerate(state.workers):
            yield from self.of_worker(state, index, worker)
        if state.flushes:
            kept = () if self.variant.deltas else state.rows
            yield (
                "Redis forgets",
                replace(
                    state, redis=(), rows=kept, epoch=state.epoch + 1, flushes=state.flushes - 1
                ),
            )
        yield from self.of_purge(state)

    def of_process(self, state: World, index: int, process: Process) -> Iterator[tuple[str, World]]:
        def after(own: Process, **others: Any) -> World:
            processes = (*state.processes[:index], own, *state.processes[index + 1 :])
            return replace(state, processes=processes, **others)

        name = f"p{index}"
        if process.adds:
            own = replace(process, counted=process.counted + 1, adds=process.adds - 1)
            yield f"{name} adds", after(own, made=state.made + 1)
        if process.sent_with != state.epoch and not (
            self.variant.never_sent_again and process.sent_with >= 0
        ):
            # What was acknowledged before is not known to be there any more.
            yield f"{name} looks", after(replace(process, sent_with=state.epoch, cached=0))
        safe = max(process.cached, process.applied)
        message = (index, process.writer, process.counted, process.sent_with)
        if process.counted > safe and process.sent_with >= 0 and message not in state.messages:
            yield f"{name} sends", after(process, messages=state.messages | {message})
        # Beyond what it has counted: its id is another's too.
        row = min(dict(state.rows).get(process.writer, 0), process.counted)
        if row > process.applied:
            yield f"{name} asks SQL", after(replace(process, applied=row))
        done = process.counted and process.applied == process.counted
        if done and state.drops:
            writer = process.writer if self.variant.drop_keeps_id else state.next_writer
            own = replace(process, writer=writer, counted=0, cached=0, applied=0)
            # It will count again, if only to need a cell.
            own = replace(own, adds=own.adds + 1)
            yield (
                f"{name} drops its cell",
                after(own, next_writer=state.next_writer + 1, drops=state.drops - 1),
            )
        if state.forks and process.counted:
            child = Process(writer=state.next_writer, adds=1)
            if self.variant.fork_keeps_id:
                child = replace(process, adds=1)
            yield (
                f"{name} forks",
                replace(
                    state,
                    processes=(*state.processes, child),
                    next_writer=state.next_writer + 1,
                    forks=state.forks - 1,
                ),
            )
        if state.deaths:
            risk = process.counted - row
            yield (
                f"{name} dies",
                after(
                    replace(process, lives=False, adds=0),
                    deaths=state.deaths - 1,
                    with_the_dead=state.with_the_dead + risk,
                ),
            )

    def of_messages(self, state: World) -> Iterator[tuple[str, World]]:
        for message in sorted(state.messages):
            index, writer, counted, epoch = message
            left = state.messages - {message}
            if state.losses:
                yield "a message is lost", replace(state, messages=left, losses=state.losses - 1)
            arrived = replace(state, redis=raised(state.redis, writer, counted))
            if self.variant.deltas and counted <= dict(state.rows).get(writer, 0):
                arrived = state  # Its number is known.
            if state.doubles:
                yield "a message comes, and once more", replace(arrived, doubles=state.doubles - 1)
            process = state.processes[index]
            if process.writer == writer and process.sent_with == epoch:
                process = replace(process, cached=max(process.cached, counted))
            processes = (*state.processes[:index], process, *state.processes[index + 1 :])
            yield "a message is answered", replace(arrived, messages=left, processes=processes)

    def of_worker(self, state: World, index: int, worker: Worker) -> Iterator[tuple[str, World]]:
        def after(own: Worker, **others: Any) -> World:
            workers = (*state.workers[:index], own, *state.workers[index + 1 :])
            return replace(state, workers=workers, **others)

        name = f"w{index}"
        rows = dict(state.rows)
        if worker.step == "idle":
            for writer, counted in state.redis:
                if self.accepts(state, writer):
                    yield f"{name} reads", after(Worker("read", writer, counted))
            return
        yield f"{name} dies", after(Worker())
        writer, counted = worker.writer, worker.counted
        if worker.step == "read":
            if not self.accepts(state, writer):
                yield f"{name} is refused", after(Worker())
                return
            more = max(0, counted - rows.get(writer, 0))
            raised_rows = raised(state.rows, writer, counted)
            if self.variant.split_apply:
                own = Worker("add", writer, counted)
                # What it adds stands in the rows that it has read.
                yield (
                    f"{name} adds to the total",
                    replace(after(replace(own, step="raise")), total=state.total + more),
                )
            else:
                own = Worker("retire", writer, counted)
                yield f"{name} applies", after(own, rows=raised_rows, total=state.total + more)
        elif worker.step == "raise":
            own = Worker("retire", writer, counted)
            yield f"{name} raises the row", after(own, rows=raised(state.rows, writer, counted))
        else:
            others: dict[str, Any] = {}
            known = dict(state.redis).get(writer)
            if known == counted or (self.variant.retire_blindly and known is not None):
                others["redis"] = without(state.redis, writer)
                if self.variant.retire_forgets:
                    others["rows"] = without(state.rows, writer)
            yield f"{name} retires", after(Worker(), **others)

    def accepts(self, state: World, writer: int) -> bool:
        return writer >= state.forgotten or self.variant.purge_accepts

    def of_purge(self, state: World) -> Iterator[tuple[str, World]]:
        """After a round that left nothing; ids that are in use are young enough."""
        if not state.purges or state.redis or any(each.step != "idle" for each in state.workers):
            return
        young = min((each.writer for each in state.processes if each.lives), default=10_000)
        rows = tuple(pair for pair in state.rows if pair[0] >= young)
        yield (
            "rows of old writers go",
            replace(state, rows=rows, forgotten=young, purges=state.purges - 1),
        )

    # -- what must hold ---------------------------------------------------------------------------

    def faults(self, state: World) -> Iterator[str]:
        if state.total > state.made:
            yield TOO_HIGH
        rows = dict(state.rows)
        read = state.total + sum(
            max(0, counted - rows.get(writer, 0))
            for writer, counted in state.redis
            if writer >= state.forgotten
        )
        if read > state.made:
            yield READ_TOO_HIGH
        if self.is_quiet(state) and state.total < state.made - state.with_the_dead:
            yield LOST

    def is_quiet(self, state: World) -> bool:
        """Nobody who lives has anything left to say."""
        return (
            not state.messages
            and all(each.step == "idle" for each in state.workers)
            and not any(self.accepts(state, writer) for writer, _ in state.redis)
            and all(
                not each.adds
                and (each.sent_with == state.epoch or self.variant.never_sent_again)
                and each.counted <= max(each.cached, each.applied)
                for each in state.processes
                if each.lives
            )
        )

    def may_end(self, state: World) -> bool:
        return self.is_quiet(state)
