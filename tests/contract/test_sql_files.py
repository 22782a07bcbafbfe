"""Each statement of a .sql file is prepared on a server of its database, with each of its flags.

A statement that another one of its file names in braces is a part of that one, and is not prepared
by itself. Scripts run, each on tables of its own.
"""

from collections.abc import Mapping

import pytest

from tests.support.sql_files import ROOT, Statements, files
from tests.support.sql_names import COMPOSED, FOLDERS, GIVEN, ONLY_ON, SETUP, statements_of
from tests.support.sql_sessions import Session

PREPARED = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "VALUES", "BEGIN NOT", "/*")


def dialects_of(file: str, name: str) -> list[str]:
    """A file of a dialect is for its database, others are for all."""
    own = [dialect for dialect, of in FOLDERS.items() if f"dialects/{of}/" in file]
    return list(ONLY_ON.get((file, name), own or FOLDERS))


def cases() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in files():
        file = path.relative_to(ROOT).as_posix()
        statements = Statements.of([path], {})
        parts = {used for name in statements.parts for used in statements.uses(name)}
        parts |= {name for of, name in COMPOSED if of == file}
        found += [(file, name) for name in statements.parts if name not in parts]
    return found


@pytest.mark.server
@pytest.mark.parametrize(("file", "name"), cases())
def test_statements_are_prepared(sql_sessions: dict[str, Session], file: str, name: str) -> None:
    for dialect in dialects_of(file, name):
        session = sql_sessions[dialect]
        texts = statements_of(dialect, file).texts(name, GIVEN.get((file, name), {}))
        for text, flags in texts:
            if text.startswith(PREPARED) and not text.endswith(";"):
                session.prepare(text)
            else:
                session.run(text, ";".join(setups(name, flags)))


def setups(name: str, flags: Mapping[str, str]) -> list[str]:
    return [text for (of, flag), text in SETUP.items() if of == name and flags.get(flag, "1")]
