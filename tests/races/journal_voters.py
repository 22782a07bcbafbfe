"""The steps of those that vote, fold and publish, for journal_model.py."""

from collections.abc import Iterator
from typing import Any

from tests.races.journal_world import (
    FOLD,
    FOLDING,
    MARK,
    VOTES,
    Cell,
    Design,
    World,
    applied,
    begun,
    cells_of,
    committed,
    counted_of,
    found,
    holders,
    locked,
    noted,
    pending_of,
    put,
    truth_of,
    wrote,
)

# -- voters -----------------------------------------------------------------------------


def voter(design: Design, world: World, me: int) -> Iterator[World]:
    """A batch of ballots (item, user, val): the general form of PostgreSQL, and MariaDB's."""
    actor = world.actors[me]
    if actor.step == "rest":
        world = locked(world, me, (VOTES, "share")) if design.dialect == "postgres" else world
        yield begun(world, me, "look")
    elif actor.step == "look":
        # The items' rows, those that others hold left out; on MariaDB the mark's row too.
        mode = "key share" if design.dialect == "postgres" else "share"
        free, held = [], []
        for ballot in actor.memo[0]:
            key = ("item", ballot[0])
            if holders(world, me, key, mode):
                held.append(ballot)
            elif world.tables.items[ballot[0]] is not None:
                world = locked(world, me, (key, mode))
                free.append(ballot)
        assert actor.sees is not None
        mark = actor.sees.mark
        if design.dialect == "mariadb" and design.mark_held and free:
            world = locked(world, me, (MARK, "share"))
            mark = world.tables.mark
        if mark != "journal":
            yield committed(world, me)
        else:
            # What is held is looked at again by a statement of its own.
            script = ((tuple(held),) if held else ()) + actor.script
            yield put(world, me, step="write", memo=tuple(free), script=script)
    elif actor.step == "write" and actor.memo:
        yield upserted(world, me, actor.memo[0], actor.memo[1:])
    else:
        yield committed(world, me)


def upserted(world: World, me: int, ballot: tuple[int, int, int], left: tuple[Any, ...]) -> World:
    item, user, val = ballot
    world = locked(world, me, (("vote", item, user), "update"))
    prev = found(world.tables.votes, (item, user))
    if prev == val:
        return put(world, me, memo=left)
    world = wrote(world, me, ("vote", (item, user), val))
    diff = val - (prev or 0)
    return noted(put(world, me, memo=left), me, *([(item, diff)] if diff else []))


def short_voter(design: Design, world: World, me: int) -> Iterator[World]:
    """One ballot in the short form of PostgreSQL, which does not look at the item first."""
    actor = world.actors[me]
    if actor.step == "rest":
        yield begun(locked(world, me, (VOTES, "share")), me, "write")
    elif actor.step == "write":
        assert actor.sees is not None
        (ballot,) = actor.memo
        key = ("item", ballot[0])
        if not design.foreign_key and design.short_joins_item:
            world = locked(world, me, (key, "key share"))
            if world.tables.items[ballot[0]] is None:
                yield committed(world, me)
                return
        if actor.sees.mark != "journal":
            yield committed(world, me)
            return
        new = found(world.tables.votes, ballot[:2]) is None
        world = upserted(world, me, ballot, (ballot, new))
        yield put(world, me, step="check", sees=None)
    elif actor.step == "check":
        ballot, new = actor.memo
        if design.foreign_key and new:
            world = locked(world, me, (("item", ballot[0]), "key share"))
            if world.tables.items[ballot[0]] is None:
                world = put(world, me, writes=())  # Refused by the foreign key.
        yield put(world, me, step="commit")
    else:
        yield committed(world, me)


def slotted_voter(design: Design, world: World, me: int) -> Iterator[World]:
    """A vote that counts in a slot of its own, under the mark that its script says."""
    actor = world.actors[me]
    if actor.step == "rest":
        world = locked(world, me, (VOTES, "share")) if design.dialect == "postgres" else world
        yield begun(world, me, "write")
    elif actor.step == "write":
        item, user, val, slot, place = actor.memo[0]
        mark = actor.sees.mark if actor.sees else ""
        if design.dialect == "mariadb":
            world = locked(world, me, (MARK, "share"))
            mark = world.tables.mark
        if mark != place:
            yield committed(world, me)
            return
        world = locked(world, me, (("vote", item, user), "update"))
        diff = val - (found(world.tables.votes, (item, user)) or 0)
        world = wrote(world, me, ("vote", (item, user), val))
        yield put(world, me, step="count", memo=(item, slot, diff), sees=None)
    elif actor.step == "count":
        item, slot, diff = actor.memo
        world = locked(world, me, (("cell", item, slot), "update"))
        cell = found(world.tables.cells, (item, slot)) or Cell(0, 0)
        world = wrote(world, me, ("cell", (item, slot), Cell(cell.n + diff, cell.ver + 1)))
        yield put(world, me, step="commit")
    else:
        yield committed(world, me)


def naive_voter(design: Design, world: World, me: int) -> Iterator[World]:
    """A vote under the mark 'item', which counts in vote_count."""
    actor = world.actors[me]
    if actor.step == "rest":
        world = locked(world, me, (VOTES, "share")) if design.dialect == "postgres" else world
        yield begun(world, me, "write")
    elif actor.step == "write":
        item, user, val = actor.memo[0]
        mark = actor.sees.mark if actor.sees else ""
        if design.dialect == "mariadb":
            world = locked(world, me, (MARK, "share"))
            mark = world.tables.mark
        if mark != "item":
            yield committed(world, me)
            return
        world = locked(world, me, (("vote", item, user), "update"))
        diff = val - (found(world.tables.votes, (item, user)) or 0)
        world = wrote(world, me, ("vote", (item, user), val))
        yield put(world, me, step="count", memo=(item, diff), sees=None)
    elif actor.step == "count":
        item, diff = actor.memo
        world = locked(world, me, (("item", item), "no key update"))
        count = world.tables.items[item]
        assert count is not None
        yield put(wrote(world, me, ("item", item, count + diff)), me, step="commit")
    else:
        yield committed(world, me)


# -- the fold ---------------------------------------------------------------------------


def folder(design: Design, world: World, me: int) -> Iterator[World]:
    actor = world.actors[me]
    postgres = design.dialect == "postgres"
    if actor.step == "rest":
        if design.fold_truncates:
            # LOCK TABLE, which waits for every voter.
            yield begun(locked(world, me, (VOTES, "update")), me, "alone")
        elif postgres and not design.fold_locks_in_its_statement:
            # Variant: the lock is a statement of its own, before the fold's.
            if holders(world, me, FOLDING, "update"):
                yield put(world, me, script=actor.script[1:])
                return
            world = locked(world, me, (FOLDING, "update"))
            yield put(world, me, step="begin")
        else:
            yield begun(world, me, "alone")
    elif actor.step == "begin":
        yield begun(world, me, "alone")
    elif actor.step == "alone":
        assert actor.sees is not None
        if design.fold_alone:
            if holders(world, me, FOLDING, "update"):
                yield committed(world, me)
                return
            world = locked(world, me, (FOLDING, "update"))
        mark = (actor.sees if postgres else world.tables).mark
        if design.fold_holds_mark:
            if holders(world, me, MARK, "share"):
                yield committed(world, me)
                return
            world = locked(world, me, (MARK, "share"))
            mark = mark if mark != "journal" else world.tables.mark
        if mark != "journal":
            yield committed(world, me)
        else:
            yield put(world, me, step="take")
    elif actor.step == "take":
        yield from taken(design, world, me)
    elif actor.step == "move":
        sums = dict(actor.memo)
        slot = design.fold_slot
        world = locked(world, me, *((("cell", item, slot), "update") for item in sums))
        for item, diff in sorted(sums.items()):
            cell = found(world.tables.cells, (item, slot)) or Cell(0, 0)
            world = wrote(world, me, ("cell", (item, slot), Cell(cell.n + diff, cell.ver + 1)))
        yield put(world, me, step="show", memo=tuple(sorted(sums)))
    elif actor.step == "show":
        yield shown(design, world, me)
    elif actor.step == "commit":
        memo = actor.memo if design.copies else ()
        yield committed(world, me, "publish" if memo else "rest", memo)
    elif actor.step == "publish":
        for item, copy in actor.memo:
            world = published(design, world, item, copy)
        yield put(world, me, step="rest", memo=())


def flusher(design: Design, world: World, me: int) -> Iterator[World]:
    """flush(): with the fold's lock held, in the next statement, it folds all and shows all."""
    actor = world.actors[me]
    if actor.step == "rest":
        # As any caller: what was committed before the call must be shown after it.
        world = begun(world, me, "lock", truth_of(world.tables, actor.script[0][0]))
        yield put(world, me, sees=None)
        return
    (item,), owed = actor.memo
    if actor.step == "lock":
        yield put(locked(world, me, (FOLDING, "update")), me, step="begin")
    elif actor.step == "begin":
        yield put(world, me, step="write", sees=world.tables)
    elif actor.step == "write":
        sees = actor.sees
        assert sees is not None
        cell = found(sees.cells, (item, FOLD)) or Cell(0, 0)
        n = cell.n + pending_of(sees, item)
        rows = sorted(row for row in sees.journal if row.item == item)
        world = locked(world, me, *((("row", row.by), "update") for row in rows))
        world = locked(world, me, (("cell", item, FOLD), "update"), (("item", item), "update"))
        world = wrote(world, me, *(("unnote", row) for row in rows))
        world = wrote(world, me, ("cell", (item, FOLD), Cell(n, cell.ver + 1)))
        world = wrote(world, me, ("item", item, n + cells_of(sees, item, FOLD)))
        yield put(world, me, step="commit", sees=None)
    else:
        yield committed(world, me, "rest", ("flushed", item, owed))


def taken(design: Design, world: World, me: int) -> Iterator[World]:
    """The page, deleted; its sums."""
    actor = world.actors[me]
    assert actor.sees is not None
    if design.dialect == "mariadb":
        there = {
            row for row in world.tables.journal if not holders(world, me, ("row", row.by), "update")
        }
    else:
        there = set(actor.sees.journal)
    pages = [tuple(sorted(there))]
    if design.page and len(there) > design.page:
        pages = [(row,) for row in sorted(there)]
    for page in pages:
        after = locked(world, me, *((("row", row.by), "update") for row in page))
        gone = [row for row in page if row in after.tables.journal]
        summed = gone if design.fold_sums == "deleted" else page
        sums: dict[int, int] = {}
        for row in summed:
            sums[row.item] = sums.get(row.item, 0) + row.diff
        if not sums:
            yield committed(after, me)
            continue
        if design.fold_truncates:
            after = wrote(after, me, ("truncate",))
        else:
            after = wrote(after, me, *(("unnote", row) for row in gone))
        yield put(after, me, step="move", memo=tuple(sorted(sums.items())))


def shown(design: Design, world: World, me: int) -> World:
    """vote_count of the items that nobody holds; the others get a row that brings the fold back."""
    actor = world.actors[me]
    postgres = design.dialect == "postgres"
    mode = "no key update" if postgres else "update"
    # MariaDB's update reads the cells anew; PostgreSQL's is a part of the one statement.
    other = actor.sees if postgres else world.tables
    mine = applied(world.tables, actor.writes)
    assert other is not None
    copies = []
    for item in actor.memo:
        cell = found(mine.cells, (item, design.fold_slot))
        total = cell.n + cells_of(other, item, design.fold_slot)
        there = world.tables.items[item] is not None
        copies.append((item, Cell(total, cell.ver)))
        key = ("item", item)
        if there and (design.fold_waits or not holders(world, me, key, mode)):
            world = wrote(locked(world, me, (key, mode)), me, ("item", item, total))
        elif there and design.fold_comes_back:
            world = noted(world, me, (item, 0))
    return put(world, me, step="commit", sees=None, memo=tuple(copies))


def published(design: Design, world: World, item: int, copy: Cell) -> World:
    old = world.copies[item]
    if design.copy_is_versioned and old is not None and old.ver >= copy.ver:
        return world
    return world._replace(copies=(*world.copies[:item], copy, *world.copies[item + 1 :]))


def filler(design: Design, world: World, me: int) -> Iterator[World]:
    """A reader that finds no copy: reads one from SQL, puts it there."""
    actor = world.actors[me]
    if actor.step == "rest":
        (item,) = actor.script[0]
        cell = found(world.tables.cells, (item, FOLD))
        read = counted_of if design.copy_has_pending else cells_of
        n = read(world.tables, item)
        world = begun(world, me, "publish")
        yield put(world, me, sees=None, memo=(item, Cell(n, cell.ver if cell else 0)))
    else:
        item, copy = actor.memo
        yield put(published(design, world, item, copy), me, step="rest", memo=())
