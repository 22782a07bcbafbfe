"""What stream_model.py knows of the world: SQL, Redis, the processes, and what may still happen."""

from __future__ import annotations

from typing import Any, NamedTuple

SHARDS = (0, 1)
PAIRS = ((0, 0), (0, 1), (1, 0))  # The user, and the item, which is its stream's shard too.
PER_TICK = 10  # Ids of one tick of the clock.


class Op(NamedTuple):
    pair: int
    retracts: bool = False
    by_others: bool = False
    excused: bool = False


class Entry(NamedTuple):
    id: int
    op: int


class Stream(NamedTuple):
    name: int
    shard: int
    last: int
    waiting: tuple[Entry, ...] = ()
    back: bool = False  # It is of a snapshot, ...
    seen: bool = False  # ... and a worker has come by since, and since the fence was raised.


class Row(NamedTuple):
    op: int
    version: int  # 0: none.


class Sql(NamedTuple):
    streams: bool = True  # The mark: write_behind writes, or another strategy does.
    name: int = 1
    floor: int = 0
    life: int = 0
    open: bool = False
    fence: tuple[int, ...] = (0, 0)
    rows: tuple[Row | None, ...] = (None,) * len(PAIRS)


class Worker(NamedTuple):
    step: str = "idle"  # idle, looked, taken, sent, written
    shard: int = 0
    page: tuple[Entry, ...] = ()
    seen: Sql = Sql()  # When it looked.
    epoch: int = 0
    reserved: tuple[int, int, int] = (0, 0, 0)  # A name, a life, and up to which id.


class Statement(NamedTuple):
    worker: int  # -1: nobody waits for it any more.
    page: tuple[Entry, ...]
    fence: tuple[int, ...]


class Caller(NamedTuple):
    """A voter, an eraser, or one that flushes."""

    name: int = 0
    step: str = "idle"
    shard: int = 0
    kind: str = ""
    to: tuple[int, ...] = ()  # Ids, by shard: votes up to these were cast before the call.
    begun: int = 0  # Operations acknowledged before the call, ...
    deleted: int = 0  # ... and before an erasure deleted rows, and began again.
    epoch: int = 0


class Erased(NamedTuple):
    kind: str
    to: int
    begun: int
    ended: int


class World(NamedTuple):
    sql: Sql = Sql()
    streams: tuple[Stream, ...] = ()
    clock: int = 1
    epoch: int = 0  # How often Redis went back, ...
    slow: bool = False  # ... and whether its clock did.
    top: int = 0  # The highest id that was ever given.
    saved: tuple[tuple[Stream, ...], ...] = ((),)
    ops: tuple[Op, ...] = ()
    erased: tuple[Erased, ...] = ()
    flush_was_wrong: bool = False
    voters: tuple[Caller, ...] = (Caller(),)
    workers: tuple[Worker, ...] = (Worker(), Worker())
    erasers: tuple[Caller, ...] = (Caller(),)
    flushers: tuple[Caller, ...] = (Caller(),)
    wire: tuple[Statement, ...] = ()
    # What may still happen.
    pairs: tuple[int, ...] = (0,)
    casts: int = 1
    retracts: bool = False
    erasures: tuple[str, ...] = ()  # user, item, prune; others: the user, by another strategy.
    others: int = 0
    saves: int = 0
    restores: int = 0
    slow_clock: bool = False
    ticks: int = 0
    deaths: int = 0
    switches: int = 0
    flushes: int = 0
    collates: bool = False  # Items 0 and 1 are one to the database.

    def stream(self, name: int, shard: int) -> Stream | None:
        found = [s for s in self.streams if (s.name, s.shard) == (name, shard)]
        return found[0] if found else None

    def last(self, name: int, shard: int) -> int:
        stream = self.stream(name, shard)
        return stream.last if stream else 0

    def having(self, stream: Stream) -> World:
        rest = [s for s in self.streams if (s.name, s.shard) != (stream.name, stream.shard)]
        streams = tuple(sorted([*rest, stream]))
        return self._replace(streams=streams, top=max(self.top, stream.last))

    def without(self, name: int, shard: int, page: tuple[Entry, ...]) -> World:
        stream = self.stream(name, shard)
        ids = {entry.id for entry in page}
        if stream is None or not ids:
            return self
        left = tuple(entry for entry in stream.waiting if entry.id not in ids)
        return self.having(stream._replace(waiting=left))

    def of(self, kind: str, me: int, process: Caller | Worker) -> World:
        processes = list(getattr(self, kind))
        processes[me] = process
        changed: dict[str, Any] = {kind: tuple(processes)}
        return self._replace(**changed)

    def in_sql(self, **values: Any) -> World:
        return self._replace(sql=self.sql._replace(**values))

    def key(self, pair: int) -> int:
        return 0 if self.collates and pair == 1 else pair

    def covers(self, kind: str, op: Op) -> bool:
        user, item = PAIRS[self.key(op.pair)]
        return {"prune": op.retracts, "item": item == 0}.get(kind, user == 0)

    def waits(self, caller: Caller) -> bool:
        """Whether votes wait that were cast before the call."""
        streams = [s for s in self.streams if s.name == caller.name]
        return any(entry.id <= caller.to[s.shard] for s in streams for entry in s.waiting)
