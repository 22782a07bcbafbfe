"""Sessions that prepare statements as the library's connections do, beside tables of hotcount's."""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import hotcount
import psycopg
from psycopg.pq import ExecStatus
from pymysql.constants import CLIENT  # type: ignore[import-untyped]

from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer


class Session(Protocol):
    def prepare(self, text: str) -> None: ...
    def run(self, text: str, setup: str) -> None: ...
    def plan(self, text: str) -> list[str]: ...
    def close(self) -> None: ...


def make_tables(url: str) -> None:
    """All that hotcount keeps in a database."""
    with hotcount.Database(url, timeout=20) as database, hotcount.Memory() as cache:
        hotcount.Votes(database, cache, "cached").create_tables()
        hotcount.Votes(database).create_tables()
        hotcount.SlottedCounter(database).create_table()
        hotcount.Limiter(database, "1/s").create_table()
        with hotcount.WriteBehindCounter(database, "redis://127.0.0.1:1") as views:
            views.create_tables()


# Enough rows that no plan reads a whole table because it is small.
ROWS = tuple(
    f"INSERT INTO {table} SELECT {values} FROM {{numbers}} WHERE i <= {most}"
    for table, values, most in (
        ('"item" ("id", "vote_count")', "i, 3", 20_000),
        ('"vote" ("item_id", "user_id", "val")', "1 + (i - 1) % 20000, i, 1", 60_000),
        ('"vote_cell" (item, slot, n, ver)', "i, -1, 3, 1", 20_000),
        ('"vote_journal" (item, diff)', "1 + i % 20000, 1", 40_000),
        ('"vote_sync" (item)', "i", 20_000),
    )
)
TABLES = ("item", "vote", "vote_cell", "vote_journal", "vote_sync", "vote_meta")


def placed(text: str, mark: Callable[[str], str]) -> str:
    """With each ?1 outside quotes as the database has it."""
    pieces = re.split(r"""('[^']*'|"[^"]*"|\?\d+)""", text)
    return "".join(mark(piece[1:]) if re.match(r"\?\d", piece) else piece for piece in pieces)


def highest(text: str) -> int:
    """How many parameters a statement has."""
    return max((int(number) for number in re.findall(r"\?(\d+)", text)), default=0)


class Postgres:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._session = self._open()

    def _open(self) -> psycopg.Connection:
        database = self._server.create_database()
        make_tables(database.url)
        return database.connect(autocommit=True)

    def prepare(self, text: str) -> None:
        text = placed(text, lambda number: f"${number}")
        answer = self._session.pgconn.prepare(b"", text.encode())
        assert answer.status == ExecStatus.COMMAND_OK, answer.error_message.decode()

    def run(self, text: str, setup: str) -> None:
        begins = not re.search(r"\b(COMMIT|CONCURRENTLY|VACUUM)\b", text)
        with closing(self._open()) as session:
            for statement in ["BEGIN" if begins else "", setup, *split(text)]:
                answer = session.pgconn.exec_(statement.encode())
                assert answer.status != ExecStatus.FATAL_ERROR, answer.error_message.decode()

    def plan(self, text: str) -> list[str]:
        """As a statement that is prepared once for all values runs: its nodes and their indexes."""
        nulls = ", ".join("NULL" for _ in range(highest(text)))
        session = self._filled
        session.execute("PREPARE hc AS " + placed(text, lambda number: f"${number}"))
        (((top,),),) = session.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hc ({nulls})").fetchall()
        session.execute("DEALLOCATE hc")
        return list(self._nodes(top["Plan"], ""))

    @cached_property
    def _filled(self) -> psycopg.Connection:
        session = self._open()
        for rows in ROWS:
            session.execute(rows.format(numbers="generate_series(1, 60000) AS n (i)"))
        session.execute("ANALYZE " + ", ".join(TABLES))
        session.execute("SET plan_cache_mode = force_generic_plan")
        return session

    def _nodes(self, node: dict[str, Any], indent: str) -> Iterator[str]:
        of = re.sub(r" \(returns .*\)", "", node.get("Subplan Name", ""))
        at = node.get("Index Name") or node.get("Relation Name") or node.get("CTE Name") or ""
        yield indent + f"{of}{': ' if of else ''}{node['Node Type']} {at}".rstrip()
        for below in node.get("Plans", []):
            yield from self._nodes(below, indent + "  ")

    def close(self) -> None:
        self._session.close()
        self._filled.close()


class MariaDb:
    def __init__(self, server: MariaDbServer) -> None:
        self._server = server
        self._session = self._open()

    def _open(self) -> Any:
        name = self._server.create_database()
        make_tables(self._server.url(name))
        return self._server.connect(
            name, client_flag=CLIENT.MULTI_STATEMENTS, sql_mode="ANSI_QUOTES,STRICT_ALL_TABLES"
        )

    def prepare(self, text: str) -> None:
        with self._session.cursor() as cursor:
            cursor.execute("PREPARE hc FROM %s", (placed(text, lambda _: "?"),))

    def run(self, text: str, setup: str) -> None:
        with closing(self._open()) as session, session.cursor() as cursor:
            for statement in [setup, *split(text)]:
                if statement:
                    cursor.execute(statement)

    def plan(self, text: str) -> list[str]:
        """Of each table the way to its rows, and the index."""
        values = ", ".join("1" for _ in re.findall(r"\?\d+", text))
        with self._filled.cursor() as cursor:
            cursor.execute("PREPARE hc FROM %s", ("EXPLAIN " + placed(text, lambda _: "?"),))
            cursor.execute(f"EXECUTE hc USING {values}")
            columns = [column[0] for column in cursor.description]
            found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        return [f"  {row['table']} {row['type']} {row['key'] or ''}".rstrip() for row in found]

    @cached_property
    def _filled(self) -> Any:
        session = self._open()
        with session.cursor() as cursor:
            for rows in ROWS:
                cursor.execute(rows.format(numbers="(SELECT seq AS i FROM seq_1_to_60000) AS n"))
            cursor.execute("ANALYZE TABLE " + ", ".join(TABLES))
        session.commit()
        return session

    def close(self) -> None:
        self._session.close()
        if "_filled" in vars(self):
            self._filled.close()


class Sqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        make_tables(f"sqlite:///{path}")
        self._session = sqlite3.connect(path)

    def prepare(self, text: str) -> None:
        self._session.execute("EXPLAIN " + text, (None,) * highest(text)).fetchall()

    def run(self, text: str, setup: str) -> None:
        copy = shutil.copy(self._path, self._path.with_suffix(".copy"))
        with closing(sqlite3.connect(copy)) as session:
            session.executescript(f"{setup};\n{text}")

    def plan(self, text: str) -> list[str]:
        rows = self._session.execute(
            "EXPLAIN QUERY PLAN " + text, (None,) * highest(text)
        ).fetchall()
        return [f"  {row[3]}" for row in rows]

    def close(self) -> None:
        self._session.close()


def split(script: str) -> list[str]:
    """The statements of a script; a ; within $hotcount$ ends none."""
    statements = [""]
    for piece in re.split(r"(\$hotcount\$|;\s*(?:\n|$))", script):
        statements[-1] += piece
        if piece.startswith(";") and statements[-1].count("$hotcount$") % 2 == 0:
            statements.append("")
    return [statement for statement in statements if statement.strip()]
