"""WriteBehindCounter as a model: no order of its steps counts too much, or loses what lives.

Each wrong variant has a hole, which the same search finds.
"""

import pytest

from tests.races.explorer import STUCK, explore, simulate
from tests.races.views_model import (
    LOST,
    READ_TOO_HIGH,
    TOO_HIGH,
    Process,
    Variant,
    Views,
    Worker,
    World,
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
@pytest.mark.timeout(900)
def test_100_000_drawn_orders_count_each_add_once() -> None:
    for seed in range(10):
        assert simulate(Views(), start(deaths=seed % 2), seed=seed, walks=10_000).faults == {}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_drawn_orders_with_more_of_everything_count_each_add_once() -> None:
    for seed in range(2):
        world = start(adds=(3, 2), flushes=2, doubles=2, losses=2, drops=2, deaths=seed)
        assert simulate(Views(), world, seed=seed, walks=2_000).faults == {}


HOLES = {
    "a forked child goes on under its parent's id": (Variant(fork_keeps_id=True), LOST),
    "a cell that was dropped begins anew under its id": (Variant(drop_keeps_id=True), LOST),
    "to retire a cell deletes its row too": (Variant(retire_forgets=True), TOO_HIGH),
    "a cell is taken out that has grown since it was read": (Variant(retire_blindly=True), LOST),
    "batches of differences, whose numbers Redis remembers": (Variant(deltas=True), TOO_HIGH),
    "what Redis has lost is not sent again": (Variant(never_sent_again=True), LOST),
    "row and total in two transactions": (Variant(split_apply=True), TOO_HIGH),
}


@pytest.mark.parametrize("name", HOLES)
def test_a_variant_without_one_of_the_rules_has_a_hole(name: str) -> None:
    variant, hole = HOLES[name]
    found: set[str] = set()
    for seed in range(50):
        found |= simulate(Views(variant), start(), seed=seed, walks=100).faults.keys()
        if hole in found:
            return
    raise AssertionError(f"{name}: {sorted(found - {STUCK, READ_TOO_HIGH})}")


@pytest.mark.parametrize("accepts", [False, True], ids=["refused", "taken for a new one"])
def test_a_late_message_whose_row_was_purged_counts_nothing_if_refused(accepts: bool) -> None:
    # SQL has what writer 1 has counted, its process goes on under another id, and what it once sent
    # is still on its way.
    late = World(
        processes=(Process(writer=100),),
        workers=(Worker(),),
        messages=frozenset({(0, 1, 1, 0)}),
        rows=((1, 1),),
        total=1,
        made=1,
        forks=0,
    )
    findings = explore(Views(Variant(purge_accepts=accepts)), late)
    assert (TOO_HIGH in findings.faults) == accepts
    assert accepts or findings.faults == {}
