"""A connection of psycopg's or PyMySQL's to what a hotcount URL names: the clients that people use
without hotcount."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


def connect(url: str, *, autocommit: bool = False) -> Any:
    """PostgreSQL's URLs are psycopg's too; MariaDB's are taken apart. READ COMMITTED on both."""
    if url.startswith("postgresql:"):
        import psycopg

        # What is run again and again is prepared at once, as hotcount's statements are.
        return psycopg.connect(url, autocommit=autocommit, prepare_threshold=0)
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
        autocommit=autocommit,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )
