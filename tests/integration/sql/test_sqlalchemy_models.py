"""VotedMixin and VoteMixin: the tables of a user's own models, their counts, and their deletes."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import hotcount
import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from fastapi.testclient import TestClient
from hotcount.integrations.sqlalchemy import (
    VotedMixin,
    VoteMixin,
    cast_vote,
    drop_dependents,
    drop_tables,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    DeclarativeBaseNoMeta,
    Mapped,
    MappedAsDataclass,
    Session,
    declarative_base,
    mapped_column,
    registry,
    undefer,
)

from tests.support.sqlalchemy_models import (
    PROGRAM,
    Alembic,
    Article,
    Base,
    Blog,
    Like,
    Post,
    PostVote,
    User,
)
from tests.support.sqlalchemy_side import BothSides


def tables_of(sides: BothSides) -> set[str]:
    inspector = sa.inspect(sides.engine)
    return {*inspector.get_table_names(), *inspector.get_view_names()}


@contextmanager
def statements(engine: sa.Engine) -> Iterator[list[str]]:
    """Those that the engine sends meanwhile."""
    sent: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        sent.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(engine, "before_cursor_execute", note)


def make_blog(sides: BothSides, strategy: Any = "batched", **options: Any) -> hotcount.Votes:
    """Articles 1 to 3, users 1 to 4."""
    Blog.metadata.create_all(sides.engine)
    cache = hotcount.Memory() if strategy == "cached" else None
    votes = hotcount.Votes(sides.database, cache, strategy, **Like.vote_options())
    votes.create_tables(timeout=20, **options)
    with Session(sides.engine) as session, session.begin():
        session.add_all([Article(number=number) for number in (1, 2, 3)])
        session.add_all([User(id=number) for number in (1, 2, 3, 4)])
    return votes


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
@pytest.mark.parametrize("form", ["none", "deletes", "count"])
def test_create_all_makes_what_votes_needs_and_drop_all_leaves_nothing(
    sides: BothSides, strategy: str, form: str
) -> None:
    before = tables_of(sides)
    votes = make_blog(sides, strategy, outside_writes=form)
    assert votes.migration() == ""
    assert votes.cast(1, 1).counted
    with Session(sides.engine) as session, session.begin():
        assert cast_vote(session, votes, 1, 2, -1).counted
    assert votes.count(1, consistency="exact") == 0
    votes.close()
    Blog.metadata.drop_all(sides.engine)
    assert tables_of(sides) == before
    # And all of it again, in the same database.
    votes = make_blog(sides, strategy, outside_writes=form)
    assert votes.cast(1, 1) == hotcount.Cast(True, True, 0, 1)


@pytest.mark.parametrize("first", ["create_tables", "create_all"])
def test_autogenerate_proposes_nothing_after_create_tables(
    sides: BothSides, tmp_path: Path, first: str
) -> None:
    if first == "create_all":
        Base.metadata.create_all(sides.engine)
    hotcount.Votes(sides.database, **PostVote.vote_options()).create_tables(timeout=20)
    hotcount.SlottedCounter(sides.database).create_table()
    with sides.engine.begin() as connection:  # As migration() prints it for another key.
        connection.execute(sa.text("CREATE INDEX post_vote_of_item ON post_vote (item_id)"))
    for name, target in (("one", Base.metadata), ("several", [sa.MetaData(), Base.metadata])):
        Alembic(tmp_path / name, sides.engine, target).run("check")


def test_a_migration_of_alembics_makes_the_tables_and_takes_them_back(
    sides: BothSides, tmp_path: Path
) -> None:
    before = tables_of(sides)
    alembic = Alembic(tmp_path / "alembic", sides.engine, Base.metadata)
    alembic.run("revision", autogenerate=True)
    alembic.run("upgrade", "head")
    with hotcount.Votes(sides.database, **PostVote.vote_options()) as votes:
        votes.create_tables(timeout=20, outside_writes="deletes")
        votes.add_items([1])
        assert votes.cast(1, 1).counted
        alembic.run("check")
    alembic.run("downgrade", "base")
    assert tables_of(sides) - before == {"alembic_version"}


@pytest.mark.parametrize("form", ["deletes", "count"])
@pytest.mark.parametrize("table", ["article", "like"])
def test_a_migration_makes_a_table_anew_once_its_dependents_are_away(
    sides: BothSides, table: str, form: Any
) -> None:
    votes = make_blog(sides, outside_writes=form)
    assert votes.cast(1, 1).counted
    with sides.engine.begin() as connection:
        drop_dependents(connection, "like")
        operations = Operations(MigrationContext.configure(connection))
        recreate: Any = "always" if sides.dialect == "sqlite" else "auto"
        with operations.batch_alter_table(table, recreate=recreate) as batch:
            batch.add_column(sa.Column("more", sa.Integer))
    assert votes.cast(1, 2).counted
    votes.create_tables(timeout=20, outside_writes=form)
    with Session(sides.engine) as session, session.begin():
        session.execute(sa.delete(Like).where(Like.user_id == 1))
    with Session(sides.engine) as session:
        assert session.scalar(sa.select(Article.votes_exact).where(Article.number == 1)) == 1
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("name", ["like%", "%(x)s", 'li"ke', "li'ke.x"])
def test_tables_of_any_name_are_made_and_dropped(sides: BothSides, name: str) -> None:
    class Odd(DeclarativeBase):
        pass

    class Item(VotedMixin, Odd):
        __tablename__ = f"item {name}"
        id: Mapped[int] = mapped_column(primary_key=True)

    class OddVote(VoteMixin, Odd):
        __tablename__ = name
        __voted__ = Item

    before = tables_of(sides)
    Odd.metadata.create_all(sides.engine)
    with hotcount.Votes(sides.database, **OddVote.vote_options()) as votes:
        votes.create_tables(timeout=20, outside_writes="deletes")
        votes.add_items([1])
        with Session(sides.engine) as session, session.begin():
            assert cast_vote(session, votes, 1, 7).counted
            assert session.scalar(sa.select(Item.votes_exact)) == 1
        votes.flush()  # Else a fold may meet the DROPs, and PostgreSQL ends one of the two.
    Odd.metadata.drop_all(sides.engine)
    assert tables_of(sides) == before


def test_counts_and_a_users_votes_come_with_the_items_in_one_statement(sides: BothSides) -> None:
    votes = make_blog(sides)
    votes.cast_many([1, 2, 2, 3], [1, 1, 2, 1], [1, 1, 1, 1])
    votes.retract(3, 1)
    with Session(sides.engine) as session, statements(sides.engine) as sent:
        found = session.execute(
            sa.select(Article, Article.voted_by(1))
            .options(undefer(Article.votes_exact))
            .order_by(Article.votes_exact.desc())
        ).all()
        rows = [(item.number, item.votes_exact, bool(voted)) for item, voted in found]
        assert rows == [(2, 2, True), (1, 1, True), (3, 0, False)]
        mine = sa.select(Article.number).where(Article.voted_by(2))
        assert session.scalars(mine).all() == [2]
        assert len(sent) == 2
        alias = sa.orm.aliased(Article)
        both = sa.select(alias.number, alias.votes_exact).where(alias.voted_by(2))
        assert session.execute(both).all() == [(2, 2)]
        # Of one item that is there, and in the caller's own transaction.
        item = session.get_one(Article, 3)
        cast_vote(session, votes, 3, 4)
        session.expire(item)
        assert item.votes_exact == 1


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
def test_deletes_by_cascades_of_the_orms_are_counted_once(sides: BothSides, strategy: str) -> None:
    votes = make_blog(sides, strategy, outside_writes="deletes")
    for item, user in ((1, 1), (1, 2), (2, 1), (2, 3), (3, 1)):
        votes.cast(item, user)
    with Session(sides.engine) as session, session.begin():
        session.delete(session.get_one(User, 1))
        cast_vote(session, votes, 1, 4)
    with Session(sides.engine) as session, session.begin():
        session.delete(session.get_one(Article, 2))
    assert [votes.count(item, consistency="exact") for item in (1, 3)] == [2, 0]
    if strategy == "cached":
        votes.sync_worker().run_once()
    assert votes.reconcile(dry_run=True) == []
    with Session(sides.engine) as session:
        exact = session.execute(sa.select(Article.number, Article.votes_exact)).all()
        assert sorted(exact) == [(1, 2), (3, 0)]


class Other(DeclarativeBase):
    type_annotation_map = {uuid.UUID: sa.Uuid}  # noqa: RUF012


class Photo(VotedMixin, Other):
    __tablename__ = "a.photo"
    key: Mapped[uuid.UUID] = mapped_column(primary_key=True)


class PhotoVote(VoteMixin, Other):
    __tablename__ = "photo_vote"
    __voted__ = Photo
    item_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(sa.String(60), primary_key=True)


def test_options_follow_the_models() -> None:
    assert PhotoVote.vote_options() == {
        "item_table": '"a.photo"',
        "item_id": "key",
        "item_count": "vote_count",
        "vote_table": "photo_vote",
        "vote_item": "item_id",
        "vote_user": "user_id",
        "vote_value": "val",
        "vote_previous": "prev",
        "vote_version": "version",
        "item_type": uuid.UUID,
        "user_type": str,
        "foreign_key": False,
    }


def test_models_may_be_dataclasses_or_have_a_metaclass() -> None:
    class Data(MappedAsDataclass, DeclarativeBase):
        pass

    class DataPost(VotedMixin, Data):
        __tablename__ = "post"
        id: Mapped[int] = mapped_column(primary_key=True)

    class DataVote(VoteMixin, Data):
        __tablename__ = "vote"
        __voted__ = DataPost

    # As Flask-SQLAlchemy's.
    Legacy: Any = declarative_base()

    class LegacyPost(VotedMixin, Legacy):  # type: ignore[misc]
        __tablename__ = "post"
        id = sa.Column(sa.Integer, primary_key=True)

    class LegacyVote(VoteMixin, Legacy):  # type: ignore[misc]
        __tablename__ = "vote"
        __voted__ = LegacyPost

    class Special(LegacyVote):
        """Another one in the same table."""

    class Bare(DeclarativeBaseNoMeta):
        pass

    class BarePost(VotedMixin, Bare):
        __tablename__ = "post"
        id: Mapped[int] = mapped_column(primary_key=True)

    class BareVote(VoteMixin, Bare):
        __tablename__ = "vote"
        __voted__ = BarePost

    mapped = registry().mapped

    @mapped
    class Decorated(VotedMixin):
        __tablename__ = "post"
        id: Mapped[int] = mapped_column(primary_key=True)

    @mapped
    class DecoratedVote(VoteMixin):
        __tablename__ = "vote"
        __voted__ = Decorated

    assert Special.vote_options() == LegacyVote.vote_options()
    assert DataPost(id=1).id == 1
    assert DataVote.vote_options() == LegacyVote.vote_options()
    for model in (DataPost, LegacyPost, BarePost, Decorated):
        assert "vote_count" in str(sa.select(model.votes_exact))


def declare(what: str) -> None:
    class Bad(DeclarativeBase):
        pass

    class Item(VotedMixin, Bad):
        __tablename__ = "item"
        id: Mapped[int] = mapped_column(primary_key=True)
        if what == "two keys":
            also: Mapped[int] = mapped_column(primary_key=True)

    class Plain(Bad):
        __tablename__ = "plain"
        id: Mapped[int] = mapped_column(primary_key=True)

    if what == "no votes":
        Item.voted_by(1)

    class Votes(VoteMixin, Bad):
        __tablename__ = "vote"
        if what != "no item":
            __voted__: ClassVar[Any] = Plain if what == "no mixin" else Item
        if what == "float":
            user_id: Mapped[float] = mapped_column(primary_key=True)

    if what == "two models":

        class More(VoteMixin, Bad):
            __tablename__ = "more"
            __voted__ = Item

    Votes.vote_options()


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ("two keys", "Item has a primary key of 2 columns"),
        ("no votes", "no model with VoteMixin names these items"),
        ("no mixin", r"Votes\.__voted__ is .*Plain.*; write the model of the items"),
        ("no item", r"Votes\.__voted__ is None"),
        ("float", r"vote\.user_id is a \w+\(\); ids .* are int, str or uuid\.UUID"),
        ("two models", r"More\.__voted__ is Item, whose votes are Votes"),
    ],
)
def test_models_that_cannot_be_voted_on_say_why(what: str, match: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=match):
        declare(what)


def test_dropping_what_was_never_made_does_nothing(sides: BothSides) -> None:
    Base.metadata.create_all(sides.engine)
    with sides.engine.begin() as connection:
        drop_tables(connection, "post_vote")
    assert {Post.__tablename__, PostVote.__tablename__} <= tables_of(sides)


async def test_the_blocks_of_the_document_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("told")  # SQLAlchemy looks for names of annotations in the module.
    monkeypatch.setitem(sys.modules, "told", module)
    told = vars(module)
    for block in PROGRAM:
        exec(compile(block, "sqlalchemy.md", "exec", dont_inherit=True), told)
    assert told["cast"].counted
    assert told["votes"].migration() == ""
    assert told["rows"] == [("first", 1, True), ("second", 0, False)]
    await told["vote_later"]()
    with TestClient(told["app"]) as client:
        answers = [client.post("/posts/2/like").json() for _ in range(2)]
    assert [(each["value"], each["count"]["value"]) for each in answers] == [(0, 0), (1, 1)]
    with Session(told["engine"]) as session, session.begin():
        counts = {post.id: post.vote_count for post in session.scalars(sa.select(told["Post"]))}
        assert counts == {1: 1, 2: 1}
        session.delete(session.get_one(told["User"], 7))
    votes = told["votes"]
    assert (votes.count(1), votes.count(2), votes.reconcile(dry_run=True)) == (0, 0, [])
    told["Base"].metadata.drop_all(told["engine"])
    assert sa.inspect(told["engine"]).get_table_names() == []
