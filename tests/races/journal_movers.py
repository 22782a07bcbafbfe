"""The steps of those that move counts, hold items and read, for journal_model.py."""

from collections.abc import Iterator

from tests.races.journal_world import (
    FOLD,
    FOLDING,
    MARK,
    RECONCILING,
    VOTES,
    Cell,
    Design,
    Tables,
    World,
    applied,
    begun,
    cells_of,
    committed,
    counted_of,
    found,
    locked,
    noted,
    pending_of,
    put,
    truth_of,
    wrote,
)

# -- who moves counts -------------------------------------------------------------------


def reconciler(design: Design, world: World, me: int) -> Iterator[World]:
    """Appends, for each item, by how much the votes differ from what is counted."""
    actor = world.actors[me]
    if actor.step == "rest":
        if design.reconcile_lock == "before":
            world = locked(world, me, (RECONCILING, "update"))
        yield put(world, me, step="read", script=actor.script[1:])
    elif actor.step == "read":
        yield put(world, me, step="write", sees=world.tables)
    elif actor.step == "write":
        if design.reconcile_lock == "inside":
            world = locked(world, me, (RECONCILING, "update"))
        sees = actor.sees
        assert sees is not None
        for item, count in enumerate(sees.items):
            truth = truth_of(sees, item)
            counted = counted_of(sees, item) if design.reconcile_pending else cells_of(sees, item)
            if truth != counted or (count is not None and truth != count):
                world = noted(world, me, (item, truth - counted))
        yield put(world, me, step="commit", sees=None)
    else:
        yield committed(world, me)


def switcher(design: Design, world: World, me: int) -> Iterator[World]:
    """To the place that its script says, 'item' or 'journal', in one transaction."""
    actor = world.actors[me]
    if actor.step == "rest":
        world = locked(world, me, (FOLDING, "update")) if design.switch_stops_folds else world
        yield put(world, me, step="mark", script=actor.script[1:], memo=actor.script[0])
    elif actor.step == "mark":
        # All marks are locked, in the order of their names.
        yield put(locked(world, me, (MARK, "update"), (RECONCILING, "update")), me, step="lock")
    elif actor.step == "lock":
        if design.switch_stops_voters and design.dialect == "postgres":
            world = locked(world, me, (VOTES, "update"))
        yield put(world, me, step="read")
    elif actor.step == "read":
        yield put(world, me, step="write", sees=world.tables)
    elif actor.step == "write":
        (place,) = actor.memo
        sees = actor.sees
        assert sees is not None
        yield put(switched(design, world, me, sees, place), me, step="commit", sees=None)
    else:
        yield committed(world, me)


def switched(design: Design, world: World, me: int, sees: Tables, place: str) -> World:
    if sees.mark == place:
        return world
    if design.switch_empties:
        # Rows that another transaction deletes are waited for.
        world = locked(world, me, *((("row", row.by), "update") for row in sees.journal))
        world = wrote(world, me, *(("unnote", row) for row in sees.journal))
    for item, count in enumerate(sees.items):
        if count is None:
            continue
        truth = truth_of(sees, item)
        world = locked(world, me, (("item", item), "no key update"))
        if place == "journal":
            world = locked(world, me, (("cell", item, FOLD), "update"))
            cell = found(sees.cells, (item, FOLD)) or Cell(0, 0)
            n = cell.n + truth - cells_of(sees, item)
            world = wrote(world, me, ("cell", (item, FOLD), Cell(n, cell.ver + 1)))
        world = wrote(world, me, ("item", item, truth))
    return wrote(world, me, ("mark", place))


def votes_taken(world: World, me: int, *keys: tuple[int, int]) -> World:
    """Locked, then deleted, with a journal row for each item that they counted for."""
    world = locked(world, me, *((("vote", *key), "update") for key in keys))
    sums: dict[int, int] = {}
    for key in keys:
        # As committed last: whoever held it may have changed it.
        val = found(world.tables.votes, key)
        if val is not None:
            world = wrote(world, me, ("vote", key, None))
            sums[key[0]] = sums.get(key[0], 0) - val
    return noted(world, me, *((item, diff) for item, diff in sums.items() if diff))


def eraser(design: Design, world: World, me: int) -> Iterator[World]:
    """Takes a user's votes (item, user) out in a page: it holds the votes, and no item."""
    actor = world.actors[me]
    if actor.step == "rest":
        world = votes_taken(world, me, *actor.script[0])
        yield put(world, me, step="commit", script=actor.script[1:])
    else:
        yield committed(world, me)


def remover(design: Design, world: World, me: int) -> Iterator[World]:
    """Removes the votes for an item in a page; then, in one transaction, what is left of them, what
    counted it, and the row. Each DELETE is a statement with a snapshot.

    The script: (item,), or (item, "keep") if the row stays.
    """
    actor = world.actors[me]
    if actor.step == "rest":
        item = actor.script[0][0]
        world = votes_taken(world, me, *(key for key, _ in world.tables.votes if key[0] == item))
        yield put(world, me, step="page", script=actor.script[1:], memo=actor.script[0])
        return
    item, *keep = actor.memo
    if actor.step == "page":
        yield committed(world, me, "folds", actor.memo)
    elif actor.step == "folds":
        world = locked(world, me, (FOLDING, "update")) if design.removal_stops_folds else world
        yield put(world, me, step="reconciles")
    elif actor.step == "reconciles":
        if design.removal_stops_reconciles:
            world = locked(world, me, (RECONCILING, "update"))
        yield put(world, me, step="item")
    elif actor.step == "item":
        if design.removal_holds_item:
            world = locked(world, me, (("item", item), "update"))
        yield put(world, me, step=design.removal_order[0])
    elif actor.step == "commit":
        yield committed(world, me)
    elif actor.step == "row":
        world = locked(world, me, (("item", item), "update"))
        yield put(wrote(world, me, ("item", item, 0 if keep else None)), me, step="commit")
    elif actor.sees is None:
        yield put(world, me, sees=applied(world.tables, actor.writes))
    else:
        order = (*design.removal_order, "row")
        then = order[order.index(actor.step) + 1]
        sees = actor.sees
        if actor.step == "votes":
            world = votes_taken(world, me, *(key for key, _ in sees.votes if key[0] == item))
        elif actor.step == "rows":
            rows = [row for row in sees.journal if row.item == item]
            world = locked(world, me, *((("row", row.by), "update") for row in rows))
            world = wrote(world, me, *(("unnote", row) for row in rows))
        else:
            cells = [key for key, _ in sees.cells if key[0] == item]
            world = locked(world, me, *((("cell", *key), "update") for key in cells))
            world = wrote(world, me, *(("cell", key, None) for key in cells))
        yield put(world, me, step=then, sees=None)


def holder(design: Design, world: World, me: int) -> Iterator[World]:
    """The application: it holds an item's row for as long as it likes."""
    actor = world.actors[me]
    if actor.step == "rest":
        (item,) = actor.script[0]
        yield begun(locked(world, me, (("item", item), "update")), me, "hold")
    else:
        yield committed(world, me)


# -- readers ----------------------------------------------------------------------------


def locking_reader(design: Design, world: World, me: int) -> Iterator[World]:
    """SELECT vote_count + <pending> FROM item FOR UPDATE: the row is new, pending may be old."""
    actor = world.actors[me]
    if actor.step == "rest":
        yield begun(world, me, "lock", truth_of(world.tables, actor.script[0][0]))
        return
    (item, *_), before = actor.memo
    assert actor.sees is not None
    if actor.step == "lock":
        world = locked(world, me, (("item", item), "update"))
        count = world.tables.items[item]
        assert count is not None
        read = count + pending_of(actor.sees, item)
        yield read_end(world, me, item, before, read)


def locking_cells_reader(design: Design, world: World, me: int) -> Iterator[World]:
    """The same with the truth where it is: cells and journal, both of one snapshot."""
    actor = world.actors[me]
    if actor.step == "rest":
        yield begun(world, me, "lock", truth_of(world.tables, actor.script[0][0]))
        return
    (item, *_), before = actor.memo
    assert actor.sees is not None
    world = locked(world, me, (("item", item), "update"))
    yield read_end(world, me, item, before, counted_of(actor.sees, item))


def updating_reader(design: Design, world: World, me: int) -> Iterator[World]:
    """MariaDB, REPEATABLE READ: an UPDATE of the item, and then it reads by its first snapshot.

    The row that it has changed it sees as it is now, all others as they were.
    """
    actor = world.actors[me]
    if actor.step == "rest":
        yield begun(world, me, "update", truth_of(world.tables, actor.script[0][0]))
        return
    (item, how), before = actor.memo
    assert actor.sees is not None
    if actor.step == "update":
        yield put(locked(world, me, (("item", item), "update")), me, step="read")
    else:
        count = world.tables.items[item]
        assert count is not None
        pending = pending_of(actor.sees, item)
        read = pending + (count if how == "item" else cells_of(actor.sees, item))
        yield read_end(world, me, item, before, read)


def dump_reader(design: Design, world: World, me: int) -> Iterator[World]:
    """pg_dump: one snapshot, first the cells, later the journal."""
    actor = world.actors[me]
    if actor.step == "rest":
        yield begun(world, me, "journal", truth_of(world.tables, actor.script[0][0]))
        return
    (item, *_), before = actor.memo
    assert actor.sees is not None
    read = cells_of(actor.sees, item)
    if world.tables.truncated == actor.sees.truncated:
        read += pending_of(actor.sees, item)
    yield read_end(world, me, item, before, read)


def read_end(world: World, me: int, item: int, before: int, read: int) -> World:
    """Remembers a read that was true at no moment since its statement began. Votes only rise."""
    after = truth_of(world.tables, item)
    memo = ("misread", before, read, after) if not before <= read <= after else ()
    return committed(world, me, "rest", memo)
