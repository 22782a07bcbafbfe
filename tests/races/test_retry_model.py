"""The retry queue's rules in every order of few steps, and in drawn orders of more.

HOTCOUNT_RACES_SEED draws others. Each rule that is left out, and the queue that only catches
exceptions, have a hole that the checks must find.
"""

import os
from dataclasses import replace

import pytest

from tests.races import explorer
from tests.races.retry_model import CATCHING, RetryQueueModel, Rules, World

SEED = int(os.environ.get("HOTCOUNT_RACES_SEED", "12"))
RIGHT = Rules()


@pytest.mark.parametrize(
    "start",
    [
        World(adds=2, lives=2, deaths=1),
        World(adds=3, lives=1, deaths=0),
        World(adds=2, lives=1, deaths=1, ticks=3),
        World(adds=1, lives=1, deaths=2, ticks=4),
    ],
    ids=["a death and a second life", "a third add", "a clock", "a third process"],
)
def test_every_order_of_few_adds_counts_each_once_in_its_life(start: World) -> None:
    findings = explorer.explore(RetryQueueModel(RIGHT), start)
    assert not findings.faults, findings
    assert findings.states > 100


def draw(walks: int) -> None:
    start = World(adds=4, lives=3, deaths=2, ticks=4)
    findings = explorer.simulate(RetryQueueModel(RIGHT), start, seed=SEED, walks=walks)
    assert not findings.faults, findings
    assert findings.states > 10 * walks


def test_drawn_orders_of_more_adds_count_each_once_in_its_life() -> None:
    draw(1_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_thousand_drawn_orders_count_each_once_in_its_life() -> None:
    draw(100_000)


@pytest.mark.long
@pytest.mark.parametrize(
    "start",
    [World(adds=3, lives=2, deaths=1), World(adds=2, lives=1, deaths=2, ticks=4)],
    ids=["adds", "ticks"],
)
def test_every_order_of_more_steps_counts_each_once_in_its_life(start: World) -> None:
    findings = explorer.explore(RetryQueueModel(RIGHT), start)
    assert not findings.faults, findings


@pytest.mark.parametrize(
    ("rules", "faults"),
    [
        (replace(RIGHT, numbers=False), {"counted twice"}),
        (replace(RIGHT, windows=False), {"counted in a later life"}),
        (replace(RIGHT, one_at_a_time=False), {"lost"}),
        (replace(RIGHT, by_number=False), {"lost"}),
        (replace(RIGHT, journal=False), {"lost"}),
        (CATCHING, {"counted twice", "counted in a later life", "lost"}),
    ],
    ids=["no numbers", "no windows", "overtaken", "the file's order", "no journal", "catching"],
)
def test_without_a_rule_the_checks_find_its_hole(rules: Rules, faults: set[str]) -> None:
    start = World(adds=2, lives=2, deaths=1)
    findings = explorer.explore(RetryQueueModel(rules), start)
    assert faults <= set(findings.faults), findings


@pytest.mark.parametrize(
    ("rules", "deaths"),
    [
        (replace(RIGHT, kept_for_the_add=False), 2),
        (replace(RIGHT, server_clock=False), 0),
        (replace(RIGHT, server_clock=False), 1),
    ],
    ids=["kept for the opener", "the process's clock", "the next process's clock"],
)
def test_a_number_that_is_forgotten_too_early_counts_twice(rules: Rules, deaths: int) -> None:
    start = World(adds=1, lives=1, deaths=deaths, ticks=4)
    findings = explorer.explore(RetryQueueModel(rules), start)
    assert "counted twice" in findings.faults
