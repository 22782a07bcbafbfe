"""Strategy write_behind as a model: streams, workers, snapshots, takeovers, erasures and switches.

A step is one script of Redis, or one statement or transaction of SQL. Callers keep the name of the
streams; a worker's statement is held on its way for any time, while the worker is killed and others
take its page over; Redis goes back to any snapshot that was saved, and its clock back to the start;
another strategy takes the tables over and gives them back. Operations are numbered in the order of
their acknowledgements, and a row names the one that stands. test_write_behind_model.py has the
rules of a page and of a stream's life.

Each rule of the protocol can be left out (Rules), and the checks must find the hole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.races.explorer import Findings, Model
from tests.races.stream_world import (
    PAIRS,
    PER_TICK,
    SHARDS,
    Caller,
    Entry,
    Erased,
    Op,
    Row,
    Sql,
    Statement,
    Stream,
    Worker,
    World,
)

GHOST = "an erased vote is back"
MISSING = "a vote cast after the erasure is missing"
UNDONE = "a write of another strategy is undone"
OLDER = "an older vote stands"
LOST = "an acknowledged vote is lost"
FLUSHED = "flush() reports that nothing waits, and votes wait"


@dataclass(frozen=True)
class Rules:
    mark_names_writers: bool = True  # Other strategies do not write while write_behind does.
    drains: bool = True  # The votes cast before an erasure are in SQL before it deletes.
    fence: bool = True  # An erasure raises it, ...
    fence_rises: bool = True  # ... never lowers it, ...
    fence_at_clock: bool = True  # ... and raises it at least to Redis's clock.
    fence_filters: bool = True  # Workers drop entries up to it, ...
    fence_in_statement: bool = True  # ... and write nothing if it was raised since.
    raises_last_id: bool = True  # Of a stream that a snapshot has set back behind the fence.
    fence_has_name: bool = True  # That of the streams: another name has another fence.
    erases_again: bool = True  # As long as an erasure deletes rows that are newer than its fence.
    prunes_to_fence: bool = True  # Pruning leaves newer rows.
    floor_to_fence: bool = True  # A stream that is made anew begins behind the fence.
    life_when_made: bool = True  # Of a stream; else when its maker has noted that it will be.
    reads_name: bool = True  # Once for each call; else it is remembered from the call before.
    checks_name: bool = True  # Where it is used, under the lock.
    floor_by_name: bool = True  # A worker remembers what it has reserved by name and life.
    one_stream: bool = True  # If the database takes different ids for equal.
    # What the protocol does not promise is excused.
    stray: bool = True  # Votes in a closed stream that a snapshot has revived.
    behind: bool = True  # Votes with ids that Redis gave before it and its clock went back.


OTHERS = {"others"}
Moves = Iterator[tuple[str, World]]


class StreamModel(Model[World]):
    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def moves(self, state: World, findings: Findings) -> Moves:
        del findings
        for me in range(len(state.voters)):
            yield from self.voter(state, me)
        yield from self.redis(state)
        for me in range(len(state.workers)):
            yield from self.worker(state, me)
        yield from self.arrivals(state)
        for me in range(len(state.erasers)):
            yield from self.eraser(state, me)
        yield from self.other_strategies(state)
        for me in range(len(state.flushers)):
            yield from self.flusher(state, me)

    # -- voters, and what happens to Redis --------------------------------------------------------

    def shard(self, state: World, pair: int) -> int:
        return 0 if state.collates and self.rules.one_stream else PAIRS[pair][1]

    def voter(self, state: World, me: int) -> Moves:
        voter, sql = state.voters[me], state.sql
        noted = state.in_sql(open=True, life=sql.life + 1)
        if voter.step == "noted":
            if not sql.streams or voter.name != sql.name:
                yield f"voter {me} is refused", state.of("voters", me, Caller())
            elif not sql.open:
                yield f"voter {me} notes again", noted
            else:
                begins = Stream(sql.name, voter.shard, max(sql.floor, 1))
                opened = state.having(state.stream(sql.name, voter.shard) or begins)
                if self.rules.life_when_made:
                    opened = opened.in_sql(life=sql.life + 1)
                yield f"voter {me} opens", opened.of("voters", me, Caller(voter.name))
        elif state.casts and sql.streams and voter.name != sql.name:
            yield f"voter {me} asks for the name", state.of("voters", me, Caller(sql.name))
        for pair in state.pairs if state.casts and voter.name and voter.step == "idle" else ():
            shard = self.shard(state, pair)
            stream = state.stream(voter.name, shard)
            if stream:
                yield f"voter {me} casts {pair}", self.cast(state, stream, Op(pair))
                if state.retracts:
                    yield f"voter {me} retracts {pair}", self.cast(state, stream, Op(pair, True))
            elif sql.streams:
                caller = Caller(voter.name, "noted", shard)
                yield f"voter {me} notes stream {shard}", noted.of("voters", me, caller)
            else:
                yield f"voter {me} is refused", state.of("voters", me, Caller())

    def cast(self, state: World, stream: Stream, op: Op) -> World:
        new = max(state.clock * PER_TICK, stream.last + 1)
        sql = state.sql
        stray = not (sql.streams and sql.open and stream.name == sql.name)
        # A worker that has come by has seen to it that no id is behind the fence.
        fenced = stream.seen and new <= sql.fence[stream.shard]
        behind = state.slow and stream.back and new <= state.top and not fenced
        excused = (behind and self.rules.behind) or (stray and self.rules.stray)
        waiting = (*stream.waiting, Entry(new, len(state.ops)))
        after = state.having(stream._replace(last=new, waiting=waiting))
        ops = (*state.ops, op._replace(excused=excused))
        return after._replace(ops=ops, casts=state.casts - 1)

    def redis(self, state: World) -> Moves:
        if state.ticks:
            yield "the clock ticks", state._replace(clock=state.clock + 1, ticks=state.ticks - 1)
        if state.saves and state.streams not in state.saved:
            saved = (*state.saved, state.streams)
            yield f"snapshot {len(saved) - 1}", state._replace(saved=saved, saves=state.saves - 1)
        for number, streams in enumerate(state.saved if state.restores else ()):
            if streams != state.streams:
                after = self.restored(state, streams)
                yield f"back to snapshot {number}", after
                if state.slow_clock:
                    slow = after._replace(clock=1, slow=True)
                    yield f"back to snapshot {number} with a slow clock", slow

    def restored(self, state: World, saved: tuple[Stream, ...]) -> World:
        kept = {entry for stream in saved for entry in stream.waiting}
        ops = list(state.ops)
        for entry in [entry for stream in state.streams for entry in stream.waiting]:
            row = state.sql.rows[state.key(ops[entry.op].pair)]
            if entry not in kept and (row is None or row.version < entry.id):
                ops[entry.op] = ops[entry.op]._replace(excused=True)
        return state._replace(
            streams=tuple(stream._replace(back=True, seen=False) for stream in saved),
            ops=tuple(ops),
            epoch=state.epoch + 1,
            restores=state.restores - 1,
            clock=state.clock + 2,  # It takes longer than ids are ahead of the clock.
        )

    # -- workers ----------------------------------------------------------------------------------

    def worker(self, state: World, me: int) -> Moves:
        worker, sql = state.workers[me], state.sql
        idle = state.of("workers", me, Worker(reserved=worker.reserved))
        if state.deaths and worker.step != "idle":
            wire = tuple(s._replace(worker=-1) if s.worker == me else s for s in state.wire)
            dead = state._replace(wire=wire, deaths=state.deaths - 1)
            yield f"worker {me} is killed", dead.of("workers", me, Worker())
        if worker.step == "idle" and self.has_work(state):
            looked = Worker("looked", seen=sql, reserved=worker.reserved)
            yield f"worker {me} looks", state.of("workers", me, looked)
        elif worker.step == "looked":
            taken = list(self.takes(state, me))
            yield from taken or [(f"worker {me} finds nothing", idle)]
        elif worker.step == "taken":
            yield self.sends(state, me)
        elif worker.step == "written":
            after = idle.without(worker.seen.name, worker.shard, worker.page)
            yield f"worker {me} settles", after

    def has_work(self, state: World) -> bool:
        streams = [s for s in state.streams if s.name == state.sql.name]
        back = any(self.is_back(stream, state.sql) for stream in streams)
        return state.sql.streams and (back or any(stream.waiting for stream in streams))

    def is_back(self, stream: Stream, seen: Sql) -> bool:
        return self.rules.raises_last_id and stream.last < seen.fence[stream.shard]

    def takes(self, state: World, me: int) -> Moves:
        worker = state.workers[me]
        for stream in [s for s in state.streams if s.name == worker.seen.name]:
            shard = stream.shard
            knows = stream.seen or worker.seen.fence == state.sql.fence
            if self.is_back(stream, worker.seen):
                raised = stream._replace(last=worker.seen.fence[shard], seen=knows)
                yield f"worker {me} raises stream {shard}", state.having(raised)
                continue
            # A worker keeps its page until it gives it up; Redis may have forgotten that it has it.
            held = {
                entry
                for other in state.workers
                if (other.seen.name, other.shard, other.epoch) == (stream.name, shard, state.epoch)
                for entry in other.page
            }
            free = [entry for entry in stream.waiting if entry not in held]
            for most in range(1, min(len(free), 2) + 1):
                taken = Worker("taken", shard, tuple(free[:most]), worker.seen, state.epoch)
                after = state.having(stream._replace(seen=knows))
                after = after.of("workers", me, taken._replace(reserved=worker.reserved))
                yield f"worker {me} takes {most} of {shard}", after

    def sends(self, state: World, me: int) -> tuple[str, World]:
        """It drops old entries, reserves versions, and sends its statement."""
        worker, sql = state.workers[me], state.sql
        seen, shard = worker.seen, worker.shard
        fence = seen.fence[shard] if self.rules.fence_filters else 0
        old = tuple(entry for entry in worker.page if entry.id <= fence)
        page = worker.page[len(old) :]
        after = state.without(seen.name, shard, old)
        name, life, known = worker.reserved
        ours = life == seen.life and (name == seen.name or not self.rules.floor_by_name)
        if page and not (ours and page[-1].id <= known):
            known = max(sql.floor, page[-1].id)
            if (sql.name, sql.life) != (seen.name, seen.life):
                page = ()
            else:
                after = after.in_sql(floor=known)
        if not page:
            idle = Worker(reserved=worker.reserved)
            return f"worker {me} leaves its page", after.of("workers", me, idle)
        reserved = (seen.name, seen.life, known)
        sent = worker._replace(step="sent", page=page, reserved=reserved)
        named = (seen.name if self.rules.fence_has_name else 0, *seen.fence)
        wire = (*state.wire, Statement(me, page, named))
        return f"worker {me} sends", after._replace(wire=wire).of("workers", me, sent)

    def arrivals(self, state: World) -> Moves:
        for index, statement in enumerate(state.wire):
            writes = state.sql.streams or not self.rules.mark_names_writers
            fence = (state.sql.name if self.rules.fence_has_name else 0, *state.sql.fence)
            writes = writes and (statement.fence == fence or not self.rules.fence_in_statement)
            rows = list(state.sql.rows)
            for entry in statement.page if writes else ():
                key = state.key(state.ops[entry.op].pair)
                there = rows[key]
                if there is None or there.version < entry.id:
                    rows[key] = Row(entry.op, entry.id)
            after = state.in_sql(rows=tuple(rows))
            after = after._replace(wire=state.wire[:index] + state.wire[index + 1 :])
            me = statement.worker
            if me >= 0:
                worker = state.workers[me]
                told = worker._replace(step="written")
                left = Worker(reserved=worker.reserved)
                after = after.of("workers", me, told if writes else left)
            whose = f"worker {me}'s" if me >= 0 else "a killed worker's"
            yield f"{whose} page is {'written' if writes else 'refused'}", after

    # -- erasures, other strategies and switches --------------------------------------------------

    def eraser(self, state: World, me: int) -> Moves:
        eraser, sql, rules = state.erasers[me], state.sql, self.rules
        ours = sql.streams or not rules.mark_names_writers
        done = state.of("erasers", me, Caller(eraser.name))
        part = Erased(eraser.kind, 0, -1, eraser.deleted)
        refused = done._replace(erased=(*state.erased, part)) if eraser.deleted else done
        if eraser.step in ("idle", "again"):
            kinds = [eraser.kind] if eraser.step == "again" else sorted({*state.erasures} - OTHERS)
            for kind in kinds if sql.streams else ():
                begun = eraser.begun if eraser.step == "again" else len(state.ops)
                asked = state if eraser.step == "again" else self.asked(state, kind)
                name = sql.name if rules.reads_name or not eraser.name else eraser.name
                after, to = self.looks(asked, name, kind)
                looked = Caller(name, "looked", 0, kind, to, begun, deleted=eraser.deleted)
                yield f"eraser {me} begins: {kind}", after.of("erasers", me, looked)
            if eraser.step == "again" and not sql.streams:
                yield f"eraser {me} is refused", refused
        elif not ours or (eraser.name != sql.name and rules.checks_name):
            yield f"eraser {me} is refused", refused
        elif eraser.step == "raised":
            deleted, newer = self.deleted(done, eraser)
            if newer and rules.erases_again:
                again = eraser._replace(step="again", deleted=len(state.ops))
                deleted = deleted._replace(erased=state.erased).of("erasers", me, again)
            yield f"eraser {me} deletes", deleted
        elif not (rules.drains and state.waits(eraser)):
            least = sql.fence if rules.fence_rises else (0, 0)
            fence = tuple(map(max, eraser.to, least)) if rules.fence else sql.fence
            unseen = tuple(stream._replace(seen=False) for stream in state.streams)
            after = state.in_sql(fence=fence)._replace(streams=unseen)
            raised = eraser._replace(step="raised")
            yield f"eraser {me} raises the fence", after.of("erasers", me, raised)

    @staticmethod
    def asked(state: World, kind: str) -> World:
        left = list(state.erasures)
        left.remove(kind)
        return state._replace(erasures=tuple(left))

    def looks(self, state: World, name: int, kind: str) -> tuple[World, tuple[int, ...]]:
        """One transaction, with its scripts of Redis: nobody makes a stream meanwhile."""
        to = [0, 0]
        for shard in (0,) if kind == "item" else SHARDS:
            to[shard] = state.last(name, shard)
            if self.rules.fence_at_clock:
                to[shard] = max(to[shard], (state.clock + 1) * PER_TICK)
            stream = state.stream(name, shard)
            if stream:
                state = state.having(stream._replace(last=to[shard]))
        if self.rules.floor_to_fence:
            state = state.in_sql(floor=max(state.sql.floor, *to))
        return state._replace(top=max(state.top, *to)), tuple(to)

    def deleted(self, state: World, eraser: Caller) -> tuple[World, bool]:
        """Whether a row was newer than the fence, too."""
        rows, newer = list(state.sql.rows), False
        for key, row in enumerate(rows):
            if row is None or not state.covers(eraser.kind, state.ops[row.op]):
                continue
            is_newer = row.version > eraser.to[self.shard(state, state.ops[row.op].pair)]
            if eraser.kind != "prune":
                rows[key] = None
                newer |= is_newer
            elif not (is_newer and self.rules.prunes_to_fence):
                # As good as none, and it says that the vote is retracted.
                rows[key] = row._replace(version=0)
        after = state.in_sql(rows=tuple(rows))
        erased = Erased(eraser.kind, max(eraser.to), eraser.begun, len(state.ops))
        if eraser.kind != "prune":
            after = after._replace(erased=(*state.erased, erased))
        return after, newer

    def other_strategies(self, state: World) -> Moves:
        sql = state.sql
        after = state._replace(switches=state.switches - 1)
        if state.switches and not sql.open and sql.streams:
            yield "another strategy takes over", after.in_sql(streams=False)
        if state.switches and not sql.streams:
            floor = max([row.version for row in sql.rows if row] + [0])
            new = Sql(True, sql.name + 1, floor, rows=sql.rows)
            yield "write_behind takes over", after._replace(sql=new)
        if sql.streams and self.rules.mark_names_writers:
            return
        for pair in state.pairs if state.others else ():
            rows = list(sql.rows)
            there = rows[state.key(pair)]
            rows[state.key(pair)] = Row(len(state.ops), there.version if there else 0)
            after = state.in_sql(rows=tuple(rows))
            ops = (*state.ops, Op(pair, by_others=True))
            after = after._replace(ops=ops, others=state.others - 1)
            yield f"another strategy casts {pair}", after
        if "others" in state.erasures:
            now = Caller(kind="others", to=(0, 0), begun=len(state.ops))
            yield "another strategy erases", self.deleted(self.asked(state, "others"), now)[0]

    def flusher(self, state: World, me: int) -> Moves:
        flusher, sql = state.flushers[me], state.sql
        done = state.of("flushers", me, Caller(flusher.name))
        if flusher.step == "idle":
            if state.flushes and sql.streams and sql.open:
                name = sql.name if self.rules.reads_name or not flusher.name else flusher.name
                to = tuple(state.last(name, shard) for shard in SHARDS)
                begun = Caller(name, "begun", to=to, begun=len(state.ops), epoch=state.epoch)
                after = state._replace(flushes=state.flushes - 1)
                yield f"flush {me} begins", after.of("flushers", me, begun)
        elif not sql.streams or (flusher.name != sql.name and self.rules.checks_name):
            yield f"flush {me} is refused", done
        elif not state.waits(flusher):
            if any(s.waiting for s in state.streams if s.name == flusher.name):
                yield f"flush {me} reports later votes", done
                return
            left = tuple(s for s in state.streams if s.name != flusher.name)
            after = done.in_sql(open=False)._replace(streams=left)
            waiting = [entry.op for s in left if s.name == sql.name for entry in s.waiting]
            wrong = flusher.epoch == state.epoch and min(waiting, default=99) < flusher.begun
            yield f"flush {me} closes", after._replace(flush_was_wrong=wrong)

    # -- what is wrong ----------------------------------------------------------------------------

    def faults(self, state: World) -> Iterator[str]:
        if state.flush_was_wrong:
            yield FLUSHED
        for row in filter(None, state.sql.rows):
            op = state.ops[row.op]
            for erased in state.erased:
                # Redis had lost the vote, and its clock did not know of it any more.
                unknown = op.excused and state.slow and row.version > erased.to
                if row.op < erased.begun and state.covers(erased.kind, op) and not unknown:
                    yield GHOST
        if self.may_end(state):
            for key, found in enumerate(state.sql.rows):
                yield from self.faults_of_row(state, key, found)

    def faults_of_row(self, state: World, key: int, row: Row | None) -> Iterator[str]:
        ops = [n for n, op in enumerate(state.ops) if state.key(op.pair) == key]
        last = max((n for n in ops if not state.ops[n].excused), default=-1)
        if last < 0 or (row and row.op >= last):
            return
        op = state.ops[last]
        over = [each for each in state.erased if state.covers(each.kind, op)]
        if any(each.begun < 0 and last < each.ended for each in over):
            return  # The call has failed when it had deleted a part.
        over = [each for each in over if each.begun >= 0]
        erased = any(last < each.ended for each in over)
        if op.retracts and (row is None or state.ops[row.op].retracts):
            return
        if row or not erased:
            of_others = UNDONE if op.by_others else OLDER if row else LOST
            yield MISSING if over and not erased else of_others

    def may_end(self, state: World) -> bool:
        """Whether nothing is under way, and no worker has anything to do."""
        busy = any(worker.step != "idle" for worker in state.workers)
        busy = busy or any(eraser.step != "idle" for eraser in state.erasers)
        return not (busy or state.wire or self.has_work(state))
