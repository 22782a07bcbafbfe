"""An application's own votes under hotcount-load, through SQLAlchemy's ORM, in two ways.

    hotcount-load run -s 'exec:python loadtest/examples/orm_driver.py naive' -w 8 -d 3s
    hotcount-load run -s 'exec:python loadtest/examples/orm_driver.py expression' -w 8 -d 3s

naive is what most applications begin with, and what `item.vote_count += 1; item.save()` is in
Django: it reads the count, adds one in Python and writes the sum. Two voters read the same count,
and one vote is missing from it: the audit finds how many (exit code 1). expression lets the
database add, as Django's F("vote_count") + 1 does, and passes.

Both work as Django does outside of transaction.atomic(): each statement is a transaction.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import sqlalchemy as sa
from hotcount import load
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "shop_item"
    id: Mapped[int] = mapped_column(primary_key=True)
    vote_count: Mapped[int] = mapped_column(default=0)


class Vote(Base):
    __tablename__ = "shop_vote"
    item_id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    value: Mapped[int]


class Shop:
    """The application's votes. `between` is called between reading a count and writing it."""

    def __init__(self, url: str, way: str, between: Callable[[], object] = lambda: None) -> None:
        drivers = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
        address = sa.make_url(url)
        self.engine = sa.create_engine(
            address.set(drivername=drivers.get(address.drivername, address.drivername)),
            isolation_level="AUTOCOMMIT",
        )
        self.way = way
        self.between = between

    def setup(self, items: int) -> None:
        if self.engine.dialect.name == "sqlite":
            with self.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        Base.metadata.drop_all(self.engine)
        Base.metadata.create_all(self.engine)
        with Session(self.engine.execution_options(isolation_level="SERIALIZABLE")) as session:
            session.add_all(Item(id=item, vote_count=0) for item in range(1, items + 1))
            session.commit()

    def cast(self, item: int, user: int, value: int) -> bool:
        with Session(self.engine) as session:
            changed = self._write_vote(session, item, user, value)
            if changed:
                self._count(session, item, 1 if value else -1)
            return changed

    def _write_vote(self, session: Session, item: int, user: int, value: int) -> bool:
        if value:
            try:
                row = {"item_id": item, "user_id": user, "value": value}
                session.execute(sa.insert(Vote).values(row))
                return True
            except IntegrityError:
                pass  # The user has voted before.
        mine = (Vote.item_id == item, Vote.user_id == user, Vote.value != value)
        done = session.execute(sa.update(Vote).where(*mine).values(value=value))
        return bool(done.rowcount)

    def _count(self, session: Session, item: int, change: int) -> None:
        this = sa.update(Item).where(Item.id == item)
        if self.way == "naive":
            count = session.scalars(sa.select(Item.vote_count).where(Item.id == item)).one()
            self.between()
            session.execute(this.values(vote_count=count + change))
        else:
            session.execute(this.values(vote_count=Item.vote_count + change))

    def read(self, item: int) -> int:
        with Session(self.engine) as session:
            return session.scalars(sa.select(Item.vote_count).where(Item.id == item)).one()

    def rows(self) -> list[tuple[int, int, int]]:
        with Session(self.engine) as session:
            votes = session.execute(sa.select(Vote.item_id, Vote.user_id, Vote.value))
            return [(item, user, value) for item, user, value in votes]

    def counts(self) -> dict[int, int]:
        with Session(self.engine) as session:
            items = session.execute(sa.select(Item.id, Item.vote_count))
            return {row.id: row.vote_count for row in items}


def drive(way: str, between: Callable[[], object] = lambda: None) -> None:
    if way not in ("naive", "expression"):
        sys.exit(f"{way!r} is no way to count; it takes naive or expression")
    url = os.environ.get("HOTCOUNT_LOAD_DB")
    if not url:
        sys.exit("start this by hotcount-load: its head says how")
    shop = Shop(url, way, between)
    load.driver(
        setup=shop.setup,
        cast=shop.cast,
        read=shop.read,
        rows=shop.rows,
        counts=shop.counts,
        threads=8,
        place=f"{shop.engine.dialect.name} through SQLAlchemy",
        acknowledged="the vote's row and the item's count are committed, each by itself",
        # A repeat of a vote may return before the first one is counted.
        exact=False,
    )


if __name__ == "__main__":
    drive(sys.argv[1] if len(sys.argv) > 1 else "naive")
