"""Scripts for a database's own client, run as that client runs them: one statement at a time, each
its own transaction unless the script begins one."""

import sqlite3
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]
from sqlalchemy.engine import make_url

from tests.support.sqlalchemy_side import BothSides


def statements_of(script: str) -> list[list[str]]:
    """The statements, those of a transaction together."""
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    found = [text.strip() for text in "\n".join(lines).split(";\n")]
    groups: list[list[str]] = []
    inside = False
    before: list[str] = []
    for statement in (text.removesuffix(";") for text in found if text):
        if statement.startswith("DELIMITER //\n"):  # A word of the client's.
            statement = statement.removeprefix("DELIMITER //\n").removesuffix("//\nDELIMITER")
        if statement.startswith("SET TRANSACTION"):
            before = [statement]
            continue
        if inside:
            groups[-1].append(statement)
        else:
            groups.append([*before, statement])
            before = []
        if statement.startswith(("BEGIN", "START TRANSACTION")):
            inside = True
        if statement == "COMMIT":
            inside = False
    return groups


def run_script(sides: BothSides, script: str, url: str | None = None) -> None:
    statements = [statement for group in statements_of(script) for statement in group]
    connection: Any
    if sides.dialect == "sqlite":
        connection = sqlite3.connect(str(sides.engine.url.database), isolation_level=None)
        connection.execute("PRAGMA busy_timeout = 20000")
    elif sides.dialect == "postgresql":
        connection = psycopg.connect(url or sides.url, autocommit=True)
    else:
        of = make_url(str(sides.engine.url))
        connection = pymysql.connect(
            unix_socket=of.query["unix_socket"], user="root", database=of.database, autocommit=True
        )
    try:
        cursor = connection.cursor()
        for statement in statements:
            # No parameters: a % is one.
            cursor.execute(statement)
            if sides.dialect != "postgresql" or cursor.description is not None:
                cursor.fetchall()
    finally:
        connection.close()
