"""The votes' journal, its fold, its copies, and who moves counts: every order of their steps.

journal_model.py says what a step is. Bounds here are small; those marked `long` are larger, and
drawn orders (HOTCOUNT_RACES_SEED) go beyond what can be explored. Each way that looks right and is
not has a test that shows how the checks find it.
"""

import os
from typing import Any

import pytest

from tests.races import explorer
from tests.races.explorer import Findings
from tests.races.journal_model import Journal
from tests.races.journal_world import OPENING, Actor, Cell, Design, Row, Tables, World

BOTH = pytest.mark.parametrize("dialect", ["postgres", "mariadb"])
SEED = int(os.environ.get("HOTCOUNT_RACES_SEED", "12"))


def actor(kind: str, *script: Any) -> Actor:
    """An entry of the script is a transaction: a voter's has ballots (item, user, val)."""
    return Actor(kind, script)


def world(*actors: Actor, deaths: int = 0, **tables: Any) -> World:
    start = Tables(**tables)
    return World(start, actors, copies=(None,) * len(start.items), deaths=deaths)


def cast(*ballots: tuple[int, int, int]) -> Actor:
    """A voter with a transaction for each ballot."""
    return actor("voter", *((ballot,) for ballot in ballots))


def folds(times: int = 1) -> Actor:
    return actor("folder", *((),) * times)


def slotted(*ballots: tuple[int, int, int, int], mark: str = "journal") -> Actor:
    """Ballots (item, user, val, slot)."""
    return actor("slotted_voter", *((*ballot, mark) for ballot in ballots))


def both(item: int = 0) -> tuple[Actor, Actor]:
    return cast((item, 1, 1)), cast((item, 2, 1))


CELL_OF_ONE = (((0, -1), Cell(1, 1)),)
VOTED: dict[str, Any] = {"items": (1,), "votes": (((0, 9), 1),), "cells": CELL_OF_ONE}


def explore(design: Design, start: World) -> Findings:
    return explorer.explore(Journal(design), start)


def right(design: Design, start: World, states: int = 80) -> None:
    """Nothing is wrong in any order, and there were orders to look at."""
    findings = explore(design, start)
    assert not findings.faults, findings
    assert findings.states >= states


@BOTH
def test_votes_retracted_and_cast_by_two_at_once_are_folded(dialect: str) -> None:
    right(Design(dialect), world(cast((0, 1, 1), (0, 1, 0)), cast((0, 1, 1)), folds()))


@BOTH
def test_two_folders_that_leave_a_held_item_keep_the_invariants(dialect: str) -> None:
    start = world(cast((0, 1, 1)), folds(), folds(), actor("holder", (0,)))
    right(Design(dialect), start)


@BOTH
def test_a_batch_with_a_held_item_writes_the_others(dialect: str) -> None:
    batch = actor("voter", ((0, 1, 1), (1, 1, 1)))
    start = world(batch, folds(), actor("holder", (1,)), items=(0, 0))
    right(Design(dialect), start)


@BOTH
def test_two_folders_with_pages_of_one_row_keep_the_invariants(dialect: str) -> None:
    start = world(cast((0, 1, 1)), folds(2), folds(), **VOTED)
    right(Design(dialect, page=1), start)


DRIFTED: dict[str, Any] = {"items": (3,), "cells": (((0, OPENING), Cell(2, 1)), *CELL_OF_ONE)}


# An opening balance, a vote of user 9, and one that nobody has cast.
DRIFTED_VOTES: dict[str, Any] = {
    "items": (4,),
    "votes": (((0, 9), 1),),
    "cells": (((0, OPENING), Cell(2, 1)), ((0, -1), Cell(2, 1))),
}


@BOTH
def test_two_reconciles_add_a_drift_once_beside_voters_and_a_fold(dialect: str) -> None:
    reconcile = actor("reconciler", ())
    start = world(cast((0, 1, 1)), folds(), reconcile, reconcile, **DRIFTED)
    right(Design(dialect, drifts=(0, -1)), start)


@BOTH
def test_a_switch_to_naive_beside_voters_and_late_folds_keeps_the_invariants(dialect: str) -> None:
    start = world(
        cast((0, 1, 1)),
        actor("naive_voter", (0, 2, 1)),
        folds(),
        folds(),
        actor("switcher", ("item",)),
    )
    right(Design(dialect), start)


@BOTH
def test_switching_to_naive_and_back_keeps_the_invariants(dialect: str) -> None:
    start = world(
        cast((0, 1, 1)),
        actor("naive_voter", (0, 2, 1)),
        folds(),
        actor("switcher", ("item",), ("journal",)),
    )
    right(Design(dialect), start)


@BOTH
def test_tables_of_an_older_release_are_migrated_under_its_voters(dialect: str) -> None:
    start = world(
        slotted((0, 1, 1, 0), mark="cells"),
        cast((0, 2, 1)),
        folds(),
        actor("switcher", ("journal",)),
        actor("switcher", ("journal",)),
        mark="cells",
        votes=(((0, 9), 1),),
        cells=(((0, 0), Cell(1, 4)),),
        items=(1,),
    )
    right(Design(dialect, lags=True), start)


@BOTH
def test_a_removed_item_leaves_nothing(dialect: str) -> None:
    start = world(cast((0, 1, 1)), folds(), folds(), actor("remover", (0,)), **VOTED)
    right(Design(dialect), start)


@BOTH
@pytest.mark.parametrize("how", [(), ("keep",)])
def test_a_removal_beside_all_others_leaves_nothing(dialect: str, how: tuple[str, ...]) -> None:
    start = world(
        actor("eraser", ((0, 9),)),
        folds(),
        actor("reconciler", ()),
        actor("remover", (0, *how)),
        deaths=1,
        **DRIFTED_VOTES,
    )
    right(Design(dialect, drifts=(0, -1)), start)


@BOTH
def test_two_removals_of_an_item_beside_a_voter_leave_what_was_voted_since(dialect: str) -> None:
    removal = actor("remover", (0, "keep"))
    right(Design(dialect), world(cast((0, 1, 1)), folds(), removal, removal, **VOTED))


@pytest.mark.parametrize("foreign_key", [True, False])
def test_a_single_statement_vote_beside_a_removal_keeps_all(foreign_key: bool) -> None:
    start = world(
        actor("short_voter", (0, 9, 0), (0, 1, 1)), folds(), actor("remover", (0,)), **VOTED
    )
    right(Design(foreign_key=foreign_key), start)


@BOTH
def test_slotted_and_batched_side_by_side_keep_the_invariants(dialect: str) -> None:
    start = world(cast((0, 1, 1)), slotted((0, 2, 1, 0)), folds(), folds())
    findings = explore(Design(dialect, lags=True), start)
    assert not findings.faults, findings
    assert ("folder", "slotted_voter") not in findings.waits


@BOTH
def test_a_late_fold_does_not_undo_a_flush(dialect: str) -> None:
    start = world(cast((0, 1, 1)), slotted((0, 2, 1, 0)), folds(), actor("flusher", (0,)))
    right(Design(dialect, lags=True), start)


@BOTH
def test_copies_rise_with_the_votes_whoever_writes_them(dialect: str) -> None:
    start = world(
        cast((0, 1, 1), (0, 2, 1)), folds(), folds(), actor("filler", (0,)), actor("holder", (0,))
    )
    right(Design(dialect, copies=True), start)


@BOTH
def test_an_actor_that_dies_at_any_step_loses_no_vote(dialect: str) -> None:
    start = world(*both(), folds(), actor("reconciler", ()), deaths=1)
    right(Design(dialect, copies=True), start)


@BOTH
def test_a_voter_blocks_only_a_switch_and_voters_of_the_same_vote(dialect: str) -> None:
    start = world(
        cast((0, 1, 1)),
        cast((0, 1, 0)),
        folds(),
        actor("reconciler", ()),
        actor("switcher", ("item",)),
    )
    findings = explore(Design(dialect), start)
    waited = {who for who, whom in findings.waits if whom == "voter"}
    assert waited == {"voter", "switcher"}
    # And a fold waits for nobody at all.
    assert not {whom for who, whom in findings.waits if who == "folder"}


MISREAD = "a reader counts what never was"
READERS = [
    pytest.param("postgres", "locking_reader", (0,), True, id="for update: item and journal"),
    pytest.param("postgres", "locking_cells_reader", (0,), False, id="for update: cells"),
    pytest.param("mariadb", "updating_reader", (0, "item"), True, id="after its update: item"),
    pytest.param("mariadb", "updating_reader", (0, "cells"), False, id="after its update: cells"),
]


@pytest.mark.parametrize(("dialect", "reader", "entry", "wrong"), READERS)
def test_a_reader_misreads_only_in_the_orders_marked_wrong(
    dialect: str, reader: str, entry: tuple[Any, ...], wrong: bool
) -> None:
    findings = explore(Design(dialect), world(*both(), folds(), actor(reader, entry)))
    assert set(findings.faults) == ({MISREAD} if wrong else set())


def wrong(design: Design, start: World, fault: str) -> None:
    findings = explore(design, start)
    assert fault in findings.faults, f"not found in {findings.states} states: {findings}"


UNEQUAL = "cells and journal are not the votes"
BEHIND = "vote_count is behind, and no fold will come back"
NAIVE = "vote_count is not the votes"
BACK = "a count in the cache falls back"
ORPHAN = "an item that is gone is counted"


def test_a_fold_that_shares_a_slot_with_slotted_voters_waits_for_them() -> None:
    start = world(cast((0, 1, 1)), slotted((0, 2, 1, 0)), slotted((0, 3, 1, 1)), folds())
    findings = explore(Design(fold_slot=0, lags=True), start)
    assert ("folder", "slotted_voter") in findings.waits


def test_a_journal_that_is_truncated_is_empty_to_an_older_snapshot() -> None:
    start = world(cast((0, 1, 1)), folds(), actor("dump_reader", (0,)))
    wrong(Design(fold_truncates=True), start, MISREAD)
    right(Design(), start)


@BOTH
@pytest.mark.parametrize("lock", ["none", "inside"])
def test_two_reconciles_add_twice_without_a_lock(dialect: str, lock: str) -> None:
    reconcile = actor("reconciler", ())
    design = Design(dialect, reconcile_lock=lock, drifts=(0, -1))
    wrong(design, world(reconcile, reconcile, **DRIFTED), UNEQUAL)


@BOTH
def test_a_reconcile_that_ignores_pending_adds_it_again(dialect: str) -> None:
    start = world(cast((0, 1, 1)), actor("reconciler", ()))
    wrong(Design(dialect, reconcile_pending=False), start, UNEQUAL)


@BOTH
def test_a_copy_that_includes_pending_votes_goes_back_to_a_lower_count(dialect: str) -> None:
    start = world(*both(), folds(), actor("filler", (0,)))
    wrong(Design(dialect, copies=True, copy_has_pending=True), start, BACK)


@BOTH
def test_copies_without_versions_go_back_to_an_older_count(dialect: str) -> None:
    start = world(cast((0, 1, 1), (0, 2, 1)), folds(), folds())
    wrong(Design(dialect, copies=True, copy_is_versioned=False), start, BACK)


@pytest.mark.parametrize(
    ("dialect", "stops_folds"), [("postgres", True), ("postgres", False), ("mariadb", False)]
)
def test_a_late_fold_overwrites_naive_counts(dialect: str, stops_folds: bool) -> None:
    # On PostgreSQL a fold may get its lock with a snapshot of before the switch, mark and all. So
    # either it looks at the mark again, with a lock, or it finds that its rows are gone.
    start = world(
        cast((0, 1, 1)), actor("naive_voter", (0, 2, 1)), folds(), actor("switcher", ("item",))
    )
    design = Design(
        dialect, switch_stops_folds=stops_folds, switch_empties=False, fold_holds_mark=False
    )
    wrong(design, start, NAIVE)
    right(Design(dialect, switch_empties=False), start)
    right(Design(dialect, fold_holds_mark=False), start)


@BOTH
def test_a_switch_that_does_not_wait_for_voters_loses_their_votes(dialect: str) -> None:
    start = world(cast((0, 1, 1)), actor("switcher", ("item",)))
    if dialect == "postgres":
        wrong(Design(dialect, switch_stops_voters=False), start, NAIVE)
    else:
        wrong(Design(dialect, mark_held=False), start, NAIVE)


@BOTH
def test_a_fold_that_does_not_come_back_leaves_held_items_behind(dialect: str) -> None:
    start = world(cast((0, 1, 1)), folds(), actor("holder", (0,)))
    wrong(Design(dialect, fold_comes_back=False), start, BEHIND)


@BOTH
def test_a_fold_that_does_not_pass_over_held_items_waits_for_their_holders(dialect: str) -> None:
    start = world(cast((0, 1, 1)), folds(), actor("holder", (0,)))
    findings = explore(Design(dialect, fold_waits=True), start)
    assert ("folder", "holder") in findings.waits
    assert ("folder", "holder") not in explore(Design(dialect), start).waits


def test_a_fold_that_sums_its_page_and_not_what_it_deleted_counts_twice() -> None:
    start = world(cast((0, 1, 1)), folds(), folds())
    wrong(Design(fold_sums="page"), start, UNEQUAL)


@BOTH
def test_two_folds_at_once_wait_for_each_other(dialect: str) -> None:
    start = world(*both(), folds(), folds())
    findings = explore(Design(dialect, fold_alone=False), start)
    assert ("folder", "folder") in findings.waits


@BOTH
def test_a_removal_beside_a_fold_leaves_a_cell_behind(dialect: str) -> None:
    start = world(cast((0, 1, 1)), folds(), actor("remover", (0,)))
    design = Design(dialect, removal_stops_folds=False, removal_order=("votes", "cells", "rows"))
    wrong(design, start, ORPHAN)


@BOTH
@pytest.mark.parametrize("order", [("rows", "cells", "votes"), ("rows", "votes", "cells")])
def test_a_removal_that_deletes_the_journal_before_the_votes_leaves_what_an_erasure_took(
    dialect: str, order: tuple[str, ...]
) -> None:
    # The vote comes after the removal's first pages.
    start = world(cast((0, 9, 1)), actor("eraser", ((0, 9),)), actor("remover", (0,)))
    wrong(Design(dialect, removal_order=order), start, ORPHAN)


@BOTH
def test_a_removal_beside_reconciles_is_given_an_old_difference(dialect: str) -> None:
    start = world(actor("reconciler", ()), actor("remover", (0,)), **DRIFTED)
    wrong(Design(dialect, removal_stops_reconciles=False, drifts=(0, -1)), start, ORPHAN)


@BOTH
def test_a_removal_without_the_item_forgets_a_vote(dialect: str) -> None:
    start = world(cast((0, 1, 1)), actor("remover", (0, "keep")), **VOTED)
    wrong(Design(dialect, removal_holds_item=False), start, UNEQUAL)


def test_the_short_form_without_a_foreign_key_or_a_join_votes_for_missing_items() -> None:
    start = world(actor("short_voter", (0, 1, 1)), actor("remover", (0,)))
    wrong(Design(foreign_key=False, short_joins_item=False), start, ORPHAN)


@BOTH
def test_votes_of_slotted_beside_a_cache_may_fall_back_there(dialect: str) -> None:
    # A limit, and not a way to avoid: a fold publishes the slots that its statement sees. Whoever
    # has read a newer one before, with the version of the fold before, is overwritten.
    start = world(
        cast((0, 1, 1)),
        slotted((0, 2, 1, 0)),
        folds(),
        actor("filler", (0,)),
        journal=frozenset([Row((9, 0), 0, 0)]),
    )
    wrong(Design(dialect, copies=True, lags=True), start, BACK)


@pytest.mark.long
@pytest.mark.timeout(900)
@BOTH
@pytest.mark.parametrize("page", [0, 1])
def test_every_actor_at_once_keeps_the_invariants_in_larger_bounds(dialect: str, page: int) -> None:
    voters = (cast((0, 1, 1), (0, 1, 0)), cast((0, 1, 1)))
    held = world(*voters, folds(), folds(), actor("holder", (0,)))
    right(Design(dialect, page=page), held, 2_000)
    # Counts that only rise, so that copies may not fall.
    design = Design(dialect, page=page, copies=True, drifts=(0, 1))
    missed: dict[str, Any] = {"items": (0,), "votes": (((0, 9), 1),)}
    reconcile = actor("reconciler", ())
    right(design, world(*both(), folds(), folds(), reconcile, **missed), 2_000)
    two = actor("voter", ((0, 1, 1), (1, 1, 1)))
    right(design, world(two, two, folds(), actor("holder", (1,)), items=(0, 0)), 1_000)


@pytest.mark.long
@pytest.mark.timeout(900)
@BOTH
def test_switches_and_removals_keep_the_invariants_in_larger_bounds(dialect: str) -> None:
    switches = actor("switcher", ("item",), ("journal",))
    naive = actor("naive_voter", (0, 2, 1), (0, 3, 1))
    right(Design(dialect), world(cast((0, 1, 1)), naive, folds(2), switches, deaths=1), 1_000)
    removal = world(*both(), folds(), folds(), actor("remover", (0,)), actor("reconciler", ()))
    right(Design(dialect), removal, 1_000)
    mixed = world(*both(), slotted((0, 3, 1, 0)), slotted((0, 4, 1, 1)), folds())
    right(Design(dialect, lags=True), mixed, 1_000)


def crowd() -> World:
    """More than can be explored: of everything that runs at once under the mark 'journal'."""
    voters = [
        actor("voter", *(((0, user, val), (1, user, val)) for val in (1, 0, 1)))
        for user in (1, 1, 2, 3)
    ]
    others = [
        folds(4),
        folds(4),
        actor("reconciler", (), ()),
        actor("reconciler", ()),
        actor("holder", (0,), (1,), (0,)),
    ]
    return world(*voters, *others, items=(0, 0), deaths=3)


def simulate(design: Design, walks: int) -> Findings:
    return explorer.simulate(Journal(design), crowd(), seed=SEED, walks=walks)


@BOTH
def test_random_orders_of_many_actors_keep_the_invariants(dialect: str) -> None:
    findings = simulate(Design(dialect, page=1), walks=30)
    assert not findings.faults, f"seed {SEED}: {findings}"
    assert findings.states > 1_000


@pytest.mark.long
@pytest.mark.timeout(900)
@BOTH
def test_many_random_orders_of_many_actors_keep_the_invariants(dialect: str) -> None:
    findings = simulate(Design(dialect, page=1), walks=2_000)
    assert not findings.faults, f"seed {SEED}: {findings}"


@BOTH
def test_drawn_orders_find_a_reconcile_that_ignores_pending(dialect: str) -> None:
    findings = simulate(Design(dialect, reconcile_pending=False), walks=30)
    assert UNEQUAL in findings.faults
