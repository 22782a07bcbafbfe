"""The rebuild of a sorted set: every order of its steps, and what wrong ways leave behind.

rebuild_model.py says what a step is. Drawn orders (HOTCOUNT_RACES_SEED) have more actors than can
be explored; those marked `long` are more. Each way that looks right and is not has a test that
shows how the checks find it.
"""

import os
from typing import Any

import pytest

from tests.races import explorer
from tests.races.explorer import Findings
from tests.races.rebuild_model import Actor, Design, Fact, Rebuilds, World

SEED = int(os.environ.get("HOTCOUNT_RACES_SEED", "16"))
PLAIN = Design()
VERSIONED = Design(versioned=True)


def builder(name: str = "builder") -> Actor:
    return Actor("builder", name)


def upserter(member: str, *values: int, name: str = "upserter") -> Actor:
    """With versions each value is one of its own."""
    return Actor("writer", name, tuple((member, Fact(value, value)) for value in values))


def remover(member: str, version: int, name: str = "remover") -> Actor:
    return Actor("writer", name, ((member, Fact(None, version)),))


def explore(design: Design, *actors: Actor, **bounds: Any) -> Findings:
    first = World(actors, **bounds)
    return explorer.explore(Rebuilds(design, first), first)


def right(design: Design, *actors: Actor, states: int = 100, **bounds: Any) -> None:
    findings = explore(design, *actors, **bounds)
    assert not findings.faults, findings
    assert findings.states >= states


def wrong(fault: str, design: Design, *actors: Actor, **bounds: Any) -> None:
    findings = explore(design, *actors, **bounds)
    assert fault in findings.faults, findings


@pytest.mark.parametrize("design", [PLAIN, VERSIONED], ids=["plain", "versioned"])
def test_writers_beside_a_builder_lose_nothing(design: Design) -> None:
    right(design, builder(), upserter("x", 2, 3), remover("y", 2), expiries=1, passes=1)


@pytest.mark.parametrize("design", [PLAIN, VERSIONED], ids=["plain", "versioned"])
def test_a_second_builder_takes_over_from_one_that_is_late_or_dead(design: Design) -> None:
    right(design, builder(), builder("second"), upserter("x", 2), passes=1, deaths=1)


@pytest.mark.parametrize("design", [PLAIN, VERSIONED], ids=["plain", "versioned"])
def test_a_lost_chunk_is_never_a_partial_set(design: Design) -> None:
    right(design, builder(), upserter("x", 2), drops=1, expiries=1)


@pytest.mark.parametrize("design", [PLAIN, VERSIONED], ids=["plain", "versioned"])
def test_a_build_that_the_companion_forgot_is_not_published(design: Design) -> None:
    right(design, builder(), builder("second"), upserter("x", 2), evictions=1, passes=1)


def test_two_writers_of_a_member_with_versions_end_with_the_higher() -> None:
    right(
        VERSIONED, builder(), upserter("x", 2), upserter("x", 3, name="other"), expiries=1, passes=1
    )


def test_no_version_falls_when_the_builder_reads_an_old_source() -> None:
    right(
        Design(versioned=True, lags=True),
        builder(),
        upserter("x", 2, 3),
        remover("y", 2),
        expiries=1,
    )


def drawn(design: Design, walks: int) -> None:
    first = World(
        (builder(), builder("second"), builder("third"), upserter("x", 2, 5, 6), remover("y", 7)),
        deaths=1,
        expiries=2,
        passes=2,
        drops=1,
    )
    findings = explorer.simulate(Rebuilds(design, first), first, seed=SEED, walks=walks)
    assert not findings.faults, (SEED, findings)
    assert findings.states >= 5 * walks


@pytest.mark.parametrize("design", [PLAIN, VERSIONED], ids=["plain", "versioned"])
def test_drawn_orders_of_three_builders_keep_the_invariants(design: Design) -> None:
    drawn(design, 500)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("design", [PLAIN, VERSIONED], ids=["plain", "versioned"])
def test_100_000_drawn_orders_of_three_builders_keep_the_invariants(design: Design) -> None:
    drawn(design, 50_000)


def test_publishing_without_a_look_at_the_lease_loses_a_write() -> None:
    blind = Design(lease_at_publication=False, told_at_publication=False)
    wrong("a write is lost", blind, builder(), upserter("x", 2), passes=1)


def test_publishing_without_a_look_at_the_lease_publishes_half_of_anothers_build() -> None:
    blind = Design(lease_at_publication=False, told_at_publication=False, counts_chunks=False)
    wrong("a partial set is read", blind, builder(), builder("second"), passes=1)


def test_upserts_to_the_live_set_alone_are_lost() -> None:
    wrong("a write is lost", Design(both_sets=False), builder(), upserter("x", 2))


def test_publishing_without_a_look_at_what_the_companion_tells_loses_a_write() -> None:
    blind = Design(told_at_publication=False)
    wrong("a write is lost", blind, builder(), upserter("x", 2), evictions=1)


def test_a_build_of_which_upserts_are_not_told_loses_them() -> None:
    silent = Design(told_anew=False, told_at_publication=False)
    wrong("a write is lost", silent, builder(), upserter("x", 2))


def test_adds_that_win_over_what_was_written_meanwhile_lose_it() -> None:
    wrong("a write is lost", Design(marks=False), builder(), upserter("x", 2))


def test_publishing_without_the_count_of_chunks_publishes_a_part() -> None:
    wrong("a partial set is read", Design(counts_chunks=False), builder(), drops=1)


def test_a_companion_that_is_replaced_forgets_versions() -> None:
    forgetful = Design(versioned=True, carries=False)
    wrong("a version falls", forgetful, builder(), remover("y", 2))


def test_adds_below_what_the_set_knows_lose_a_newer_score() -> None:
    design = Design(versioned=True, own_score=False, carries=False, lags=True)
    wrong("a version falls", design, builder(), upserter("x", 2))


def test_the_seeds_delete_and_add_is_read_in_part_without_a_ttl_and_loses_writes() -> None:
    findings = explore(Design(builder="seed"), builder(), upserter("x", 2))
    assert {"a partial set is read", "a set without a TTL", "a write is lost"} <= set(
        findings.faults
    )


def test_the_seeds_ttl_gate_revives_an_expired_set_and_is_lost_by_a_rebuild() -> None:
    gated = explore(Design(gate=True), builder(), upserter("x", 2), expiries=1)
    assert {"a partial set is read", "a set without a TTL", "a write is lost"} <= set(gated.faults)
