"""The web application under http_votes.py's load: one vote a request, in bare WSGI.

    VOTE_APP_URL=postgresql://... VOTE_APP_WAY=batched gunicorn loadtest.peers.vote_app:application

Without --preload each worker makes its own Votes, before its first request. GET /?item=1&user=2
casts a vote and answers when it is committed. VOTE_APP_WAY is a strategy of hotcount's, or
"django": one transaction that INSERTs the vote and UPDATEs the count, as Django does with an F()
expression, on a connection that the worker keeps (CONN_MAX_AGE=None), through psycopg or PyMySQL.

The order of the two statements suits the database. On PostgreSQL the UPDATE comes last, so the lock
on the item's row is the shortest. On MariaDB it comes first: an INSERT takes a shared lock on that
row for its foreign key, and two transactions that then UPDATE it deadlock.

hotcount's default tables must exist.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import hotcount

DJANGO = "django"
TIMEOUT_S = 30.0
INSERT = "INSERT INTO vote (item_id, user_id, val, prev) VALUES (%s, %s, 1, 0)"
UPDATE = "UPDATE item SET vote_count = vote_count + 1 WHERE id = %s"

Vote = Callable[[int, int], object]


def connect(url: str) -> Any:
    """psycopg takes the URL as it is; PyMySQL takes its parts. READ COMMITTED on both."""
    if url.startswith("postgresql:"):
        import psycopg

        # Prepares each statement at its first run, as hotcount does.
        return psycopg.connect(url, prepare_threshold=0)
    import pymysql  # type: ignore[import-untyped]

    parts = urlsplit(url)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    where = (
        {"unix_socket": options["unix_socket"]}
        if "unix_socket" in options
        else {"host": parts.hostname, "port": parts.port or 3306}
    )
    return pymysql.connect(
        **where,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=parts.path[1:],
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


def voter() -> Vote:
    url, way = os.environ["VOTE_APP_URL"], os.environ["VOTE_APP_WAY"]
    if way != DJANGO:
        strategy: Any = way
        votes = hotcount.Votes(hotcount.Database(url, timeout=TIMEOUT_S), strategy=strategy)
        return votes.cast
    connection = connect(url)
    cursor = connection.cursor()
    update_first = not url.startswith("postgresql:")

    def insert_and_update(item: int, user: int) -> None:
        if update_first:
            cursor.execute(UPDATE, (item,))
        cursor.execute(INSERT, (item, user))
        if not update_first:
            cursor.execute(UPDATE, (item,))
        connection.commit()

    return insert_and_update


vote = voter() if "VOTE_APP_URL" in os.environ else None


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    asked = parse_qs(environ["QUERY_STRING"])
    if "user" in asked:
        assert vote is not None, "VOTE_APP_URL is not set"
        vote(int(asked["item"][0]), int(asked["user"][0]))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    return [b"ok\n"]
