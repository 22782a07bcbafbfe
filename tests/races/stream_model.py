"""Strategy write_behind as a model: streams, workers, snapshots, takeovers, erasures and switches.

A step is one script of Redis, or one statement or transaction of SQL. Callers keep the name of the
streams; a worker's statement is held on its way for any time, while the worker is killed and others
take its page over, and so is the script of a voter that opens a stream or of a flush that closes
one. Redis goes back to any snapshot that was saved, and its clock back to the start; another
strategy takes the tables over and gives them back. Operations are numbered in the order of their
acknowledgements, and a row names the one that stands. test_write_behind_model.py has the rules of a
page and of a stream's life.

Each rule of the protocol can be left out (Rules), and the checks must find the hole.
"""

from collections.abc import Iterator

from tests.races.explorer import Findings
from tests.races.stream_rules import (
    FLUSHED,
    GHOST,
    KEPT,
    LOST,
    MISSING,
    OLDER,
    UNDONE,
    WAITS,
    Rules,
)
from tests.races.stream_workers import Moves, Workers, marks
from tests.races.stream_world import (
    PAIRS,
    PER_TICK,
    SHARDS,
    Caller,
    Entry,
    Erased,
    Op,
    Row,
    Script,
    Sql,
    Stream,
    World,
)

OTHERS = {"others"}


class StreamModel(Workers):
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
                if sql.life < state.lives:
                    yield f"voter {me} notes again", noted
            else:
                script = Script("opens", sql.name, voter.shard, sql.life, sql.floor)
                opened = state.opened(script, anew=True)
                if self.rules.life_when_made:
                    opened = opened.in_sql(life=sql.life + 1)
                yield f"voter {me} opens", opened.of("voters", me, Caller(voter.name))
                if state.late_scripts:
                    late = state._replace(scripts=(*state.scripts, script))
                    late = late._replace(late_scripts=state.late_scripts - 1)
                    yield f"voter {me} is killed as it opens", late.of("voters", me, Caller())
        elif state.casts and sql.streams and voter.name != sql.name:
            yield f"voter {me} asks for the name", state.of("voters", me, Caller(sql.name))
        for pair in state.pairs if state.casts and voter.name and voter.step == "idle" else ():
            shard = self.shard(state, pair)
            stream = state.stream(voter.name, shard)
            if stream:
                yield f"voter {me} casts {pair}", self.cast(state, stream, Op(pair))
                if state.retracts:
                    yield f"voter {me} retracts {pair}", self.cast(state, stream, Op(pair, True))
                if state.bad:
                    after = state._replace(bad=state.bad - 1)
                    yield (
                        f"voter {me} casts {pair} badly",
                        self.cast(after, stream, Op(pair, bad=True)),
                    )
            elif not sql.streams:
                yield f"voter {me} is refused", state.of("voters", me, Caller())
            elif sql.life < state.lives:
                caller = Caller(voter.name, "noted", shard)
                yield f"voter {me} notes stream {shard}", noted.of("voters", me, caller)

    def cast(self, state: World, stream: Stream, op: Op) -> World:
        new = max(state.clock * PER_TICK, stream.last + 1)
        sql = state.sql
        stray = not (sql.streams and sql.open and stream.name == sql.name)
        stray = stray and stream.back and not stream.seen
        # A worker has mended the stream: no id may be behind the fence.
        fenced = stream.seen and new <= sql.fence[stream.shard]
        behind = state.slow and stream.back and new <= state.top and not (fenced or stream.anew)
        excused = (behind and self.rules.behind) or (stray and self.rules.stray)
        waiting = (*stream.waiting, Entry(new, len(state.ops)))
        after = state.having(stream._replace(last=new, top=new, waiting=waiting))
        ops = (*state.ops, op._replace(excused=excused))
        return after._replace(ops=ops, casts=state.casts - 1)

    def redis(self, state: World) -> Moves:
        if state.ticks:
            yield "the clock ticks", state._replace(clock=state.clock + 1, ticks=state.ticks - 1)
        if state.back_ticks and state.clock > 1:
            # Streams of an old copy have a clock behind their ids then, as if it had come back so.
            after = state._replace(clock=1, back_ticks=state.back_ticks - 1)
            yield "the clock is set back", after._replace(slow=state.slow or state.epoch > 0)
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
        kept = {(entry.id, entry.op) for stream in saved for entry in stream.waiting}
        ops = list(state.ops)
        for entry in [entry for stream in state.streams for entry in stream.waiting]:
            row = state.sql.rows[state.key(ops[entry.op].pair)]
            if (entry.id, entry.op) not in kept and (row is None or row.version < entry.id):
                ops[entry.op] = ops[entry.op]._replace(excused=True)
        return state._replace(
            streams=tuple(stream._replace(back=True, seen=False, anew=False) for stream in saved),
            ops=tuple(ops),
            epoch=state.epoch + 1,
            restores=state.restores - 1,
            clock=state.clock + (2 if self.rules.restarts_late else 0),
        )

    # -- erasures, other strategies and switches --------------------------------------------------

    def eraser(self, state: World, me: int) -> Moves:
        eraser, sql, rules = state.erasers[me], state.sql, self.rules
        ours = sql.streams or not rules.mark_names_writers
        done = state.of("erasers", me, Caller(eraser.name))
        part = Erased(eraser.kind, (0, 0), 0, -1, eraser.deleted)
        refused = done._replace(erased=(*state.erased, part)) if eraser.deleted else done
        if eraser.step in ("idle", "again"):
            again = eraser.step == "again"
            kinds = [eraser.kind] if again else sorted({*state.erasures} - OTHERS)
            for kind in kinds if sql.streams else ():
                begun = eraser.begun if again else len(state.ops)
                name = sql.name if rules.reads_name or not eraser.name else eraser.name
                looked = Caller(name, "looked", 0, kind, (), begun, eraser.deleted)
                after = state if again else self.asked(state, kind)
                looked = looked._replace(seen=marks(sql), epoch=state.epoch)
                after = after.of("erasers", me, looked)
                yield f"eraser {me} looks: {kind}", after
            if again and not sql.streams:
                yield f"eraser {me} is refused", refused
        elif eraser.step == "looked" and self.is_late(state, eraser):
            late = eraser._replace(step="again")
            yield f"eraser {me} looks again", state.of("erasers", me, late)
        elif eraser.step == "looked":
            after, to = self.advanced(state, eraser)
            missing = tuple(n for n in SHARDS if to[n] and not state.stream(eraser.name, n))
            for shard in missing if rules.keeps_least else ():
                after = after.from_least(eraser.name, shard, to[shard])
            advanced = eraser._replace(step="advanced", to=to, missing=missing)
            yield f"eraser {me} moves ids to {to}", after.of("erasers", me, advanced)
        elif not ours or (eraser.name != sql.name and rules.checks_name):
            yield f"eraser {me} is refused", refused
        elif eraser.step == "raised":
            deleted, newer = self.deleted(done, eraser)
            if newer and eraser.kind == "row" and rules.erases_again:
                rest = eraser._replace(step="again", deleted=len(state.ops))
                deleted = deleted._replace(erased=state.erased).of("erasers", me, rest)
            yield f"eraser {me} deletes", deleted
        elif not (rules.drains and state.waits(eraser)):
            low = eraser.missing if rules.fence_to_floor_of_now else ()
            low = tuple(n for n in low if eraser.to[n] < sql.floor)
            made = any(state.stream(eraser.name, n) for n in low)
            if made or (rules.life_before_fence and sql.life != eraser.seen.life):
                anew = eraser._replace(step="again")
                yield f"eraser {me} begins again", state.of("erasers", me, anew)
                return
            least = sql.fence if rules.fence_rises else (0, 0)
            to = tuple(sql.floor if n in low else each for n, each in enumerate(eraser.to))
            fence = tuple(map(max, to, least)) if rules.fence else sql.fence
            unseen = tuple(stream._replace(seen=False) for stream in state.streams)
            floor = max(sql.floor, *to) if rules.floor_to_fence else sql.floor
            after = state.in_sql(fence=fence, floor=floor)._replace(streams=unseen)
            seen = eraser.seen if rules.late_pages else marks(sql)
            for shard in low if rules.keeps_least else ():
                after = after.from_least(eraser.name, shard, to[shard])
            raised = eraser._replace(step="raised", to=to, seen=seen)
            yield f"eraser {me} raises the fence", after.of("erasers", me, raised)

    def is_late(self, state: World, eraser: Caller) -> bool:
        """Whether Redis went back since the eraser looked, with a clock behind its ids."""
        back = eraser.epoch != state.epoch and state.clock * PER_TICK <= state.top
        return back and self.rules.moves_at_once

    @staticmethod
    def asked(state: World, kind: str) -> World:
        left = list(state.erasures)
        left.remove(kind)
        return state._replace(erasures=tuple(left))

    def advanced(self, state: World, eraser: Caller) -> tuple[World, tuple[int, ...]]:
        rules, seen, to = self.rules, eraser.seen, [0, 0]
        for shard in (0,) if eraser.kind in ("item", "row") else SHARDS:
            record = state.record(eraser.name, shard)
            beyond = max(
                record.last if record.there else 0,
                seen.floor if rules.fence_to_floor else 0,
                seen.fence[shard] if rules.fence_beyond else 0,
            )
            now = state.clock * PER_TICK if rules.fence_at_clock else 0
            to[shard] = max(beyond + 1, now if record.there else now - 1)
            if record.there:
                state = state.having(record._replace(last=to[shard]))
        return state._replace(top=max(state.top, *to)), tuple(to)

    def deleted(self, state: World, eraser: Caller) -> tuple[World, bool]:
        """Deletes the rows; also returns whether one of them was newer than the fence."""
        rows, newer = list(state.sql.rows), False
        keeps = eraser.kind in ("user", "item") and self.rules.erases_to_fence
        for key, row in enumerate(rows):
            if row is None or not state.covers(eraser.kind, state.ops[row.op]):
                continue
            is_newer = row.version > eraser.to[self.shard(state, state.ops[row.op].pair)]
            if eraser.kind != "prune" and not (is_newer and keeps):
                rows[key] = None
                newer |= is_newer
            elif eraser.kind == "prune" and not (is_newer and self.rules.prunes_to_fence):
                # Version 0 stands for no row; the checks still see that the vote is retracted.
                rows[key] = row._replace(version=0)
        after = state.in_sql(rows=tuple(rows))
        if eraser.kind == "user" and self.rules.forgets_refused:
            after = self.forgotten(after, eraser.name)
        if eraser.kind != "prune":
            known = eraser.seen.floor
            erased = Erased(eraser.kind, eraser.to, known, eraser.begun, len(state.ops))
            after = after._replace(erased=(*state.erased, erased))
        return after, newer

    @staticmethod
    def forgotten(state: World, name: int) -> World:
        for record in state.streams:
            if record.name < name:
                gone = record._replace(there=False, last=0, top=0, waiting=(), refused=())
                state = state.having(gone)
            elif record.name == name:
                of_others = [r for r in record.refused if not state.covers("user", state.ops[r.op])]
                state = state.having(record._replace(refused=tuple(of_others)))
        return state

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
            if any(stream.waiting for stream in state.there(flusher.name)):
                yield f"flush {me} reports later votes", done
                return
            after = done.in_sql(open=False)
            for shard in SHARDS:
                after = self.closed(after, flusher.name, shard, sql.life)
            left = after.there(sql.name)
            waiting = [entry.op for stream in left for entry in stream.waiting]
            wrong = flusher.epoch == state.epoch and min(waiting, default=99) < flusher.begun
            yield f"flush {me} closes", after._replace(flush_was_wrong=wrong)
            for shard in SHARDS if state.late_scripts else ():
                script = Script("closes", flusher.name, shard, sql.life)
                late = done._replace(scripts=(*state.scripts, script))
                late = late._replace(late_scripts=state.late_scripts - 1)
                yield f"flush {me} is killed as it closes {shard}", late

    # -- what is wrong ----------------------------------------------------------------------------

    def faults(self, state: World) -> Iterator[str]:
        if state.flush_was_wrong:
            yield FLUSHED
        for row in filter(None, state.sql.rows):
            op = state.ops[row.op]
            for erased in state.erased:
                # Redis had lost the vote, and neither its clock nor a worker knew of its id.
                known = max(erased.to[self.shard(state, op.pair)], erased.known)
                unknown = op.excused and state.slow and row.version > known
                if row.op < erased.begun and state.covers(erased.kind, op) and not unknown:
                    yield GHOST
        if self.may_end(state):
            if any(stream.waiting for stream in state.there(state.sql.name)) and state.sql.streams:
                yield WAITS
                return
            for erased in state.erased if state.sql.streams else ():
                users = [each.op for record in state.streams for each in record.refused]
                of_user = [op for op in users if state.covers("user", state.ops[op])]
                if erased.kind == "user" and min(of_user, default=99) < erased.begun:
                    yield KEPT
            for key, found in enumerate(state.sql.rows):
                yield from self.faults_of_row(state, key, found)

    def faults_of_row(self, state: World, key: int, row: Row | None) -> Iterator[str]:
        ops = [n for n, op in enumerate(state.ops) if state.key(op.pair) == key and not op.bad]
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
        return not (busy or state.wire or state.scripts or self.has_work(state))
