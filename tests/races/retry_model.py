"""A model of the retry queue: one key, the adds of one process, and what is on its way to Redis.

A step is a call, a message that arrives, an answer that arrives or is lost, a deadline that
passes, the end of the key's life, a tick of the server's clock, or the death of the process and the
start of the next one, which has the journal and makes no adds of its own. The clocks of the
processes stand still beside the server's: no add looks old to them. The second process has a
max_age of its own, a tick shorter. Each rule of the queue can be left out (Rules), and the checks
must find what goes wrong then.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.races.explorer import Findings, Model

UNDER_WAY = -1  # Instead of the life that a message belongs to: it counts in the one that stands.


@dataclass(frozen=True)
class Rules:
    numbers: bool = True  # Redis remembers the last number.
    windows: bool = True  # An add belongs to the life that stood when it was accepted.
    one_at_a_time: bool = True  # Nothing overtakes an add of the same key.
    by_number: bool = True  # The journal is read by numbers, not in its own order.
    journal: bool = True
    kept_for_the_add: bool = True  # A number, for the max_age of the queue that took the add.
    server_clock: bool = True  # An add is too old when the server's clock says so.


# What catches an exception and does it all again later: the volatile queue of description 4.
CATCHING = Rules(numbers=False, windows=False, one_at_a_time=False, journal=False)


@dataclass(frozen=True)
class Message:
    add: int
    life: int
    since: int = 0  # From when its max_age runs, by the server's clock.


# In ticks, as the first, the second and the third process have it.
MAX_AGE = (2, 1, 2)


@dataclass(frozen=True)
class World:
    adds: int
    lives: int
    deaths: int
    ticks: int = 0
    begun: int = 0
    under_way: tuple[int, ...] = ()  # Sent, and their callers wait.
    replayed: int | None = None  # Of the queue, sent.
    wire: tuple[Message, ...] = ()
    queue: tuple[Message, ...] = ()
    file: tuple[Message, ...] = ()
    last: int = 0
    life: int = 0
    queued: tuple[Message, ...] = ()  # What callers were told that waits.
    numbers: tuple[int, ...] = ()  # Adds whose callers were told a number.
    counted: tuple[Message, ...] = ()  # In which life each was counted.
    expired: frozenset[int] = frozenset()
    died: int = 0
    clock: int = 0
    since: tuple[int, ...] = ()  # Of each add that has begun, as the process knows it.
    sent: frozenset[int] = frozenset()  # As the process knows.
    known_until: int = 0


def without(items: tuple[Message, ...], add: int) -> tuple[Message, ...]:
    return tuple(item for item in items if item.add != add)


class RetryQueueModel(Model[World]):
    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def moves(self, state: World, findings: Findings) -> Iterator[tuple[str, World]]:
        ended = [message.add for message in state.counted]
        ended += state.expired.difference(ended)
        if len(ended) > state.adds:
            return  # A hole has been found; beyond it there is no end.
        yield from self.calls(state)
        yield from self.deadlines(state)
        yield from self.replays(state)
        for index, message in enumerate(state.wire):
            rest = state.wire[:index] + state.wire[index + 1 :]
            yield from self.arrives(replace(state, wire=rest), message)
        if state.life + 1 < state.lives:
            yield "the key expires", replace(state, life=state.life + 1)
        if state.clock < state.ticks:
            yield "the server's clock ticks", replace(state, clock=state.clock + 1)
        if state.deaths:
            yield from self.dies(state)

    def calls(self, state: World) -> Iterator[tuple[str, World]]:
        if state.died or state.begun == state.adds:
            return
        add = state.begun + 1
        begun = replace(state, begun=add, since=(*state.since, state.clock))
        if self.rules.one_at_a_time and (state.queue or state.under_way):
            # Behind those; its deadline may pass before theirs.
            yield f"add {add} is queued", self.enqueue(begun, add)
            if state.queue:
                return
        if not (self.rules.one_at_a_time and state.under_way):
            wire = (*state.wire, Message(add, UNDER_WAY, state.clock))
            under_way = (*state.under_way, add)
            sent = replace(begun, under_way=under_way, wire=wire, sent=state.sent | {add})
            yield f"add {add} is sent", sent

    def enqueue(self, state: World, add: int) -> World:
        waits = Message(add, state.life, state.since[add - 1])
        queue = (*state.queue, waits)
        if self.rules.one_at_a_time:
            queue = tuple(sorted(queue, key=lambda item: item.add))
        file = (*state.file, waits) if self.rules.journal else ()
        return replace(state, queue=queue, file=file, queued=(*state.queued, waits))

    def deadlines(self, state: World) -> Iterator[tuple[str, World]]:
        for add in state.under_way:
            rest = tuple(other for other in state.under_way if other != add)
            after = self.enqueue(replace(state, under_way=rest), add)
            if self.rules.windows:  # What arrives after the deadline does nothing.
                wire = tuple(m for m in after.wire if (m.add, m.life) != (add, UNDER_WAY))
                after = replace(after, wire=wire)
            yield f"add {add} has no answer and is queued", after
        if state.replayed is not None:
            yield "the replay has no answer", replace(state, replayed=None)

    def replays(self, state: World) -> Iterator[tuple[str, World]]:
        if state.replayed is not None or not state.queue:
            return
        first = state.queue[0]
        if self.rules.one_at_a_time and any(add < first.add for add in state.under_way):
            return
        since = state.since
        if first.add not in state.sent:  # It cannot have been counted before.
            since = (*since[: first.add - 1], state.clock, *since[first.add :])
        life = first.life if self.rules.windows else UNDER_WAY
        again = Message(first.add, life, since[first.add - 1])
        if state.wire.count(again) > 1:
            return  # The bounds: beside one that comes late.
        sent = state.sent | {first.add}
        wire = (*state.wire, again)
        yield (
            f"add {first.add} is sent again",
            replace(state, replayed=first.add, wire=wire, since=since, sent=sent),
        )

    def arrives(self, state: World, message: Message) -> Iterator[tuple[str, World]]:
        add = message.add
        yield f"add {add} never arrives", state
        last = state.last if state.clock <= state.known_until else 0
        counts = not self.rules.numbers or add > last
        old = self.rules.server_clock and state.clock > message.since + MAX_AGE[0]
        if counts and old and message.life == UNDER_WAY and add in state.under_way:
            return  # Nothing is done, and it is sent again.
        after = state
        if counts:
            age = MAX_AGE[0] if self.rules.kept_for_the_add else MAX_AGE[state.died]
            until = max(state.clock, message.since) + age
            after = replace(after, last=max(add, last), known_until=until)
            if old:
                after = replace(after, expired=after.expired | {add})
            elif message.life in (UNDER_WAY, state.life):
                after = replace(after, counted=(*after.counted, Message(add, state.life)))
            else:
                after = replace(after, expired=after.expired | {add})
        yield f"add {add} arrives, its answer is lost", after
        if add in after.under_way and counts:
            rest = tuple(other for other in after.under_way if other != add)
            told = replace(after, under_way=rest, numbers=(*after.numbers, add))
            yield f"add {add} arrives and is answered", told
        elif add == after.replayed:
            told = replace(after, replayed=None, queue=without(after.queue, add))
            yield f"add {add} arrives and is known", told  # The file does not know yet.
            settled = replace(told, file=without(told.file, add))
            yield f"add {add} arrives and is settled", settled

    def dies(self, state: World) -> Iterator[tuple[str, World]]:
        found = state.file
        since = list(state.since)
        for item in found:
            since[item.add - 1] = item.since
        if self.rules.by_number:
            found = tuple(sorted(found, key=lambda item: item.add))
        yield (
            "the process dies",
            replace(
                state,
                died=state.died + 1,
                deaths=state.deaths - 1,
                under_way=(),
                replayed=None,
                queue=found,
                since=tuple(since),
                sent=frozenset(item.add for item in found),
            ),
        )

    def faults(self, state: World) -> Iterator[str]:
        counted = [message.add for message in state.counted]
        if len(set(counted)) < len(counted):
            yield "counted twice"
        waited = {message.add: message.life for message in state.queued}
        for message in state.counted:
            if waited.get(message.add, message.life) < message.life:
                yield "counted in a later life"
        if state.queue or state.wire or state.under_way:
            return
        for add in [*waited, *state.numbers]:
            if add not in counted and add not in state.expired:
                yield "lost"

    def may_end(self, state: World) -> bool:
        return not state.queue and not state.under_way
