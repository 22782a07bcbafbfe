"""Models with the mixins of hotcount.integrations.sqlalchemy, and Alembic over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from hotcount.integrations.sqlalchemy import VotedMixin, VoteMixin
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from tests.support.page_blocks import ROOT, blocks_of

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class Base(DeclarativeBase):
    pass


class Post(VotedMixin, Base):
    __tablename__ = "post"
    id: Mapped[int] = mapped_column(ID, primary_key=True)


class PostVote(VoteMixin, Base):
    __tablename__ = "post_vote"
    __voted__ = Post


class Blog(DeclarativeBase):
    """One with users, cascades of the ORM's, names of its own and a key of the votes' own."""


class User(Blog):
    __tablename__ = "blog user"
    id: Mapped[int] = mapped_column(ID, primary_key=True)
    likes: Mapped[list[Like]] = relationship(cascade="all, delete-orphan")


class Article(VotedMixin, Blog):
    __tablename__ = "article"
    number: Mapped[int] = mapped_column("no", ID, primary_key=True)
    vote_count: Mapped[int] = mapped_column("Likes", ID, server_default="0")
    likes: Mapped[list[Like]] = relationship(cascade="all, delete-orphan")


class Like(VoteMixin, Blog):
    __tablename__ = "like"
    __voted__ = Article
    __table_args__ = (sa.UniqueConstraint("article", "who"),)
    id: Mapped[int] = mapped_column(ID, primary_key=True)
    item_id: Mapped[int] = mapped_column("article", ID, sa.ForeignKey(Article.number))
    user_id: Mapped[int] = mapped_column("who", ID, sa.ForeignKey(User.id))


DOCUMENT = blocks_of((ROOT / "docs/how-to/sqlalchemy.md").read_text("utf-8"))
*PROGRAM, CONFIGURE = (block.text for block in DOCUMENT)
ENV = f"""
from alembic import context

connection = context.config.attributes["connection"]
target_metadata = context.config.attributes["metadata"]
{CONFIGURE}
with context.begin_transaction():
    context.run_migrations()
"""
SCRIPT = """
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
import sqlalchemy as sa
from alembic import op
from hotcount.integrations.sqlalchemy import drop_tables

def upgrade():
    ${upgrades if upgrades else "pass"}

def downgrade():
    drop_tables(op.get_bind(), "post_vote")
    ${downgrades if downgrades else "pass"}
"""


class Alembic:
    """Its own commands over an engine, as `alembic check` and the others run them."""

    def __init__(self, folder: Path, engine: sa.Engine, metadata: Any) -> None:
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(ENV)
        (folder / "script.py.mako").write_text(SCRIPT)
        self._config = Config()
        self._config.set_main_option("script_location", str(folder).replace("%", "%%"))
        self._config.set_main_option("path_separator", "os")
        self._config.attributes["metadata"] = metadata
        self._engine = engine

    def run(self, what: str, *arguments: Any, **options: Any) -> None:
        with self._engine.begin() as connection:
            self._config.attributes["connection"] = connection
            getattr(command, what)(self._config, *arguments, **options)
