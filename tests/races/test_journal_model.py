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


DRIFTED: dict[str, Any] = {"items": (3,), "cells": (((0, OPENING), Cell(2, 1)), *CELL_OF_ONE)}
# An opening balance, a vote of user 9, and one that nobody has cast.
DRIFTED_VOTES: dict[str, Any] = {
    "items": (4,),
    "votes": (((0, 9), 1),),
    "cells": (((0, OPENING), Cell(2, 1)), ((0, -1), Cell(2, 1))),
}
ONE, NAIVE_ONE, HOLDER = cast((0, 1, 1)), actor("naive_voter", (0, 2, 1)), actor("holder", (0,))
RECONCILE, TO_NAIVE = actor("reconciler", ()), actor("switcher", ("item",))
TO_JOURNAL, REMOVE = actor("switcher", ("journal",)), actor("remover", (0,))
KEEP_ITEM, ERASE = actor("remover", (0, "keep")), actor("eraser", ((0, 9),))
BESIDE_A_REMOVAL = (ERASE, folds(), RECONCILE)

# What keeps the invariants in every order of its steps: a world, and options of the design.
RIGHT: dict[str, tuple[World, dict[str, Any]]] = {
    "votes retracted and cast by two": (world(cast((0, 1, 1), (0, 1, 0)), ONE, folds()), {}),
    "two folders that leave a held item": (world(ONE, folds(), folds(), HOLDER), {}),
    "a batch with a held item writes the others": (
        world(
            *(actor("voter", ((0, 1, 1), (1, 1, 1))), folds(), actor("holder", (1,))), items=(0, 0)
        ),
        {},
    ),
    "pages of one row": (world(ONE, folds(2), folds(), **VOTED), {"page": 1}),
    "two reconciles add a drift once": (
        world(ONE, folds(), RECONCILE, RECONCILE, **DRIFTED),
        {"drifts": (0, -1)},
    ),
    "a switch to naive beside voters and late folds": (
        world(ONE, NAIVE_ONE, folds(), folds(), TO_NAIVE),
        {},
    ),
    "switching to naive and back": (
        world(ONE, NAIVE_ONE, folds(), actor("switcher", ("item",), ("journal",))),
        {},
    ),
    "tables of an older release are migrated under its voters": (
        world(
            *(slotted((0, 1, 1, 0), mark="cells"), cast((0, 2, 1)), folds()),
            *(TO_JOURNAL, TO_JOURNAL),
            mark="cells",
            items=(1,),
            votes=(((0, 9), 1),),
            cells=(((0, 0), Cell(1, 4)),),
        ),
        {"lags": True},
    ),
    "a removed item leaves nothing": (world(ONE, folds(), folds(), REMOVE, **VOTED), {}),
    "a removal beside all others": (
        world(*BESIDE_A_REMOVAL, REMOVE, deaths=1, **DRIFTED_VOTES),
        {"drifts": (0, -1)},
    ),
    "a removal that keeps the item beside all others": (
        world(*BESIDE_A_REMOVAL, KEEP_ITEM, deaths=1, **DRIFTED_VOTES),
        {"drifts": (0, -1)},
    ),
    "two removals leave what was voted since": (
        world(ONE, folds(), KEEP_ITEM, KEEP_ITEM, **VOTED),
        {},
    ),
    "a late fold does not undo a flush": (
        world(ONE, slotted((0, 2, 1, 0)), folds(), actor("flusher", (0,))),
        {"lags": True},
    ),
    "copies rise with the votes whoever writes them": (
        world(cast((0, 1, 1), (0, 2, 1)), folds(), folds(), actor("filler", (0,)), HOLDER),
        {"copies": True},
    ),
    "an actor that dies at any step loses no vote": (
        world(*both(), folds(), RECONCILE, deaths=1),
        {"copies": True},
    ),
}


@BOTH
@pytest.mark.parametrize(("start", "options"), RIGHT.values(), ids=RIGHT)
def test_the_invariants_are_kept_in_every_order(
    dialect: str, start: World, options: dict[str, Any]
) -> None:
    right(Design(dialect, **options), start)


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


# What looks right and is not: a world, options of the design, and what the checks find.
WRONG: dict[str, tuple[World, dict[str, Any], str]] = {
    **{
        f"two reconciles add twice, locked: {lock}": (
            world(RECONCILE, RECONCILE, **DRIFTED),
            {"reconcile_lock": lock, "drifts": (0, -1)},
            UNEQUAL,
        )
        for lock in ("none", "inside")
    },
    "a reconcile that ignores pending adds it again": (
        world(ONE, RECONCILE),
        {"reconcile_pending": False},
        UNEQUAL,
    ),
    "a copy that includes pending votes goes back to a lower count": (
        world(*both(), folds(), actor("filler", (0,))),
        {"copies": True, "copy_has_pending": True},
        BACK,
    ),
    "copies without versions go back to an older count": (
        world(cast((0, 1, 1), (0, 2, 1)), folds(), folds()),
        {"copies": True, "copy_is_versioned": False},
        BACK,
    ),
    "a fold that does not come back leaves held items behind": (
        world(ONE, folds(), HOLDER),
        {"fold_comes_back": False},
        BEHIND,
    ),
    "a removal beside a fold leaves a cell behind": (
        world(ONE, folds(), REMOVE),
        {"removal_stops_folds": False, "removal_order": ("votes", "cells", "rows")},
        ORPHAN,
    ),
    # The vote comes after the removal's first pages, and the journal goes before the votes.
    **{
        f"a removal leaves what an erasure took: {order}": (
            world(cast((0, 9, 1)), ERASE, REMOVE),
            {"removal_order": tuple(order.split())},
            ORPHAN,
        )
        for order in ("rows cells votes", "rows votes cells")
    },
    "a removal that does not stop reconciles is given a difference of before": (
        world(RECONCILE, REMOVE, **DRIFTED),
        {"removal_stops_reconciles": False, "drifts": (0, -1)},
        ORPHAN,
    ),
    "a removal that does not hold the item forgets a vote that came between": (
        world(ONE, KEEP_ITEM, **VOTED),
        {"removal_holds_item": False},
        UNEQUAL,
    ),
    # A limit, and not a way to avoid: a fold publishes the slots that its statement sees. Whoever
    # has read a newer one before, with the version of the fold before, is overwritten.
    "votes of slotted beside a cache may fall back there": (
        world(
            *(ONE, slotted((0, 2, 1, 0)), folds(), actor("filler", (0,))),
            journal=frozenset([Row((9, 0), 0, 0)]),
        ),
        {"copies": True, "lags": True},
        BACK,
    ),
}


@BOTH
@pytest.mark.parametrize(("start", "options", "fault"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found(
    dialect: str, start: World, options: dict[str, Any], fault: str
) -> None:
    wrong(Design(dialect, **options), start, fault)


@pytest.mark.parametrize(
    ("start", "design", "fault"),
    [
        (world(ONE, folds(), folds()), Design(fold_sums="page"), UNEQUAL),
        (
            world(actor("short_voter", (0, 1, 1)), REMOVE),
            Design(foreign_key=False, short_joins_item=False),
            ORPHAN,
        ),
        (world(ONE, TO_NAIVE), Design("postgres", switch_stops_voters=False), NAIVE),
        (world(ONE, TO_NAIVE), Design("mariadb", mark_held=False), NAIVE),
    ],
    ids=[
        "a fold that sums its page and not what it deleted counts twice",
        "the short form without a foreign key or a join votes for missing items",
        *(f"a switch that does not wait for voters on {name}" for name in ("postgres", "mariadb")),
    ],
)
def test_what_is_wrong_in_one_dialect_is_found(start: World, design: Design, fault: str) -> None:
    wrong(design, start, fault)


def test_a_fold_that_shares_a_slot_with_slotted_voters_waits_for_them() -> None:
    start = world(cast((0, 1, 1)), slotted((0, 2, 1, 0)), slotted((0, 3, 1, 1)), folds())
    findings = explore(Design(fold_slot=0, lags=True), start)
    assert ("folder", "slotted_voter") in findings.waits


def test_a_journal_that_is_truncated_is_empty_to_an_older_snapshot() -> None:
    start = world(cast((0, 1, 1)), folds(), actor("dump_reader", (0,)))
    wrong(Design(fold_truncates=True), start, MISREAD)
    right(Design(), start)


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
def test_a_fold_that_does_not_pass_over_held_items_waits_for_their_holders(dialect: str) -> None:
    start = world(cast((0, 1, 1)), folds(), actor("holder", (0,)))
    findings = explore(Design(dialect, fold_waits=True), start)
    assert ("folder", "holder") in findings.waits
    assert ("folder", "holder") not in explore(Design(dialect), start).waits


@BOTH
def test_two_folds_at_once_wait_for_each_other(dialect: str) -> None:
    start = world(*both(), folds(), folds())
    findings = explore(Design(dialect, fold_alone=False), start)
    assert ("folder", "folder") in findings.waits


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
