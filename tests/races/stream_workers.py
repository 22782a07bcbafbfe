"""Workers of stream_model.py, and the writes on their way to SQL and Redis."""

from collections.abc import Iterator

from tests.races.explorer import Model
from tests.races.stream_rules import Rules
from tests.races.stream_world import (
    PER_TICK,
    Entry,
    Refused,
    Row,
    Sql,
    Statement,
    Stream,
    Worker,
    World,
)

Moves = Iterator[tuple[str, World]]


def marks(sql: Sql) -> Sql:
    return sql._replace(rows=Sql().rows)


class Workers(Model[World]):
    rules: Rules

    def worker(self, state: World, me: int) -> Moves:
        worker, sql = state.workers[me], state.sql
        idle = state.of("workers", me, Worker(reserved=worker.reserved))
        if state.deaths and worker.step != "idle":
            wire = tuple(s._replace(worker=-1) if s.worker == me else s for s in state.wire)
            dead = state._replace(wire=wire, deaths=state.deaths - 1)
            yield f"worker {me} is killed", dead.of("workers", me, Worker())
        if worker.step == "idle" and self.has_work(state):
            looked = Worker("looked", seen=marks(sql), reserved=worker.reserved)
            yield f"worker {me} looks", state.of("workers", me, looked)
        elif worker.step == "looked":
            found = [*self.takes(state, me), *self.mends(state, me, idle)]
            yield from found or [(f"worker {me} finds nothing", idle)]
        elif worker.step == "taken":
            yield self.sends(state, me)
        elif worker.step == "written":
            yield f"worker {me} settles", self.settles(idle, worker)
        elif worker.step == "mends":
            yield f"worker {me} raises stream {worker.shard}", self.raised(idle, worker)

    def has_work(self, state: World) -> bool:
        there = state.there(state.sql.name)
        works = any(
            self.is_back(stream, state.sql) or self.may_take(stream, state) for stream in there
        )
        works = works or self.is_unnoted(state) or self.cleaned(state, state.sql) != state
        return state.sql.streams and works

    def is_back(self, stream: Stream, seen: Sql) -> bool:
        unseen = self.rules.raises_last_id or not stream.seen
        return unseen and stream.last < seen.fence[stream.shard]

    def may_take(self, stream: Stream, state: World) -> bool:
        """Whether workers may take over the entries of dead ones."""
        in_time = [entry for entry in stream.waiting if entry.taken <= state.clock]
        return bool(stream.waiting if self.rules.takes_over_ahead else in_time)

    def takes(self, state: World, me: int) -> Moves:
        worker = state.workers[me]
        for stream in state.there(worker.seen.name):
            shard = stream.shard
            # A worker keeps its page until it gives it up; Redis may have forgotten that it has it.
            held = {
                entry.id
                for other in state.workers
                if (other.seen.name, other.shard, other.epoch) == (stream.name, shard, state.epoch)
                for entry in other.page
            }
            free = [entry for entry in stream.waiting if entry.id not in held]
            pending = [entry.taken for entry in stream.waiting if entry.taken]
            if not free and pending and pending[0] > state.clock and self.rules.takes_over_ahead:
                free = list(stream.waiting)  # Those of live workers, too.
            if not self.rules.takes_over_ahead:
                free = [entry for entry in free if entry.taken <= state.clock]
            for most in range(1, min(len(free), 2) + 1):
                page = tuple(entry._replace(taken=0) for entry in free[:most])
                ids = {entry.id for entry in page}
                now = [e._replace(taken=state.clock) if e.id in ids else e for e in stream.waiting]
                taken = Worker("taken", shard, page, worker.seen, state.epoch, worker.reserved)
                after = state.having(stream._replace(waiting=tuple(now)))
                yield f"worker {me} takes {most} of {shard}", after.of("workers", me, taken)

    def mends(self, state: World, me: int, idle: World) -> Moves:
        """The end of a round, which repairs an old copy of the data in Redis."""
        worker = state.workers[me]
        back = [s for s in state.there(worker.seen.name) if self.is_back(s, worker.seen)]
        for stream in back:
            found = worker._replace(step="mends", shard=stream.shard)
            yield f"worker {me} finds that {stream.shard} is old", state.of("workers", me, found)
        cleaned = self.cleaned(idle, worker.seen)
        if cleaned != idle:
            yield f"worker {me} cleans", cleaned
        known = state.sql.streams and state.sql.name == worker.seen.name
        if known and not back and self.is_unnoted(state):
            seen = state.sql.fence == worker.seen.fence
            streams = tuple(
                s._replace(seen=s.seen or seen) if s.name == state.sql.name else s
                for s in state.streams
            )
            after = idle._replace(streams=streams)
            if self.rules.reopens:
                after = after.in_sql(open=True, life=state.sql.life + 2)
            yield f"worker {me} notes streams that came back", after

    def is_unnoted(self, state: World) -> bool:
        there = state.there(state.sql.name)
        missed = self.rules.reopens or not all(stream.seen for stream in there)
        return bool(there) and not state.sql.open and missed

    def cleaned(self, state: World, seen: Sql) -> World:
        for record in state.streams:
            if record.name < seen.name and self.rules.drops_former:
                gone = record._replace(there=False, last=0, top=0, waiting=(), refused=())
                state = state.having(gone)
            elif record.name == seen.name and self.rules.trims_refused:
                fence = seen.fence[record.shard]
                left = tuple(
                    each
                    for each in record.refused
                    if (each.vote > fence if self.rules.trims_by_vote else each.id >= fence)
                )
                state = state.having(record._replace(refused=left))
        return state

    def raised(self, state: World, worker: Worker) -> World:
        stream, seen = state.stream(worker.seen.name, worker.shard), worker.seen
        if stream is None:
            return state
        to = max(seen.fence[worker.shard], seen.floor)
        if self.rules.last_id_rises:
            to = max(state.clock * PER_TICK, to + 1, stream.last + 1)
        elif to < stream.top:
            return state
        last = to if self.rules.raises_last_id else stream.last
        knows = state.sql.fence == seen.fence
        return state.having(stream._replace(last=last, seen=knows))

    def sends(self, state: World, me: int) -> tuple[str, World]:
        """The worker drops old entries, reserves versions, and sends its statement."""
        worker, sql = state.workers[me], state.sql
        seen, shard = worker.seen, worker.shard
        fence = seen.fence[shard] if self.rules.fence_filters else 0
        old = {entry.id for entry in worker.page if entry.id <= fence}
        page = worker.page[len(old) :]
        after = state.without(seen.name, shard, old)
        name, life, known = worker.reserved
        ours = life == seen.life and (name == seen.name or not self.rules.floor_by_name)
        if page and not (ours and page[-1].id <= known):
            ahead = (min(page[-1].id // PER_TICK, state.clock) + 1) * PER_TICK
            known = sql.floor if sql.floor >= page[-1].id else max(page[-1].id, ahead)
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

    @staticmethod
    def lasts(state: World, page: tuple[Entry, ...]) -> dict[int, Entry]:
        """The last vote of each user for each item, which alone is written."""
        return {state.ops[entry.op].pair: entry for entry in page}

    def settles(self, state: World, worker: Worker) -> World:
        lasts = self.lasts(state, worker.page)
        bad = {pair for pair, entry in lasts.items() if state.ops[entry.op].bad}
        settled = set()
        for entry in worker.page:
            pair = state.ops[entry.op].pair
            if entry == lasts[pair] or pair not in bad or not self.rules.keeps_older:
                settled.add(entry.id)
        record = state.record(worker.seen.name, worker.shard)
        waiting = {entry.id for entry in record.waiting}
        for pair in bad:
            entry = lasts[pair]
            if entry.id in waiting:  # Else another worker has set it aside.
                last = record.refused[-1].id if record.refused else 0
                new = Refused(max(state.clock * PER_TICK, last + 1), entry.op, entry.id)
                record = record._replace(refused=(*record.refused, new))
        return state.having(record).without(worker.seen.name, worker.shard, settled)

    def closed(self, state: World, name: int, shard: int, life: int) -> World:
        before = state.record(name, shard).closed if self.rules.closed_rises else 0
        return state.closed(name, shard, max(life, before))

    def arrivals(self, state: World) -> Moves:
        for index, script in enumerate(state.scripts):
            after = state._replace(scripts=state.scripts[:index] + state.scripts[index + 1 :])
            if script.what == "opens":
                allowed = script.life if self.rules.refuses_closed_life else 99
                after = after.opened(script._replace(life=allowed))
            else:
                after = self.closed(after, script.name, script.shard, script.life)
            yield f"a script of a killed process {script.what} {script.shard}", after
        for index, statement in enumerate(state.wire):
            writes = state.sql.streams or not self.rules.mark_names_writers
            fence = (state.sql.name if self.rules.fence_has_name else 0, *state.sql.fence)
            writes = writes and (statement.fence == fence or not self.rules.fence_in_statement)
            rows = list(state.sql.rows)
            for entry in self.lasts(state, statement.page).values() if writes else ():
                key = state.key(state.ops[entry.op].pair)
                there = rows[key]
                newer = there is None or there.version < entry.id
                if newer and not state.ops[entry.op].bad:
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
