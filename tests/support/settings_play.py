"""A small play whose results are known, for servers whose settings are not the default ones.

Whatever the settings, it must come out right or be refused with an error of hotcount's or, in the
application's own session, of the driver's. A wrong number, another error and anything half done are
findings.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import hotcount
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import cast_vote, get_votes, increment, vote_count

# More than one statement has room for where each item has a part of it.
MANY = 70
REFUSALS = (hotcount.HotcountError, sa.exc.DBAPIError)

# Runs a statement in another session than the play's, which has no settings.
Run = Callable[[str], list[tuple[Any, ...]]]

# What a character set or a collation may take for something else.
_LETTERS = ("a", "A", "ä", "Ä", "a'", 'a"', "a\\", "😀")


def text_id(number: int) -> str:
    """They differ late, where a server may have stopped to compare."""
    return "/a/page" * 10 + f"/{number // len(_LETTERS)}{_LETTERS[number % len(_LETTERS)]}"


def uuid_id(number: int) -> uuid.UUID:
    return uuid.UUID(int=number * 0x1_0001_0001_0001)


@dataclass(frozen=True)
class Kind:
    """Votes of one strategy, over ids of one type."""

    strategy: str
    ids: Callable[[int], Any] = int
    items: int = MANY
    # The item table is the application's own, with ids of type {text}.
    adopted: bool = False
    options: dict[str, Any] = field(default_factory=dict)


KINDS = (
    Kind("batched"),
    Kind("slotted", text_id, items=20, adopted=True, options={"slots": 3}),
    Kind("naive", uuid_id, items=30),
    Kind("cached"),
)


class VotesPlay:
    """One strategy's part."""

    def __init__(self, kind: Kind, run: Run) -> None:
        self.kind = kind
        self._run = run
        self._items = [kind.ids(number) for number in range(1, kind.items + 1)]
        self._missing = kind.ids(kind.items + 1)
        self._said: dict[tuple[Any, Any], int] = {}  # Votes that were acknowledged.
        self._tried: dict[tuple[Any, Any], int] = {}  # Those of a call that has failed.

    def open(self, database: hotcount.Database) -> hotcount.Votes:
        name = self.kind.strategy
        kind = type(self._missing)
        return hotcount.Votes(
            database,
            hotcount.Memory() if name == "cached" else None,
            name,  # type: ignore[arg-type]
            item_table=f"{name}_item",
            vote_table=f"{name}_vote",
            item_type=kind,
            user_type=kind,
            # Folds and rounds come when they are asked for.
            fold_interval=3600,
            interval=3600,
            **self.kind.options,
        )

    def play(self, database: hotcount.Database, engine: sa.Engine | None) -> None:
        with self.open(database) as votes:
            votes.create_tables()
            votes.add_items(self._items)
            votes.add_items(self._items[:3])
            self._cast_many(votes)
            self._cast_one_by_one(votes)
            self._is_refused(votes)
            if engine is not None:
                self._cast_in_a_session(votes, engine)
            self._count(votes)
            votes.flush()
            self._count(votes)
            self._ask(votes)
            self._erase(votes)

    def _cast(self, ballots: dict[tuple[Any, Any], int], cast: Callable[[], object]) -> None:
        self._tried = ballots
        self._cast_is = cast()
        self._said |= ballots
        self._tried = {}

    def _sum(self, item: Any) -> int:
        return sum(value for (of, _), value in self._said.items() if of == item)

    def _cast_many(self, votes: hotcount.Votes) -> None:
        """New votes; then some that change, some that do not, and some that are new."""
        items, user = self._items, self.kind.ids
        half = items[: len(items) // 2]
        for ballots in (
            {(item, user(1)): 1 for item in items},
            {(item, user(2)): -3 for item in half},
            {(item, user(3)): 2 for item in half[1:]},
            {(item, user(2)): (-3, 5)[number % 2] for number, item in enumerate(items)},
        ):
            of, users = ([*column] for column in zip(*ballots))
            self._cast(ballots, partial(votes.cast_many, of, users, [*ballots.values()]))

    def _cast_one_by_one(self, votes: hotcount.Votes) -> None:
        items, user = self._items, self.kind.ids
        # Many counts are read in a transaction, which must not become the next calls' snapshot.
        self._count(votes)
        for value in (9, 9, -1):
            before = self._said.get((items[0], user(4)), 0)
            self._cast({(items[0], user(4)): value}, partial(votes.cast, items[0], user(4), value))
            expected = hotcount.Cast(value != 0, value != before, before, value)
            assert self._cast_is == expected, f"cast(): {self._cast_is}"
            found = votes.count(items[0], consistency="exact").value
            assert found == self._sum(items[0]), f"count() after cast(): {found}"
        self._cast({(items[1], user(1)): 0}, lambda: votes.retract(items[1], user(1)))
        for _ in range(2):
            self._cast({(items[2], None): 1}, lambda: votes.cast(items[2], None, op_id="op:1"))

    def _is_refused(self, votes: hotcount.Votes) -> None:
        try:
            votes.cast(self._missing, self.kind.ids(1))
        except hotcount.IntegrityError:
            return
        raise AssertionError("a vote for an item that does not exist was taken")

    def _cast_in_a_session(self, votes: hotcount.Votes, engine: sa.Engine) -> None:
        """The settings of the application's own session are not ours to change."""
        item, user = self._items[3], self.kind.ids(5)

        def cast() -> None:
            with engine.begin() as connection:
                assert cast_vote(connection, votes, item, user, 4).previous == 0
                assert cast_vote(connection, votes, item, user, 6).previous == 4

        self._cast({(item, user): 6}, cast)
        with engine.begin() as connection:
            assert vote_count(connection, votes, item) == self._sum(item)
            mine = get_votes(connection, votes, self._items, self.kind.ids(3))
            assert mine == self._votes_of(3), f"get_votes(): {mine}"
        try:
            with engine.begin() as connection:
                cast_vote(connection, votes, self._missing, user)
        except (hotcount.IntegrityError, sa.exc.IntegrityError):
            return
        raise AssertionError("a vote for an item that does not exist was taken, in a session")

    def _votes_of(self, user: int) -> list[int]:
        return [self._said.get((item, self.kind.ids(user)), 0) for item in self._items]

    def _count(self, votes: hotcount.Votes) -> None:
        expected = [self._sum(item) for item in self._items]
        found = list(votes.count_many(self._items, consistency="exact").value)
        assert found == expected, f"count_many(): {found}"
        first = votes.count(self._items[0], consistency="exact").value
        assert first == expected[0], f"count(): {first}"

    def _ask(self, votes: hotcount.Votes) -> None:
        """After a flush()."""
        items = self._items
        expected = {item: self._sum(item) for item in items}
        drift = votes.reconcile(dry_run=True)
        assert drift == [], f"reconcile(): {drift}"
        found = list(votes.count_many(items).value)
        assert found == list(expected.values()), f"count_many(), cached: {found}"
        found = list(votes.get_many(items, self.kind.ids(3)))
        assert found == self._votes_of(3), f"get_many(): {found}"
        of_item = {user: value for (item, user), value in self._said.items() if item == items[4]}
        assert dict(votes.voters(items[4])) == of_item
        assert len(votes.voters(items[4], limit=2)) == 2
        values = [value for (item, _), value in self._said.items() if item == items[0]]
        up, down = sum(value > 0 for value in values), sum(value < 0 for value in values)
        assert votes.tally(items[0]) == hotcount.Tally(up, down, sum(values))
        ranked = [count for _, count in votes.top(15)]
        assert ranked == sorted(expected.values(), reverse=True)[:15], f"top(): {ranked}"
        # As plain SQL has them.
        name = self.kind.strategy
        for column, table in (("vote_count", f"{name}_item"), ("n", f"{name}_vote_count")):
            counts = sorted(int(row[0]) for row in self._run(f"SELECT {column} FROM {table}"))
            assert counts == sorted(expected.values()), f"{table}: {counts}"

    def _erase(self, votes: hotcount.Votes) -> None:
        user = self.kind.ids(2)
        erased = votes.erase_user(user)
        assert erased == len(self._items), f"erase_user() found {erased} votes"
        self._said = {key: value for key, value in self._said.items() if key[1] != user}
        self._count(votes)

    def settle(self, database: hotcount.Database) -> None:
        """After an error, with the settings as they were: all that was said holds, and no more."""
        with self.open(database) as votes:
            votes.create_tables()
            if self.kind.strategy == "cached":
                votes.reconcile()  # Its cache has gone.
            votes.flush()
            drift = votes.reconcile(dry_run=True)
            assert drift == [], f"left behind: {drift}"
            sums = dict.fromkeys(self._items, 0)
            for (item, user), tried in {**self._said, **self._tried}.items():
                said = self._said.get((item, user), 0)
                # Who votes without a user cannot be asked for.
                found = said if user is None else votes.get(item, user)
                assert found in (said, tried), f"{item!r}, {user!r}: {found}"
                sums[item] += found
            counts = list(votes.count_many(self._items, consistency="exact").value)
            without = self._items.index(self._items[2])
            del sums[self._items[2]], counts[without]
            assert counts == list(sums.values()), f"counts {counts} of votes {sums}"


def play_counter(database: hotcount.Database, engine: sa.Engine | None) -> None:
    counter = hotcount.SlottedCounter(database, slots=4)
    counter.create_table()
    amounts = {f"key:{number}": number for number in range(MANY)}
    counter.add_many(amounts)
    for slot in range(4):
        counter.add("key:1", 10, slot=slot)
    for _ in range(2):
        counter.add("key:2", 5, op_id="once")
    if engine is not None:
        with engine.begin() as connection:
            increment(connection, counter, "key:3", 7)
        amounts["key:3"] += 7
    amounts |= {"key:1": 41, "key:2": 7}
    assert list(counter.get_many(list(amounts))) == list(amounts.values())
    counter.compact("key:1")
    assert counter.get("key:1") == 41
    counter.add("key:4", 2**63 - 10, slot=0)
    try:
        counter.add("key:4", 20, slot=0)
    except hotcount.CounterOverflowError:
        return
    raise AssertionError("a slot has left 64 bits")


def play_limiter(database: hotcount.Database) -> None:
    limiter = hotcount.Limiter(database, "2/hour", name="play")
    limiter.create_table()
    admitted = [bool(limiter.hit("anna")) for _ in range(3)]
    assert admitted == [True, True, False], admitted
    keys = [f"user:{number}" for number in range(MANY)]
    assert list(limiter.hit_many(keys).allowed) == [True] * MANY
    assert list(limiter.hit_many(keys, cost=2).allowed) == [False] * MANY


class Play:
    """All of it, in a database of its own. `refusals` has the errors of parts that were refused."""

    def __init__(self, url: str, engine_url: str, text: str, run: Run) -> None:
        self.refusals: dict[str, Exception] = {}
        self._url = url
        self._engine_url = engine_url
        self._parts = [VotesPlay(kind, run) for kind in KINDS]
        for kind in KINDS:
            if kind.adopted:
                run(
                    f"CREATE TABLE {kind.strategy}_item "
                    f"(id {text} PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)"
                )

    def play(self, timeout: float) -> None:
        """An error that it raises is a finding."""
        engine = self._open_engine()
        try:
            with hotcount.Database(self._url, timeout=timeout) as database:
                for part in self._parts:
                    self._try(part.kind.strategy, partial(part.play, database, engine))
                self._try("counter", partial(play_counter, database, engine))
                self._try("limiter", partial(play_limiter, database))
        except hotcount.HotcountError as error:
            self.refusals["opening"] = error
        finally:
            if engine is not None:
                engine.dispose()

    def _open_engine(self) -> sa.Engine | None:
        """None if the settings are too much for SQLAlchemy itself."""
        engine = sa.create_engine(self._engine_url, poolclass=sa.pool.NullPool)
        try:
            engine.connect().close()
        except Exception as error:
            self.refusals["engine"] = error
            return None
        return engine

    def _try(self, name: str, part: Callable[[], None]) -> None:
        try:
            part()
        except REFUSALS as error:
            self.refusals[name] = error
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error

    def settle(self) -> None:
        with hotcount.Database(self._url, timeout=20) as database:
            for part in self._parts:
                if part.kind.strategy in self.refusals:
                    part.settle(database)
