"""The extension has no SQLite: it uses the library of the interpreter's sqlite3, or says why not.

Each case is a process of its own, for a library that is loaded once stays.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hotcount import _core

from tests.support.programs import captured
from tests.support.sqlite_files import rows

# Votes through hotcount, a visit of Python's sqlite3 in between, and a kill after the last vote.
BESIDE_SQLITE3 = """
import os, signal, sqlite3, sys
import hotcount

votes = hotcount.Votes("sqlite:///" + sys.argv[1])
votes.create_tables()
votes.add_items([1])
acknowledged = sum(votes.cast(1, user).changed for user in range(100))
other = sqlite3.connect(sys.argv[1])
other.execute("SELECT COUNT(*) FROM vote").fetchall()
other.close()
acknowledged += sum(votes.cast(1, user).changed for user in range(100, 200))
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libsqlite3" in line}
same = hotcount.build_info()["sqlite"] == sqlite3.sqlite_version
print(acknowledged, int(votes.count(1)), os.path.exists(sys.argv[1] + "-wal"), same, flush=True)
print(len(libraries), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_extension_is_linked_with_no_sqlite_and_no_openssl() -> None:
    words = ["readelf", "--wide", "--dynamic", str(_core.__file__)]
    dynamic = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in dynamic
    assert not [library for library in ("sqlite", "ssl", "crypto") if library in dynamic]


def test_votes_beside_sqlite3_in_one_process_survive_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "votes.db"
    done = captured([sys.executable, "-c", BESIDE_SQLITE3, file])
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    # This Python's sqlite3 may have its library inside; it never has two.
    assert done.stdout in ("200 200 True True\n1\n", "200 200 True True\n0\n")
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    assert rows(file, "SELECT COUNT(*), SUM(val) FROM vote") == [(200, 200)]
    assert rows(file, "SELECT vote_count FROM item") == [(200,)]


# What stands for the interpreter's `_sqlite3`, and what an opened file is told then. apsw hides its
# SQLite as a statically linked interpreter does; pysqlite3 shows the one that it has inside.
STANDS_FOR_IT = {
    "missing": ("None", "this Python has none"),
    "hidden": (
        "__import__('types').SimpleNamespace(Connection=__import__('apsw').Connection)",
        "which hides it from other code",
    ),
    "inside": ("__import__('pysqlite3._sqlite3', fromlist=['_sqlite3'])", "opened"),
}
OPENS = """
import sys
sys.modules["_sqlite3"] = {module}
import hotcount
print(hotcount.Counter("memory://").add("k"))
print(hotcount.build_info()["sqlite"] == "not found")
try:
    hotcount.Database("sqlite:///:memory:").ping()
    print("opened")
except hotcount.ConfigError as error:
    print(error)
"""


def said_of(module: str, **more: str) -> list[str]:
    """The lines that OPENS prints."""
    done = captured([sys.executable, "-c", OPENS.format(module=module)], env={**os.environ, **more})
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("case", STANDS_FOR_IT)
def test_an_interpreter_whose_sqlite_cannot_be_used_is_told_why(case: str) -> None:
    module, said = STANDS_FOR_IT[case]
    counted, unknown, answer = said_of(module)
    assert counted == "1"
    assert unknown == str(said != "opened")
    assert said in answer


def test_an_sqlite_without_returning_is_named_with_its_version(tmp_path: Path) -> None:
    # SQLite 3.34 has every function that is called, but no RETURNING. Here a copy of pysqlite3's
    # library returns that version, and stands before the interpreter's on the path.
    spec = importlib.util.find_spec("pysqlite3")
    assert spec is not None
    (library,) = Path(str(spec.origin)).parent.glob("_sqlite3*.so")
    returns_version = rb"\xb8..[\x2d-\x2f]\x00(?=\xc3)"  # mov $3051001, %eax; ret
    old = b"\xb8" + (3_034_001).to_bytes(4, "little")
    changed, times = re.subn(returns_version, old, library.read_bytes(), flags=re.DOTALL)
    assert times == 1
    (tmp_path / "_sqlite3.so").write_bytes(changed)
    _, _, answer = said_of("__import__('_sqlite3')", PYTHONPATH=str(tmp_path))
    assert "in version 3.35 or newer" in answer
    assert str(tmp_path) in answer
