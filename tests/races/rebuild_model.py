"""The rebuild of a sorted set beside upserts, removes, expiry, deaths and a second builder.

A step is one script, or one command of the ways that are wrong. Writers write the source of the
data first, then the set; a builder takes the lease, reads the source, adds a chunk for each member,
and publishes. What is asked of every state, and of the end, is in `faults`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.races.explorer import Findings, Model

MEMBERS = ("x", "y")


class Fact(NamedTuple):
    """What somebody knows of a member. Without a value it is removed; version 0 is none."""

    value: int | None = None
    version: int = 0


class Live(NamedTuple):
    members: frozenset[tuple[str, int]]
    ttl: bool = True
    whole: bool = True


class Note(NamedTuple):
    """Of a member, in the build's hash."""

    version: int = 0
    mark: str = ""  # "~": written meanwhile with a version, "!": without one.


class Actor(NamedTuple):
    kind: str  # "writer" or "builder"
    name: str
    writes: tuple[tuple[str, Fact], ...] = ()
    at: int = 0
    read: tuple[Fact, ...] = ()
    sent: int = 0
    over: bool = False


class World(NamedTuple):
    actors: tuple[Actor, ...]
    source: tuple[Fact, ...] = (Fact(1, 1), Fact(1, 1))  # By the order of MEMBERS.
    versions: tuple[int, ...] = (0, 0)  # The companion.
    live: Live | None = Live(frozenset({("x", 1), ("y", 1)}))
    lease: str = ""
    told: str = ""  # The companion says that this builder builds.
    build: frozenset[tuple[str, int]] | None = None  # Stays for a while when the lease passes.
    notes: tuple[Note, ...] = (Note(), Note())
    chunks: int = 0
    deaths: int = 0
    expiries: int = 0
    passes: int = 0  # How often a lease may pass.
    drops: int = 0  # How many chunks may be lost.
    evictions: int = 0  # How often the companion may be lost; others make it anew.


class Design(NamedTuple):
    versioned: bool = False
    lease_at_publication: bool = True
    both_sets: bool = True
    told_at_publication: bool = True  # Publishes only while the companion tells of this build.
    told_anew: bool = True  # A builder that takes over tells of itself.
    counts_chunks: bool = True
    marks: bool = True  # What was written meanwhile wins over an add without a version.
    carries: bool = True  # Versions that the set knew before go with it.
    own_score: bool = True  # An add below what the set knows gets the set's score.
    lags: bool = False  # The builder reads a source as it was at first.
    builder: str = "lease"  # "seed": DEL, ZADD, ZADD, EXPIRE.
    gate: bool = False  # Upserts look at the TTL and add in two steps.


def put(
    members: frozenset[tuple[str, int]], member: str, value: int | None
) -> frozenset[tuple[str, int]]:
    others = frozenset(each for each in members if each[0] != member)
    return others if value is None else others | {(member, value)}


def changed(row: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*row[:index], value, *row[index + 1 :])


class Rebuilds(Model[World]):
    def __init__(self, design: Design, first: World) -> None:
        self.design = design
        self.first = first

    # -- steps ------------------------------------------------------------------------------

    def moves(self, state: World, findings: Findings) -> Iterator[tuple[str, World]]:
        for index, actor in enumerate(state.actors):
            if actor.over:
                continue
            steps = self.write(state, actor) if actor.kind == "writer" else self.work(state, actor)
            for what, after, moved in steps:
                yield (
                    f"{actor.name} {what}",
                    after._replace(actors=changed(state.actors, index, moved)),
                )
            if state.deaths:
                dead = changed(state.actors, index, actor._replace(over=True))
                yield f"{actor.name} dies", state._replace(actors=dead, deaths=state.deaths - 1)
        if state.expiries and state.live:
            yield "the set expires", state._replace(live=None, expiries=state.expiries - 1)
        if state.passes and state.lease:
            yield "the lease passes", state._replace(lease="", passes=state.passes - 1)
        if state.build is not None and not state.lease:
            yield "the old build expires", state._replace(build=None)
        if state.evictions and state.told:
            yield "the companion is lost", state._replace(told="", evictions=state.evictions - 1)

    def write(self, state: World, actor: Actor) -> Iterator[tuple[str, World, Actor]]:
        steps = 3
        (member, fact), step = actor.writes[actor.at // steps], actor.at % steps
        index = MEMBERS.index(member)
        moved = actor._replace(at=actor.at + 1, over=actor.at + 1 == len(actor.writes) * steps)
        if step == 0:
            source = changed(state.source, index, max(state.source[index], fact, key=self.order))
            yield f"writes {member} to the source", state._replace(source=source), moved
        elif self.design.gate and step == 1:
            passed = moved if state.live and state.live.ttl else moved._replace(at=moved.at + 1)
            passed = passed._replace(over=passed.at == len(actor.writes) * steps)
            yield f"looks at the TTL for {member}", state, passed
        elif self.design.gate:
            live = state.live or Live(frozenset(), ttl=False, whole=False)
            live = live._replace(members=put(live.members, member, fact.value))
            yield f"adds {member}", state._replace(live=live), moved
        elif step == 1 and state.told:
            yield f"is told of a build for {member}", state, moved
        elif step == 1:
            # Names no build, and so does not know of one.
            passed = moved._replace(at=moved.at + 1)
            passed = passed._replace(over=passed.at == len(actor.writes) * steps)
            alone = self.upserted(state._replace(lease=""), index, fact)
            yield f"upserts {member}", alone._replace(lease=state.lease), passed
        else:
            told = state.told if state.lease else ""
            after = self.upserted(state, index, fact)._replace(told=told)
            yield f"upserts {member} beside a build", after, moved

    def order(self, fact: Fact) -> int:
        # The source has the newest: with versions the highest, without the one that came last.
        return fact.version if self.design.versioned else fact.value or 10**9

    def upserted(self, state: World, index: int, fact: Fact) -> World:
        member, known = MEMBERS[index], state.versions[index]
        versioned = self.design.versioned
        if state.lease and self.design.both_sets:
            note = state.notes[index]
            if not versioned or fact.version > max(note.version, known):
                mark = Note(fact.version, "~") if versioned else Note(note.version, "!")
                assert state.build is not None
                state = state._replace(
                    build=put(state.build, member, fact.value),
                    notes=changed(state.notes, index, mark),
                )
        if state.live and (not versioned or fact.version > known):
            live = state.live._replace(members=put(state.live.members, member, fact.value))
            state = state._replace(live=live)
            if versioned:
                state = state._replace(versions=changed(state.versions, index, fact.version))
        return state

    def work(self, state: World, actor: Actor) -> Iterator[tuple[str, World, Actor]]:
        over = actor._replace(over=True)
        next_step = actor._replace(at=actor.at + 1)
        seed = self.design.builder == "seed"
        if actor.at == 0:
            if seed:
                yield "begins", state, next_step
            elif state.lease:
                yield "finds the lease taken", state, over
            else:
                begun = state._replace(
                    lease=actor.name,
                    told=actor.name if self.design.told_anew else "",
                    build=frozenset(),
                    notes=(Note(), Note()),
                    chunks=0,
                )
                yield "takes the lease", begun, next_step
        elif actor.at == 1:
            source = self.first.source if self.design.lags else state.source
            yield "reads the source", state, next_step._replace(read=source)
        elif seed:
            yield from self.seed_work(state, actor, next_step)
        elif actor.at < 2 + len(MEMBERS):
            sent = next_step._replace(sent=actor.sent + 1)
            index = actor.at - 2
            if state.lease == actor.name:
                yield f"adds {MEMBERS[index]}", self.added(state, index, actor.read[index]), sent
            else:
                yield "finds the lease lost", state, over
            if state.drops:
                yield "loses a chunk", state._replace(drops=state.drops - 1), sent
        else:
            yield "publishes", self.published(state, actor), over

    def seed_work(
        self, state: World, actor: Actor, next_step: Actor
    ) -> Iterator[tuple[str, World, Actor]]:
        live = state.live or Live(frozenset(), ttl=False, whole=False)
        index = actor.at - 3
        if actor.at == 2:
            yield "deletes the set", state._replace(live=None), next_step
        elif index < len(MEMBERS):
            members = put(live.members, MEMBERS[index], actor.read[index].value)
            yield (
                f"adds {MEMBERS[index]} to the set",
                state._replace(live=live._replace(members=members)),
                next_step,
            )
        else:
            after = state._replace(live=live._replace(ttl=True, whole=True))
            yield "gives the set its TTL", after, actor._replace(over=True)

    def added(self, state: World, index: int, fact: Fact) -> World:
        state = state._replace(chunks=state.chunks + 1)
        if fact.value is None:
            return state
        note, known, value = state.notes[index], state.versions[index], fact.value
        build = state.build
        assert build is not None
        if not self.design.versioned:
            if note.mark and self.design.marks:
                return state
            return state._replace(build=put(build, MEMBERS[index], value))
        if note.mark == "~" and note.version >= fact.version:
            return state
        version: int = fact.version
        kept: int | None = value
        if known > version and self.design.own_score:
            version = known
            kept = dict(state.live.members).get(MEMBERS[index]) if state.live else None
        if kept is not None:
            build = put(build, MEMBERS[index], kept)
        return state._replace(
            build=build, notes=changed(state.notes, index, Note(version, note.mark))
        )

    def published(self, state: World, actor: Actor) -> World:
        lost = state.lease != actor.name and self.design.lease_at_publication
        if lost or state.build is None:
            return state
        partial = self.design.counts_chunks and state.chunks != actor.sent
        untold = self.design.told_at_publication and state.told != actor.name
        if partial or untold:
            return state._replace(lease="", build=None)
        versions = tuple(
            max(note.version, before) if self.design.carries else note.version
            for note, before in zip(state.notes, state.versions)
        )
        return state._replace(
            live=Live(state.build, whole=state.chunks == len(MEMBERS)),
            versions=versions,
            lease="",
            told="",
            build=None,
        )

    # -- what must hold ---------------------------------------------------------------------

    def faults(self, state: World) -> Iterator[str]:
        if state.live and not state.live.whole:
            yield "a partial set is read"
        if state.live and not state.live.ttl:
            yield "a set without a TTL"
        # A writer that died may have written to the source alone.
        died = self.first.deaths - state.deaths
        if self.may_end(state) and state.live and not died and not self.design.lags:
            held = dict(state.live.members)
            for member, fact in zip(MEMBERS, state.source):
                if held.get(member) != fact.value:
                    yield "a write is lost"

    def faults_between(self, before: World, after: World) -> Iterator[str]:
        if any(new < old for old, new in zip(before.versions, after.versions)):
            yield "a version falls"

    def may_end(self, state: World) -> bool:
        return all(actor.over for actor in state.actors)
