"""The state of stream_model.py: SQL, Redis, the processes, and the events that may still happen."""

from __future__ import annotations

from typing import Any, NamedTuple

SHARDS = (0, 1)
PAIRS = ((0, 0), (0, 1), (1, 0))  # The user, and the item, which is its stream's shard too.
PER_TICK = 10  # Ids of one tick of the clock.


class Op(NamedTuple):
    pair: int
    retracts: bool = False
    by_others: bool = False
    bad: bool = False  # SQL refuses it.
    excused: bool = False


class Entry(NamedTuple):
    id: int
    op: int
    taken: int = 0  # When it was delivered, by the clock of Redis; 0: it was not.


class Refused(NamedTuple):
    id: int
    op: int
    vote: int  # The id that the vote had.


class Stream(NamedTuple):
    """A shard in Redis: the stream, its refused votes, and the bounds for making it again."""

    name: int
    shard: int
    last: int
    waiting: tuple[Entry, ...] = ()
    back: bool = False  # It is of a snapshot, ...
    seen: bool = False  # ... and a worker has mended it since, and since the fence was raised.
    anew: bool = False  # It was made since Redis went back, behind the floor.
    there: bool = True
    top: int = 0  # The highest id that a vote had.
    closed: int = 0  # It is made again only in a later life, ...
    least: int = 0  # ... and only with later ids.
    refused: tuple[Refused, ...] = ()


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
    step: str = "idle"  # idle, looked, taken, sent, written, mends
    shard: int = 0
    page: tuple[Entry, ...] = ()
    seen: Sql = Sql()  # When it looked.
    epoch: int = 0
    reserved: tuple[int, int, int] = (0, 0, 0)  # A name, a life, and the highest reserved id.


class Statement(NamedTuple):
    """A worker's write of a page, on its way to SQL."""

    worker: int  # -1: its worker was killed.
    page: tuple[Entry, ...]
    fence: tuple[int, ...]


class Script(NamedTuple):
    """A script of a killed process, on its way to Redis."""

    what: str  # opens, closes
    name: int
    shard: int
    life: int
    begin: int = 0


class Caller(NamedTuple):
    """A voter, an eraser or a flusher."""

    name: int = 0
    step: str = "idle"
    shard: int = 0
    kind: str = ""
    to: tuple[int, ...] = ()  # Ids, by shard: votes up to these were cast before the call.
    begun: int = 0  # Operations acknowledged before the call, ...
    deleted: int = 0  # ... and before an erasure deleted rows, and began again.
    epoch: int = 0
    seen: Sql = Sql()  # When an eraser looked.
    missing: tuple[int, ...] = ()  # Shards without a stream, when it moved the ids.


class Erased(NamedTuple):
    kind: str
    to: tuple[int, ...]
    known: int  # The highest id that workers knew of.
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
    scripts: tuple[Script, ...] = ()
    # The events that may still happen.
    pairs: tuple[int, ...] = (0,)
    casts: int = 1
    bad: int = 0  # Votes that SQL refuses, of the casts.
    retracts: bool = False
    erasures: tuple[str, ...] = ()  # user, item, row, prune; others: the user, by another strategy.
    others: int = 0
    saves: int = 0
    restores: int = 0
    slow_clock: bool = False
    ticks: int = 0
    back_ticks: int = 0  # How often the clock of a Redis that keeps its data is set back.
    deaths: int = 0  # Of workers, ...
    late_scripts: int = 0  # ... and of voters and flushers.
    switches: int = 0
    flushes: int = 0
    lives: int = 3  # In later ones voters make no stream.
    collates: bool = False  # Items 0 and 1 are one to the database.

    def record(self, name: int, shard: int) -> Stream:
        """The record of a stream, which need not exist."""
        found = [s for s in self.streams if (s.name, s.shard) == (name, shard)]
        return found[0] if found else Stream(name, shard, 0, there=False)

    def stream(self, name: int, shard: int) -> Stream | None:
        found = self.record(name, shard)
        return found if found.there else None

    def there(self, name: int) -> list[Stream]:
        return [s for s in self.streams if s.name == name and s.there]

    def last(self, name: int, shard: int) -> int:
        stream = self.stream(name, shard)
        return stream.last if stream else 0

    def having(self, stream: Stream) -> World:
        rest = [s for s in self.streams if (s.name, s.shard) != (stream.name, stream.shard)]
        if stream.there or stream.closed or stream.least or stream.refused:
            rest.append(stream)
        return self._replace(streams=tuple(sorted(rest)), top=max(self.top, stream.last))

    def opened(self, script: Script, *, anew: bool = False) -> World:
        """Opens the stream, unless it was closed in this life or a later one."""
        record = self.record(script.name, script.shard)
        if record.there or record.closed >= script.life:
            return self
        last = max(script.begin, 1, record.least)
        begun = record._replace(last=last, back=self.epoch > 0, seen=False, anew=anew, there=True)
        return self.having(begun._replace(top=0))

    def closed(self, name: int, shard: int, life: int) -> World:
        """Closes the stream, unless votes wait in it."""
        record = self.record(name, shard)
        if record.waiting:
            return self
        gone = Stream(name, shard, 0, there=False, closed=life, least=record.least)
        return self.having(gone._replace(refused=record.refused))

    def from_least(self, name: int, shard: int, least: int) -> World:
        record = self.record(name, shard)
        return self.having(record._replace(least=max(record.least, least)))

    def without(self, name: int, shard: int, ids: set[int]) -> World:
        stream = self.stream(name, shard)
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
        by_kind = {"prune": op.retracts, "item": item == 0, "row": item == 0}
        return by_kind.get(kind, user == 0)

    def waits(self, caller: Caller) -> bool:
        """Whether votes wait that were cast before the call."""
        streams = self.there(caller.name)
        return any(entry.id <= caller.to[s.shard] for s in streams for entry in s.waiting)
