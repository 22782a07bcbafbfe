"""write_behind's rules in every order of few steps, and in drawn orders of more.

HOTCOUNT_RACES_SEED draws others. Each rule that is left out has a hole that the checks must find.
"""

import os
from dataclasses import replace

import pytest

from tests.races import explorer
from tests.races.stream_model import StreamModel
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
from tests.races.stream_world import Caller, Entry, Op, Refused, Script, Sql, Stream, Worker, World

SEED = int(os.environ.get("HOTCOUNT_RACES_SEED", "31"))
RIGHT = Rules()
# Streams that only a floor, a life and a lock guard.
UNFENCED = Rules(
    mark_names_writers=False,
    fence=False,
    fence_at_clock=False,
    fence_to_floor=False,
    fence_beyond=False,
    fence_filters=False,
    fence_in_statement=False,
    raises_last_id=False,
    fence_has_name=False,
    erases_again=False,
    erases_to_fence=False,
    prunes_to_fence=False,
    floor_to_fence=False,
    fence_to_floor_of_now=False,
    keeps_least=False,
    reads_name=False,
    checks_name=False,
    floor_by_name=False,
    life_when_made=False,
    refuses_closed_life=False,
    one_stream=False,
)

ONE = (Worker(),)
TWO = (Caller(), Caller())
# The voter has cast before: the stream of item 0 is there.
OPEN = World(
    sql=Sql(open=True, life=1), streams=(Stream(1, 0, 1),), voters=(Caller(1),), workers=ONE
)
# Another item's votes have raised the floor, which is ahead of the clock.
AHEAD = World(sql=Sql(floor=20, life=1), voters=(Caller(1),), workers=ONE)
VOTE = Entry(31, 0)
REFUSED = Stream(1, 0, 11, top=11, refused=(Refused(11, 0, 11),))
WORLDS = {
    "a page that is held": OPEN._replace(erasures=("user",), deaths=1, workers=2 * ONE),
    "a snapshot": OPEN._replace(erasures=("user",), saves=1, restores=1),
    "votes during an erasure": OPEN._replace(casts=2, erasures=("user",), workers=2 * ONE),
    "votes during a removal": OPEN._replace(casts=2, erasures=("row",), workers=2 * ONE),
    "another user": OPEN._replace(pairs=(2,), erasures=("user",)),
    "pruning": OPEN._replace(casts=2, retracts=True, erasures=("prune",), deaths=1),
    "a slow clock": OPEN._replace(erasures=("user",), restores=1, slow_clock=True, ticks=1),
    "a slow clock and two votes": OPEN._replace(
        casts=2, erasures=("user",), restores=1, slow_clock=True
    ),
    "a slow snapshot": OPEN._replace(
        casts=2, erasures=("user",), saved=(OPEN.streams,), restores=1, slow_clock=True
    ),
    # Redis had given it while its clock was ahead, and has lost it; a worker had raised the floor.
    "a copy with ids ahead": World(
        sql=Sql(floor=40, life=1, open=True),
        ops=(Op(0, excused=True),),
        saved=((Stream(1, 0, 31, (VOTE,), top=31),),),
        restores=1,
        casts=0,
        erasures=("user",),
        workers=ONE,
        slow=True,
    ),
    "a page under a fence ahead": World(
        sql=Sql(floor=30, life=1, open=True, fence=(30, 0)),
        streams=(Stream(1, 0, 31, (VOTE,), top=31),),
        ops=(Op(0),),
        casts=0,
        saved=((Stream(1, 0, 10),),),
        restores=1,
        deaths=1,
        slow_clock=True,
        erasures=("user",),
        workers=ONE,
    ),
    "two voters": World(casts=2, voters=TWO, restores=1, slow_clock=True, workers=ONE),
    # One began before the vote was cast, and the copy has the vote.
    "two erasures": OPEN._replace(
        streams=(Stream(1, 0, 10, (Entry(10, 0),), top=10),),
        ops=(Op(0),),
        casts=0,
        saved=((Stream(1, 0, 10, (Entry(10, 0),), top=10),),),
        restores=1,
        erasures=("user",),
        erasers=(Caller(), Caller(1, "advanced", kind="user", to=(1, 1), seen=OPEN.sql)),
    ),
    "a floor ahead": AHEAD._replace(erasures=("user",)),
    "a late opening": AHEAD._replace(erasures=("user",), late_scripts=1),
    "a late opening and a switch": World(
        sql=Sql(open=True, life=1),
        voters=(Caller(1, "noted"), Caller(1)),
        late_scripts=1,
        flushes=1,
        switches=1,
        workers=ONE,
    ),
    "a late opening and a late flush": World(
        sql=Sql(open=True, life=2),
        voters=(Caller(1, "noted"), Caller(1)),
        scripts=(Script("closes", 1, 0, 1),),
        late_scripts=1,
        flushes=1,
        switches=1,
        workers=ONE,
    ),
    "an erasure and a flush": OPEN._replace(erasures=("user",), flushes=1),
    "an old copy and an erasure": OPEN._replace(
        clock=3,
        sql=Sql(floor=40, life=1, open=True, fence=(15, 0)),
        streams=(Stream(1, 0, 11, back=True),),
        erasures=("user",),
    ),
    "a copy before the ids are moved": OPEN._replace(
        clock=3, saved=(OPEN.streams,), restores=1, slow_clock=True, erasures=("user",)
    ),
    "a restart and a floor ahead": AHEAD._replace(
        sql=Sql(floor=20, life=1, open=True),
        streams=(Stream(1, 0, 10),),
        saved=((Stream(1, 0, 10),),),
        restores=1,
        erasures=("user",),
    ),
    "a clock that is set back": OPEN._replace(clock=2, back_ticks=1, deaths=1),
    "a refused vote": OPEN._replace(casts=2, bad=1),
    "a refused vote and an erasure": OPEN._replace(bad=1, erasures=("user",)),
    # The copy is of the time between the erasure's last round and its end.
    "a copy with a refused vote": OPEN._replace(
        sql=Sql(open=True, life=1, floor=20),
        ops=(Op(0, bad=True),),
        casts=0,
        saved=((REFUSED,),),
        erasures=("user",),
        restores=1,
    ),
    "a copy with a vote refused meanwhile": OPEN._replace(
        sql=Sql(open=True, life=1),
        ops=(Op(0, bad=True),),
        casts=0,
        ticks=1,
        streams=(Stream(1, 0, 11, (Entry(11, 0),), top=11),),
        erasures=("user",),
        saves=1,
        restores=1,
    ),
    "a copy with a former name": OPEN._replace(
        sql=Sql(name=2, open=True, life=1),
        ops=(Op(0, bad=True),),
        casts=0,
        streams=(),
        saved=((REFUSED,),),
        erasures=("user",),
        restores=1,
    ),
    "another strategy": World(others=1, erasures=("others",), workers=ONE),
    "a switch": World(erasures=("others",), deaths=1, flushes=1, switches=2, workers=ONE),
    "a switch and the clock": OPEN._replace(erasures=("user",), flushes=1, switches=2),
    # It has reserved ids that the votes in SQL do not reach any more: they were erased since.
    "a worker from before a switch": OPEN._replace(
        casts=2,
        sql=Sql(name=2, open=True, life=1),
        streams=(Stream(2, 0, 1),),
        voters=(Caller(2),),
        workers=(Worker(reserved=(1, 1, 10)),),
        restores=1,
        slow_clock=True,
    ),
    "a switch and a snapshot": OPEN._replace(casts=1, saves=1, restores=1, flushes=1, switches=2),
    "a name that is kept": OPEN._replace(erasures=("user",) * 2, flushes=1, switches=2),
    "a flush with an old name": OPEN._replace(casts=2, flushes=2, switches=2),
    "two flushes": OPEN._replace(casts=2, flushes=2, flushers=TWO, switches=3),
    "equal items, removed": OPEN._replace(pairs=(0, 1), erasures=("row",), collates=True),
    "equal items": World(casts=3, pairs=(0, 1), collates=True, workers=ONE),
}


@pytest.mark.parametrize("world", WORLDS)
def test_every_order_of_few_steps_keeps_votes_and_erasures(world: str) -> None:
    findings = explorer.explore(StreamModel(RIGHT), WORLDS[world])
    assert not findings.faults, findings
    assert findings.states >= 10


def without(*rules: str) -> Rules:
    return replace(RIGHT, **dict.fromkeys(rules, False))


HOLES = [
    (without("mark_names_writers"), "another strategy", {GHOST, UNDONE}),
    (without("drains"), "another user", {LOST}),
    (without("fence"), "a page that is held", {GHOST}),
    (without("fence"), "a snapshot", {GHOST}),
    (without("fence"), "pruning", {OLDER}),
    (without("fence_rises"), "two erasures", {GHOST}),
    (without("fence_at_clock"), "a snapshot", {GHOST}),
    (without("fence_filters"), "a snapshot", {GHOST}),
    (without("fence_in_statement"), "a page that is held", {GHOST}),
    (without("raises_last_id"), "a slow snapshot", {MISSING}),
    (without("erases_again"), "votes during a removal", {OLDER}),
    (without("erases_to_fence"), "votes during an erasure", {OLDER}),
    (without("prunes_to_fence"), "pruning", {OLDER}),
    (without("fence_has_name"), "a switch", {GHOST}),
    (without("checks_name"), "two flushes", {LOST}),
    # The second rule masks the first: either is enough.
    (without("forgets_refused", "trims_refused"), "a refused vote and an erasure", {KEPT}),
    (without("fence_to_floor", "fence_to_floor_of_now"), "a copy with ids ahead", {GHOST}),
    (without("fence_to_floor", "fence_beyond"), "a page under a fence ahead", {GHOST}),
    (without("reads_name", "checks_name"), "a flush with an old name", {FLUSHED}),
    (without("reads_name", "checks_name"), "a name that is kept", {GHOST}),
    (without("floor_to_fence", "keeps_least"), "a floor ahead", {MISSING}),
    (without("life_before_fence", "keeps_least"), "a floor ahead", {MISSING}),
    (without("floor_by_name"), "a worker from before a switch", {OLDER}),
    (without("life_when_made"), "two voters", {OLDER}),
    (without("refuses_closed_life"), "a late opening and a switch", {LOST}),
    (without("one_stream"), "equal items, removed", {GHOST}),
    (without("one_stream"), "equal items", {OLDER}),
    (without("takes_over_ahead"), "a clock that is set back", {WAITS}),
    (without("keeps_older"), "a refused vote", {LOST}),
    (without("trims_refused"), "a copy with a refused vote", {KEPT}),
    (without("drops_former"), "a copy with a former name", {KEPT}),
    (without("reopens"), "a switch and a snapshot", {LOST}),
    (without("fence_to_floor_of_now"), "an erasure and a flush", {GHOST}),
    (without("keeps_least"), "a late opening", {MISSING}),
    (without("last_id_rises"), "an old copy and an erasure", {MISSING}),
    (without("closed_rises"), "a late opening and a late flush", {LOST}),
    (without("trims_by_vote"), "a copy with a vote refused meanwhile", {KEPT}),
    # It does not promise these.
    (without("stray"), "a switch and a snapshot", {LOST}),
    (without("behind"), "a slow snapshot", {MISSING}),
    (without("restarts_late"), "a restart and a floor ahead", {MISSING}),
    (without("late_pages"), "a slow snapshot", {GHOST}),
    (without("moves_at_once"), "a copy before the ids are moved", {GHOST}),
]


def name_of(value: object) -> str | None:
    if not isinstance(value, Rules):
        return None
    return " and ".join(name for name, there in vars(value).items() if not there)


@pytest.mark.parametrize(("rules", "world", "faults"), HOLES, ids=name_of)
def test_without_a_rule_the_checks_find_it(rules: Rules, world: str, faults: set[str]) -> None:
    findings = explorer.explore(StreamModel(rules), WORLDS[world], until=frozenset(faults))
    assert faults <= set(findings.faults), findings


def test_each_rule_has_a_hole() -> None:
    assert {name for rules, *_ in HOLES for name, there in vars(rules).items() if not there} == {
        *vars(RIGHT)
    }


@pytest.mark.parametrize(
    ("world", "faults"),
    [
        ("another strategy", {GHOST, UNDONE, MISSING}),
        ("a page that is held", {GHOST}),
        ("a snapshot", {GHOST}),
        ("votes during an erasure", {OLDER}),
        ("a switch", {GHOST}),
        ("a name that is kept", {GHOST}),
        ("a flush with an old name", {FLUSHED}),
        ("two flushes", {LOST, FLUSHED}),
        ("a worker from before a switch", {OLDER}),
        ("two voters", {OLDER}),
        ("equal items, removed", {GHOST}),
        ("equal items", {OLDER}),
    ],
)
def test_without_marks_and_fences_the_checks_find_every_hole(world: str, faults: set[str]) -> None:
    findings = explorer.explore(StreamModel(UNFENCED), WORLDS[world], until=frozenset(faults))
    assert faults <= set(findings.faults), findings


ALL = World(
    pairs=(0, 1, 2),
    casts=5,
    bad=1,
    retracts=True,
    erasures=("user", "item", "row", "prune", "others"),
    others=1,
    saves=2,
    restores=2,
    slow_clock=True,
    ticks=3,
    back_ticks=1,
    deaths=2,
    late_scripts=2,
    switches=4,
    flushes=3,
    lives=99,
    voters=TWO,
    erasers=TWO,
    flushers=TWO,
)
STEADY = ALL._replace(slow_clock=False, back_ticks=0)


def draw(walks: int) -> None:
    for world in (ALL, STEADY, ALL._replace(collates=True)):
        findings = explorer.simulate(StreamModel(RIGHT), world, seed=SEED, walks=walks // 3)
        assert not findings.faults, findings
        assert findings.states > 10 * walks // 3


def test_drawn_orders_of_more_steps_keep_votes_and_erasures() -> None:
    draw(90)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_15000_drawn_orders_keep_votes_and_erasures() -> None:
    draw(15_000)
