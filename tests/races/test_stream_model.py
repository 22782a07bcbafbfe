"""write_behind's rules in every order of few steps, and in drawn orders of more.

HOTCOUNT_RACES_SEED draws others. Each rule that is left out has a hole that the checks must find.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.races import explorer
from tests.races.stream_model import (
    FLUSHED,
    GHOST,
    LOST,
    MISSING,
    OLDER,
    UNDONE,
    Rules,
    StreamModel,
)
from tests.races.stream_world import Caller, Sql, Stream, Worker, World

SEED = int(os.environ.get("HOTCOUNT_RACES_SEED", "31"))
RIGHT = Rules()
# Streams that only a floor, a life and a lock guard.
UNFENCED = Rules(
    mark_names_writers=False,
    fence=False,
    fence_at_clock=False,
    fence_filters=False,
    fence_in_statement=False,
    raises_last_id=False,
    fence_has_name=False,
    erases_again=False,
    prunes_to_fence=False,
    floor_to_fence=False,
    reads_name=False,
    checks_name=False,
    floor_by_name=False,
    life_when_made=False,
    one_stream=False,
)

ONE = (Worker(),)
TWO = (Caller(), Caller())
# The voter has cast before: the stream of item 0 is there.
OPEN = World(
    sql=Sql(open=True, life=1), streams=(Stream(1, 0, 1),), voters=(Caller(1),), workers=ONE
)
WORLDS = {
    "a page that is held": World(erasures=("user",), deaths=1),
    "a snapshot": World(erasures=("user",), saves=1, restores=1, workers=ONE),
    "votes during an erasure": OPEN._replace(casts=2, erasures=("user",), workers=2 * ONE),
    "another user": OPEN._replace(pairs=(2,), erasures=("user",)),
    "pruning": OPEN._replace(casts=2, retracts=True, erasures=("prune",), deaths=1),
    "a slow clock": OPEN._replace(erasures=("user",), restores=1, slow_clock=True, ticks=2),
    "a slow clock and two votes": OPEN._replace(
        casts=2, erasures=("user",), restores=1, slow_clock=True, ticks=1
    ),
    "a slow snapshot": OPEN._replace(
        casts=2, erasures=("user",), saved=((), OPEN.streams), restores=1, slow_clock=True
    ),
    "two voters": World(casts=2, voters=TWO, restores=1, slow_clock=True, workers=ONE),
    # One began before the vote was cast.
    "two erasures": OPEN._replace(
        erasures=("user",),
        erasers=(Caller(), Caller(1, "looked", kind="user", to=(1, 1))),
        saves=1,
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
    "equal items, removed": OPEN._replace(pairs=(0, 1), erasures=("item",), collates=True),
    "equal items": World(casts=3, pairs=(0, 1), collates=True, workers=ONE),
}


@pytest.mark.parametrize("world", WORLDS)
def test_every_order_of_few_steps_keeps_votes_and_erasures(world: str) -> None:
    findings = explorer.explore(StreamModel(RIGHT), WORLDS[world])
    assert not findings.faults, findings
    assert findings.states >= 10


def without(*rules: str) -> Rules:
    return replace(RIGHT, **dict.fromkeys(rules, False))


@pytest.mark.parametrize(
    ("rules", "world", "faults"),
    [
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
        (without("erases_again"), "votes during an erasure", {OLDER}),
        (without("floor_to_fence"), "a slow clock and two votes", {MISSING}),
        (without("prunes_to_fence"), "pruning", {OLDER}),
        (without("fence_has_name"), "a switch", {GHOST}),
        (without("checks_name"), "two flushes", {LOST}),
        # Either of two rules is enough.
        (without("checks_name", "reads_name"), "a flush with an old name", {FLUSHED}),
        (without("checks_name", "reads_name"), "a name that is kept", {GHOST}),
        (without("floor_by_name"), "a worker from before a switch", {OLDER}),
        (without("life_when_made"), "two voters", {OLDER}),
        (without("one_stream"), "equal items, removed", {GHOST}),
        (without("one_stream"), "equal items", {OLDER}),
        (without("stray"), "a switch and a snapshot", {LOST}),
        (without("behind"), "a slow snapshot", {MISSING}),
    ],
)
def test_without_a_rule_the_checks_find_its_hole(
    rules: Rules, world: str, faults: set[str]
) -> None:
    findings = explorer.explore(StreamModel(rules), WORLDS[world])
    assert faults <= set(findings.faults), findings


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
    findings = explorer.explore(StreamModel(UNFENCED), WORLDS[world])
    assert faults <= set(findings.faults), findings


ALL = World(
    pairs=(0, 1, 2),
    casts=5,
    retracts=True,
    erasures=("user", "item", "prune", "others"),
    others=1,
    saves=2,
    restores=2,
    slow_clock=True,
    ticks=3,
    deaths=2,
    switches=4,
    flushes=3,
    voters=TWO,
    erasers=TWO,
    flushers=TWO,
)


def draw(walks: int) -> None:
    for world in (ALL, ALL._replace(slow_clock=False), ALL._replace(collates=True)):
        findings = explorer.simulate(StreamModel(RIGHT), world, seed=SEED, walks=walks // 3)
        assert not findings.faults, findings
        assert findings.states > 10 * walks // 3


def test_drawn_orders_of_more_steps_keep_votes_and_erasures() -> None:
    draw(600)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_15000_drawn_orders_keep_votes_and_erasures() -> None:
    draw(15_000)
