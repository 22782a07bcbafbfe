"""Counts and votes inside the caller's own SQLAlchemy transaction, on every dialect."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import (
    cast_vote,
    count,
    increment,
    increment_many,
    retract_vote,
    vote_count,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from tests.support.commands import output_of
from tests.support.eventually import eventually
from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BothSides, both_sides, until_it_commits
from tests.support.together import together

INT64_MAX = 2**63 - 1


@pytest.fixture(params=["naive", "slotted", "batched", "cached"])
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Base(DeclarativeBase):
    pass


class Post(Base):
    """A table of the user's own."""

    __tablename__ = "Blog Post"
    post_no: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    title: Mapped[str] = mapped_column(sa.String(100))
    Likes: Mapped[int] = mapped_column(sa.BigInteger, default=0)


POSTS: dict[str, Any] = {
    "item_table": "Blog Post",
    "item_id": "post_no",
    "item_count": "Likes",
    "vote_table": "like",
    "vote_item": "post",
    "vote_user": "who",
}


@pytest.fixture
def counter(sides: BothSides) -> hotcount.SlottedCounter:
    counter = hotcount.SlottedCounter(sides.database)
    counter.create_table()
    return counter


def test_an_increment_is_committed_with_the_callers_transaction(
    sides: BothSides, counter: hotcount.SlottedCounter
) -> None:
    with sides.engine.begin() as connection:
        increment(connection, counter, "k", 2)
        increment(connection, counter, b"k")
        assert count(connection, counter, "k") == 3
        assert counter.get("k") == 0
    assert counter.get("k") == 3


def test_an_increment_is_rolled_back_with_the_callers_transaction(
    sides: BothSides, counter: hotcount.SlottedCounter
) -> None:
    Base.metadata.create_all(sides.engine)
    with Session(sides.engine) as session:
        session.add(Post(post_no=1, title="draft"))
        increment(session, counter, "posts")
        session.rollback()
    with Session(sides.engine) as session:
        assert session.scalars(sa.select(Post)).all() == []
    assert counter.get("posts") == 0


def test_a_savepoint_of_the_callers_undoes_what_is_inside_it(
    sides: BothSides, counter: hotcount.SlottedCounter
) -> None:
    with Session(sides.engine) as session, session.begin():
        increment(session, counter, "k", 1)
        inner = session.begin_nested()
        increment(session, counter, "k", 10)
        inner.rollback()
        with session.begin_nested():
            increment(session, counter, "k", 100)
    assert counter.get("k") == 101


def test_increment_many_is_all_or_nothing(
    sides: BothSides, counter: hotcount.SlottedCounter
) -> None:
    narrow = hotcount.SlottedCounter(sides.database, slots=1)
    narrow.add("full", INT64_MAX)
    with sides.engine.begin() as connection:
        increment_many(connection, narrow, {"b": 2, "a": 1})
        with pytest.raises(hotcount.CounterOverflowError):
            increment_many(connection, narrow, {"a": 1, "full": 1, "z": 1})
        # The transaction goes on.
        increment(connection, narrow, "c", 3)
    assert counter.get_many(["a", "b", "c", "full", "z"]) == [1, 2, 3, INT64_MAX, 0]


def test_a_statement_joins_the_callers_transaction(
    sides: BothSides, counter: hotcount.SlottedCounter
) -> None:
    with Session(sides.engine) as session, session.begin():
        session.execute(counter.statement("größe", 5))
        session.connection().execute(counter.statement(b"k"))
    with Session(sides.engine) as session:
        session.execute(counter.statement("k", 100))
        session.rollback()
    assert counter.get_many(["größe", "k"]) == [5, 1]


def test_a_statement_that_would_leave_64_bits_is_an_error_of_the_databases(
    sides: BothSides,
) -> None:
    counter = hotcount.SlottedCounter(sides.database, slots=1)
    counter.create_table()
    counter.add("k", INT64_MAX)
    with sides.engine.connect() as connection, pytest.raises(sa.exc.DBAPIError):
        connection.execute(counter.statement("k"))
    assert counter.get("k") == INT64_MAX


def test_names_of_the_users_own_are_quoted(sides: BothSides) -> None:
    counter = hotcount.SlottedCounter(
        sides.database,
        table='a:b %s "c" `d`',
        key_column="group",
        slot_column="or:der",
        count_column="100%",
    )
    counter.create_table()
    with sides.engine.begin() as connection:
        increment(connection, counter, "k")
        connection.execute(counter.statement("k", 2))
        assert count(connection, counter, "k") == 3
    assert counter.get("k") == 3


def test_increments_and_hotcounts_own_adds_at_once_lose_nothing(
    sides: BothSides, counter: hotcount.SlottedCounter
) -> None:
    def own_transaction() -> None:
        with sides.engine.begin() as connection:
            increment_many(connection, counter, {"b": 1, "a": 1})

    def work(index: int) -> None:
        for _ in range(10):
            if index % 2:
                counter.add_many({"a": 1, "b": 1})
            else:
                until_it_commits(own_transaction)
            if index == 1:
                counter.compact("a")

    together(work, 8)
    assert counter.get_many(["a", "b"]) == [80, 80]


def test_a_vote_is_a_state_and_moves_the_count_with_it(sides: BothSides, strategy: str) -> None:
    votes = make_votes(sides, strategy, items=[7])
    steps: list[tuple[int, int | None, tuple[bool, bool, int, int]]] = [
        (1, None, (True, True, 0, 1)),
        (1, None, (True, False, 1, 1)),
        (-5, 3, (True, True, 1, -5)),
        (9, 3, (True, False, -5, -5)),
        (9, 4, (True, True, -5, 9)),
        (0, None, (False, True, 9, 0)),
        (0, None, (False, False, 0, 0)),
        (2, 2, (False, False, 0, 0)),
        (2, None, (True, True, 0, 2)),
    ]
    for value, version, expected in steps:
        with sides.engine.begin() as connection:
            cast = cast_vote(connection, votes, 7, 1, value, version=version)
            assert (cast.counted, cast.changed, cast.previous, cast.value) == expected
            assert vote_count(connection, votes, 7) == expected[3]
    votes.flush()
    assert int(votes.count(7)) == int(votes.count(7, consistency="exact")) == 2
    assert votes.reconcile(dry_run=True) == []
    assert sides.run("SELECT vote_count FROM item") == [(2,)]


def test_a_vote_without_a_user_counts_once_under_its_op_id(sides: BothSides, strategy: str) -> None:
    votes = make_votes(sides, strategy, items=[7])
    votes.cast(7, None, op_id="theirs")
    with sides.engine.begin() as connection:
        assert cast_vote(connection, votes, 7, 1).changed
        assert cast_vote(connection, votes, 7, None, 3, op_id="a") == hotcount.Cast(
            True, True, 0, 3
        )
        # The first one stands; hotcount's own and these are of one table.
        assert cast_vote(connection, votes, 7, None, op_id="a") == hotcount.Cast(True, False, 3, 3)
        assert not cast_vote(connection, votes, 7, None, op_id="theirs").changed
        assert vote_count(connection, votes, 7) == 5
        live = sa.text("SELECT user_id, val FROM vote_live WHERE item_id = 7 ORDER BY val, user_id")
        found = [(user, int(value)) for user, value in connection.execute(live)]
        assert sorted(found, key=str) == sorted([(1, 1), (None, 1), (None, 3)], key=str)
    assert not votes.cast(7, None, op_id="a").changed
    votes.flush()
    assert int(votes.count(7, consistency="exact")) == 5
    assert votes.reconcile(dry_run=True) == []


def test_retracting_a_vote_that_was_never_cast_leaves_a_row(
    sides: BothSides, strategy: str
) -> None:
    votes = make_votes(sides, strategy, items=[7])
    with sides.engine.begin() as connection:
        assert retract_vote(connection, votes, 7, 1) == hotcount.Cast(False, False, 0, 0)
    # An older cast that was stuck on its way finds the retract's version.
    assert votes.cast(7, 1) == hotcount.Cast(True, True, 0, 1)


@pytest.mark.parametrize("how", ["session", "scoped", "connection"])
def test_votes_are_rolled_back_with_the_callers_transaction(
    sides: BothSides, strategy: str, how: str
) -> None:
    Base.metadata.create_all(sides.engine)
    votes = make_votes(sides, strategy, items=(), **POSTS)
    with Session(sides.engine) as session, session.begin():
        session.add(Post(post_no=1, title="first"))
        # Not flushed yet: the call does it.
        cast_vote(session, votes, 1, 10)
    if how == "connection":
        with sides.engine.connect() as connection:
            cast_vote(connection, votes, 1, 11)
            retract_vote(connection, votes, 1, 10)
            connection.rollback()
    else:
        maker = sessionmaker(sides.engine)
        session_ = scoped_session(maker) if how == "scoped" else maker()
        session_.add(Post(post_no=2, title="second"))
        cast_vote(session_, votes, 2, 11)
        retract_vote(session_, votes, 1, 10)
        session_.rollback()
        session_.close()
    votes.flush()
    assert int(votes.count(1)) == 1
    assert votes.reconcile(dry_run=True) == []
    with Session(sides.engine) as session:
        assert [(p.post_no, p.Likes) for p in session.scalars(sa.select(Post))] == [(1, 1)]


def test_a_refused_vote_leaves_nothing_and_the_transaction_goes_on(
    sides: BothSides, strategy: str
) -> None:
    votes = make_votes(sides, strategy, items=[1, 2], slots=1)
    move = None
    if strategy == "slotted":
        move = sa.text("UPDATE vote_cell SET n = n + :by WHERE item = 1")
    elif strategy == "naive" or (strategy == "batched" and sides.dialect == "sqlite"):
        move = sa.text("UPDATE item SET vote_count = vote_count + :by WHERE id = 1")
    with sides.engine.begin() as connection:
        cast_vote(connection, votes, 1, 1)
        with pytest.raises((hotcount.IntegrityError, sa.exc.IntegrityError)):
            cast_vote(connection, votes, 3, 1)
        for value in (2**31, -(2**31)):
            with pytest.raises(hotcount.ConfigError, match="value is"):
                cast_vote(connection, votes, 1, 2, value)
        if move is not None:
            connection.execute(move, {"by": INT64_MAX - 1})
            with pytest.raises(hotcount.CounterOverflowError):
                cast_vote(connection, votes, 1, 2)
            connection.execute(move, {"by": 1 - INT64_MAX})
        cast_vote(connection, votes, 2, 1, 2**31 - 1)
    assert [int(votes.count(item, consistency="exact")) for item in (1, 2)] == [1, 2**31 - 1]
    votes.flush()
    assert votes.reconcile(dry_run=True) == []


def test_items_are_made_where_the_options_say_so(sides: BothSides) -> None:
    votes = make_votes(sides, "batched", items=(), missing_items="create")
    with sides.engine.begin() as connection:
        for _ in range(2):
            cast_vote(connection, votes, 5, 1)
    assert int(votes.count(5)) == 1


def test_ids_may_be_text_and_uuids(sides: BothSides) -> None:
    item = uuid.UUID("6A2F41A3-C54C-FCE8-32D2-0324E1C32E22")
    votes = make_votes(sides, "batched", items=[item], item_type=uuid.UUID, user_type=str)
    votes.cast(item, "anna")
    with sides.engine.begin() as connection:
        assert cast_vote(connection, votes, item, "anna") == hotcount.Cast(True, False, 1, 1)
        cast_vote(connection, votes, item, "Anna")
        cast_vote(connection, votes, item, "größe")
        assert vote_count(connection, votes, item) == 3
        for bad in ("6a2f41a3-c54c-fce8-32d2-0324e1c32e22", 1, None):
            with pytest.raises(TypeError, match="item"):
                cast_vote(connection, votes, bad, "anna")  # type: ignore[arg-type]
    assert votes.cast(item, "größe") == hotcount.Cast(True, False, 1, 1)
    assert int(votes.count(item)) == 3


@pytest.mark.parametrize("bad", ["\ud800", "a\0b", "x" * 1001], ids=["surrogate", "nul", "long"])
def test_an_id_that_votes_itself_refuses_is_refused(sides: BothSides, bad: str) -> None:
    votes = make_votes(sides, user_type=str)
    counter = hotcount.SlottedCounter(sides.database)
    counter.create_table()
    with sides.engine.begin() as connection:
        calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "user": (lambda: votes.cast(1, bad), lambda: cast_vote(connection, votes, 1, bad)),
            "op_id": (
                lambda: votes.cast(1, None, op_id=bad),
                lambda: cast_vote(connection, votes, 1, None, op_id=bad),
            ),
            "key": (lambda: counter.add(bad), lambda: increment(connection, counter, bad)),
        }
        for name, (own, inside) in calls.items():
            for call in (own, inside):
                with pytest.raises(hotcount.ConfigError, match=name):
                    call()
        assert cast_vote(connection, votes, 1, "x" * 1000).changed
    assert int(votes.count(1)) == 1


def test_tables_that_another_strategy_counts_are_refused(sides: BothSides) -> None:
    votes = make_votes(sides)
    make_votes(sides, "slotted")
    with (
        sides.engine.connect() as connection,
        pytest.raises(hotcount.ConfigError, match="create_tables"),
    ):
        cast_vote(connection, votes, 1, 1)


def test_votes_beside_hotcounts_own_writers_lose_nothing(sides: BothSides, strategy: str) -> None:
    votes = make_votes(sides, strategy, items=[1, 2])
    threads = 8

    def in_session(item: int, user: int, value: int) -> None:
        with Session(sides.engine) as session, session.begin():
            cast_vote(session, votes, item, user, value)

    def work(index: int) -> None:
        for number in range(8):
            # Each pair of threads, one of each side, fights over one user's vote.
            user, value = index // 2, number % 3
            item = 1 + number % 2
            if index % 2:
                votes.cast(item, user, value)
                votes.cast_many([1, 2], [100 + index, 100 + index], [number, -number])
            else:
                until_it_commits(partial(in_session, item, user, value))
                until_it_commits(partial(in_session, 1, 200 + index, number))

    together(work, threads)
    votes.flush(timeout=30)
    assert votes.reconcile(dry_run=True) == []
    rows = sides.run(
        "SELECT id, vote_count, (SELECT SUM(val) FROM vote WHERE item_id = item.id) "
        "FROM item ORDER BY id"
    )
    assert [int(row[1]) for row in rows] == [int(row[2]) for row in rows]
    assert [int(c) for c in votes.count_many([1, 2])] == [int(row[2]) for row in rows]


def test_bad_arguments_are_refused_before_anything_is_sent(
    sides: BothSides, counter: hotcount.SlottedCounter
) -> None:
    with sides.engine.connect() as connection:
        bad: Any
        for bad in (1, None, "", "x" * 1001, "a\0b", b"\xff"):
            error = TypeError if bad in (1, None) else hotcount.ConfigError
            with pytest.raises(error, match="key"):
                increment(connection, counter, bad)
            with pytest.raises(error, match="key"):
                counter.statement(bad)
        for number in (1.0, "1", True):
            wrong: Any = number
            with pytest.raises(TypeError, match="n must be int"):
                increment(connection, counter, "k", wrong)
        with pytest.raises(hotcount.CounterOverflowError):
            increment(connection, counter, "k", 2**63)
        assert not connection.in_transaction()
    votes = make_votes(sides, "batched")
    with sides.engine.connect() as connection:
        for options, error, names in (
            ({"user": None}, TypeError, "user must be int"),
            ({"user": 1, "op_id": "a"}, hotcount.ConfigError, "user=None"),
            ({"user": None, "op_id": ""}, hotcount.ConfigError, "255"),
            ({"user": None, "op_id": b"a"}, TypeError, "op_id must be str"),
            ({"user": None, "op_id": "a", "value": 0}, hotcount.ConfigError, "retracted"),
            ({"user": None, "op_id": "a", "version": 1}, hotcount.ConfigError, "version"),
        ):
            given: Any = options
            with pytest.raises(error, match=names):
                cast_vote(connection, votes, 7, **given)
        assert not connection.in_transaction()
    nowhere: Any = sides.engine
    with pytest.raises(TypeError, match="where must be a Session, an AsyncSession or a connection"):
        increment(nowhere, counter, "k")


def test_without_sqlalchemy_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import hotcount\n"
        "c = hotcount.SlottedCounter('sqlite:///:memory:')\n"
        "try: c.statement('k')\n"
        "except ImportError as error: print(error)\n"
    )
    assert "hotcount[sqlalchemy]" in output_of(program)


@pytest.mark.server
def test_votes_whose_commit_ends_after_the_fold_are_folded_all_the_same(
    request: pytest.FixtureRequest, database_path: Path
) -> None:
    """SQLAlchemy tells of a commit before it, for a connection that stays out of its pool."""
    with closing(both_sides(request, "postgresql", database_path)) as sides:
        votes = make_votes(sides, "batched", fold_interval=0.1)
        sides.run(
            "CREATE TABLE slow (id int)",
            "CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$",
            "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON slow "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sleep()",
        )
        with sides.engine.connect() as connection:
            assert cast_vote(connection, votes, 1, 1).counted
            connection.execute(sa.text("INSERT INTO slow VALUES (1)"))
            connection.commit()
            eventually(lambda: sides.run("SELECT vote_count FROM item WHERE id = 1") == [(1,)])
