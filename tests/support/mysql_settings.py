"""The settings of a MariaDB or MySQL server: which it has, of which types, within which bounds."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import pymysql  # type: ignore[import-untyped]

from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql
from tests.support.settings_play import Play
from tests.support.settings_walk import Setting

LOGIN = "app"
_LOST = (0, 2006, 2013)  # The session.

# A server takes as much memory as some of its numbers say.
_MOST = 1 << 26
_ENGINES = "SELECT ENGINE FROM information_schema.ENGINES WHERE SUPPORT IN ('YES', 'DEFAULT')"
_CHARACTER_SETS = "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS ORDER BY 1"
_COLLATIONS = "SELECT COLLATION_NAME FROM information_schema.COLLATIONS ORDER BY 1"

# What a name begins with, and a query for texts that it takes.
_TEXTS = {
    "character_set_": _CHARACTER_SETS,
    "collation_": _COLLATIONS,
    "default_storage_engine": _ENGINES,
    "default_tmp_storage_engine": _ENGINES,
    "storage_engine": _ENGINES,
    "enforce_storage_engine": _ENGINES,
    "default_collation_for_utf8mb4": "SELECT 'utf8mb4_general_ci'",
    "time_zone": "SELECT '+13:00' UNION SELECT '-11:30'",
    "init_connect": (
        "SELECT 'SET NAMES latin1, sql_select_limit = 3, autocommit = 0, completion_type = 1'"
    ),
}


class MysqlSettings:
    def __init__(self, server: MariaDbServer, left_out: Mapping[str, str]) -> None:
        """left_out: patterns of names, and why nobody walks to them."""
        self._server = server
        self._left_out = left_out
        self._databases = 0
        server.execute(f"CREATE USER {LOGIN}@localhost")
        # As anybody would: what holds for one who may do all is not what holds for it.
        server.execute(f"GRANT ALL ON `t%`.* TO {LOGIN}@localhost")
        self._connect()

    def _connect(self) -> None:
        """While the server has its own settings."""
        self._admin = self._server.connect(read_timeout=60, autocommit=True)
        self._own = self._values()

    def close(self) -> None:
        with suppress(pymysql.err.Error):  # It may have been ended.
            self._admin.close()

    def _run(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._admin.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall())

    def _values(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self._run("SHOW GLOBAL VARIABLES")}

    # -- values -------------------------------------------------------------------

    def settings(self) -> dict[str, list[Any]]:
        listed = self._list_of_mysql() if is_mysql() else self._list_of_mariadb()
        return {
            name: values
            for name, values in listed.items()
            if not any(re.fullmatch(pattern, name) for pattern in self._left_out)
        }

    def _list_of_mariadb(self) -> dict[str, list[Any]]:
        rows = self._run(
            "SELECT LOWER(VARIABLE_NAME), VARIABLE_TYPE, COALESCE(GLOBAL_VALUE, ''), "
            "NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, ENUM_VALUE_LIST "
            "FROM information_schema.SYSTEM_VARIABLES "
            "WHERE READ_ONLY = 'NO' AND VARIABLE_SCOPE IN ('GLOBAL', 'SESSION') ORDER BY 1"
        )
        listed: dict[str, list[Any]] = {}
        for name, kind, own, least, most, words in rows:
            if kind == "FLAGSET":
                listed[name] = _flags(own)
            elif kind == "SET" and words:
                each = words.split(",")
                listed[name] = ["", words, *(_with(own, word) for word in each)]
            elif kind == "DOUBLE":
                low, high = float(least), float(most)
                listed[name] = [low, high, *([0.001] if low <= 0.001 <= high else [])]
            elif "INT" in kind:
                listed[name] = _numbers(name, int(own), int(least), int(most))
            elif words:
                listed[name] = words.split(",")
            else:
                listed[name] = self._texts(name)
            listed[name] = [value for value in listed[name] if str(value) != own]
        return listed

    def _list_of_mysql(self) -> dict[str, list[Any]]:
        """It tells no types and no words, and takes the number of a word for the word."""
        rows = self._run(
            "SELECT VARIABLE_NAME, MIN_VALUE, MAX_VALUE FROM performance_schema.variables_info "
            "ORDER BY 1"
        )
        listed: dict[str, list[Any]] = {}
        for name, least, most in rows:
            own = self._own.get(name)
            if own is None or not self._may_be_set(name):
                continue
            if own in ("ON", "OFF"):
                listed[name] = ["OFF" if own == "ON" else "ON"]
            elif re.fullmatch(r"-?\d+", own) and most != "0":
                listed[name] = _numbers(name, int(own), int(least), int(most))
            elif re.fullmatch(r"\d+\.\d+", own):
                listed[name] = [0.0, 0.5, 99.0]
            elif re.fullmatch(r"(\w+=(on|off),?)+", own):
                listed[name] = _flags(own)
            else:
                listed[name] = self._texts(name) or self._words(name)
            listed[name] = [value for value in listed[name] if str(value) != own]
        return listed

    def _words(self, name: str) -> list[int]:
        """The numbers of words, and of words of a set, that the server takes."""
        numbers = (0, 1, 3, *(1 << bit for bit in range(1, 36)))
        found = [number for number in numbers if self._set(name, number) is None]
        self._set(name, self._own[name])
        return found

    def _may_be_set(self, name: str) -> bool:
        """Whether it is a global variable that may change while the server runs."""
        return self._set(name, self._own[name]) != 1238  # ER_INCORRECT_GLOBAL_LOCAL_VAR

    def _texts(self, name: str) -> list[Any]:
        if name.startswith("lc_"):
            return list(range(0, 110, 9))  # By their numbers.
        for head, query in _TEXTS.items():
            if name.startswith(head):
                found = [row[0] for row in self._run(query)]
                return found[:: len(found) // 12 or 1]
        return []

    # -- setting ------------------------------------------------------------------

    def apply(self, settings: Iterable[Setting]) -> list[Setting]:
        return [each for each in settings if self._set(each.name, each.value) is None]

    def _set(self, name: str, value: Any) -> int | None:
        """The number of the server's error."""
        try:
            self._run(f"SET GLOBAL {name} = %s", (value,))
        except pymysql.err.MySQLError as error:
            if error.args[0] in _LOST:
                raise
            return int(error.args[0])
        return None

    def restore(self, settings: Iterable[Setting]) -> None:
        off = {setting.name for setting in settings}
        with suppress(pymysql.err.MySQLError):
            # Values that bound each other take a few rounds.
            for _ in range(3):
                off = self._set_back(off)
                if not off:
                    return
        # For some it takes a start, and others end every session.
        self._server.stop()
        self._server.start()
        self._connect()

    def _set_back(self, names: Iterable[str]) -> set[str]:
        for name in names:
            own = self._own[name]
            if self._set(name, own) is not None and re.fullmatch(r"-?\d+(\.\d+)?", own):
                self._set(name, float(own) if "." in own else int(own))
        now = self._values()
        return {name for name, own in self._own.items() if now.get(name) != own}

    def make_play(self) -> Play:
        self._databases += 1
        name = f"t{self._databases}"
        self._run(f"CREATE DATABASE {name}")

        def run(sql: str) -> list[tuple[Any, ...]]:
            return self._run(re.sub(r"(FROM|TABLE) (\w+)", rf"\1 {name}.\2", sql))

        socket = self._server.socket
        return Play(
            self._server.url(name, user=LOGIN),
            f"mysql+pymysql://{LOGIN}@/{name}?unix_socket={socket}&charset=utf8mb4",
            "VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            run,
        )


def _numbers(name: str, own: int, least: int, most: int) -> list[Any]:
    if re.search("size|buffer|len|packet|cache|alloc|stack|heap|mem|limit", name):
        most = max(least, min(most, _MOST))
    wanted = (least, most, 1, 10, own // 3)
    return [number for number in dict.fromkeys(wanted) if least <= number <= most]


def _flags(own: str) -> list[Any]:
    # MariaDB takes no value without either way to run a subquery.
    flags = [flag.split("=") for flag in own.split(",") if flag != "in_to_exists=on"]
    flipped = [f"{flag}={'off' if on == 'on' else 'on'}" for flag, on in flags]
    return [",".join(flipped), *flipped]


def _with(own: str, word: str) -> str:
    have = [each for each in own.split(",") if each]
    return ",".join([each for each in have if each != word] if word in have else [*have, word])
