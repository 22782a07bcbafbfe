"""The settings of a PostgreSQL server, by what pg_settings says of them."""

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from psycopg import sql

from tests.support.servers import PostgresServer
from tests.support.settings_play import Play
from tests.support.settings_walk import Setting

LOGIN = "app"

# Texts for which pg_settings lists no values.
_TEXTS = {
    "DateStyle": ["SQL, DMY", "German, YMD", "Postgres, MDY"],
    "TimeZone": ["Asia/Kathmandu", "America/St_Johns"],
    "application_name": ["anything"],
    "client_encoding": ["LATIN1", "SQL_ASCII", "SJIS"],
    "default_table_access_method": ["no_such_method"],
    "default_tablespace": ["pg_global"],
    "default_text_search_config": ["pg_catalog.german"],
    "lc_messages": ["POSIX"],
    "lc_monetary": ["POSIX"],
    "lc_numeric": ["POSIX"],
    "lc_time": ["POSIX"],
    "search_path": ["''", "pg_catalog", "other", 'other, "$user"'],
    "temp_tablespaces": ["pg_default"],
    "timezone_abbreviations": ["India"],
}


class PostgresSettings:
    """A role gets what a role may have, and the server what only it may have."""

    def __init__(self, server: PostgresServer, left_out: Mapping[str, str]) -> None:
        """left_out: patterns of names, and why nobody walks to them."""
        self._server = server
        self._left_out = left_out
        self._plays = 0
        self._admin = psycopg.connect(
            host=str(server.folder), user=server.superuser, dbname="postgres", autocommit=True
        )
        self._run(f"CREATE ROLE {LOGIN} LOGIN")
        self._own = self._values()
        self._of_roles = {
            name
            for (name,) in self._run(
                "SELECT name FROM pg_settings WHERE context IN ('user', 'superuser')"
            )
        }

    def close(self) -> None:
        self._admin.close()

    def _run(self, query: str | sql.Composable) -> list[tuple[Any, ...]]:
        done = self._admin.execute(query)  # type: ignore[arg-type]
        return done.fetchall() if done.description else []

    def _values(self) -> dict[str, str]:
        return dict(self._run("SELECT name, setting FROM pg_settings"))

    def settings(self) -> dict[str, list[Any]]:
        rows = self._run(
            "SELECT name, vartype, setting, min_val, max_val, enumvals FROM pg_settings "
            "WHERE context NOT IN ('internal', 'postmaster') ORDER BY 1"
        )
        listed: dict[str, list[Any]] = {}
        for name, kind, own, least, most, words in rows:
            if any(re.fullmatch(pattern, name) for pattern in self._left_out):
                continue
            if kind == "bool":
                values: list[Any] = ["on", "off"]
            elif kind in ("integer", "real"):
                number = int if kind == "integer" else float
                # More is memory.
                low = number(least)
                high = max(low, min(number(most), number(10_000)))
                wanted = [low, high, number(10), number(1), number(own) / 3]
                values = [
                    str(number(each)) for each in dict.fromkeys(wanted) if low <= each <= high
                ]
            else:
                values = words or _TEXTS.get(name, [])
            listed[name] = [value for value in values if value != own]
        return listed

    def apply(self, settings: Iterable[Setting]) -> list[Setting]:
        taken = [setting for setting in settings if self._is_taken(setting)]
        self._reload(taken)
        return taken

    def _is_taken(self, setting: Setting) -> bool:
        value: sql.Composable = sql.Literal(str(setting.value))
        if setting.name == "search_path":  # A list.
            value = sql.SQL(str(setting.value))
        where = f"ALTER ROLE {LOGIN}" if setting.name in self._of_roles else "ALTER SYSTEM"
        try:
            self._run(
                sql.SQL("{} SET {} = {}").format(
                    sql.SQL(where), sql.Identifier(setting.name), value
                )
            )
        except psycopg.Error:
            if self._admin.closed:
                raise
            return False
        return True

    def _reload(self, settings: Iterable[Setting]) -> None:
        if all(setting.name in self._of_roles for setting in settings):
            return
        before = self._run("SELECT pg_conf_load_time()")
        self._run("SELECT pg_reload_conf()")
        # The server tells its sessions when it has read them itself.
        until = time.monotonic() + 30
        while self._run("SELECT pg_conf_load_time()") == before:
            assert time.monotonic() < until, "the server does not read its settings"
            time.sleep(0.002)

    def restore(self, settings: Iterable[Setting]) -> None:
        self._run(f"ALTER ROLE {LOGIN} RESET ALL")
        self._run("ALTER SYSTEM RESET ALL")
        self._reload(settings)
        now = self._values()
        off = {name: now[name] for name, own in self._own.items() if now[name] != own}
        assert not off, f"not set back: {off}"

    def make_play(self) -> Play:
        self._plays += 1
        if self._plays > 1:
            self._run(f"ALTER SCHEMA {LOGIN} RENAME TO {LOGIN}{self._plays}")
        self._run(f"CREATE SCHEMA {LOGIN} AUTHORIZATION {LOGIN}")

        def run(query: str) -> list[tuple[Any, ...]]:
            rows = self._run(re.sub(r"(FROM|TABLE) (\w+)", rf"\1 {LOGIN}.\2", query))
            if made := re.match(r"CREATE TABLE (\w+)", query):
                self._run(f"ALTER TABLE {LOGIN}.{made[1]} OWNER TO {LOGIN}")
            return rows

        return Play(
            self._server.url(user=LOGIN),
            f"postgresql+psycopg://{LOGIN}@/postgres?host={self._server.folder}"
            "&client_encoding=utf8",
            "text",
            run,
        )
