"""WriteBehindCounter as a model: no order of its steps counts too much, or loses what lives.

Each wrong variant has a hole, which the same search finds.
"""

from __future__ import annotations

import pytest

from tests.races.explorer import STUCK, explore, simulate
from tests.races.views_model import (
    LOST,
    READ_TOO_HIGH,
    TOO_HIGH,
    Variant,
    Views,
    start,
)


def test_every_order_of_two_adds_is_counted_once() -> None:
    findings = explore(
        Views(), start(adds=(2,), workers=1, forks=0, drops=0, purges=0, doubles=1, losses=0)
    )
    assert findings.faults == {}
    assert findings.states > 100


def test_drawn_orders_of_all_steps_count_each_add_once() -> None:
    findings = simulate(Views(), start(), seed=16, walks=1_000)
    assert findings.faults == {}
    assert findings.states > 20_000


def test_a_death_loses_no_more_than_sql_did_not_have_of_the_dead() -> None:
    findings = simulate(Views(), start(deaths=1), seed=17, walks=100)
    assert findings.faults == {}


@pytest.mark.long
def test_100_000_drawn_orders_count_each_add_once() -> None:
    for seed in range(10):
        world = start(adds=(3, 2), flushes=2, doubles=2, losses=2, drops=2, deaths=seed % 2)
        assert simulate(Views(), world, seed=seed, walks=10_000).faults == {}


HOLES = {
    "a forked child goes on under its parent's id": (Variant(fork_keeps_id=True), LOST),
    "a cell that was dropped begins anew under its id": (Variant(drop_keeps_id=True), LOST),
    "to retire a cell deletes its row too": (Variant(retire_forgets=True), TOO_HIGH),
    "a cell whose row has been purged is taken for a new one": (
        Variant(purge_accepts=True),
        TOO_HIGH,
    ),
    "a cell is taken out that has grown since it was read": (
        Variant(retire_blindly=True),
        LOST,
    ),
    "batches of differences, whose numbers Redis remembers": (Variant(deltas=True), TOO_HIGH),
    "what Redis has lost is not sent again": (Variant(never_sent_again=True), LOST),
    "row and total in two transactions": (Variant(split_apply=True), TOO_HIGH),
}


@pytest.mark.parametrize("name", HOLES)
def test_a_variant_without_one_of_the_rules_has_a_hole(name: str) -> None:
    variant, hole = HOLES[name]
    # Of a few steps, all orders; some holes need more steps.
    few = start(adds=(1,), workers=1, flushes=0, forks=0, losses=0)
    found = set(explore(Views(variant), few).faults)
    if hole in found:
        return
    for seed in range(50):
        found |= simulate(Views(variant), start(adds=(2,)), seed=seed, walks=100).faults.keys()
        if hole in found:
            return
    raise AssertionError(f"{name}: {sorted(found - {STUCK, READ_TOO_HIGH})}")
