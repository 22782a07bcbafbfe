"""What `pip install .` brings: the package, its commands and the load generator.

HOTCOUNT_WHEEL names a wheel of `make wheel` for this interpreter, which is then tested and not
built here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.programs import captured
from tests.support.sqlite_files import rows

ROOT = Path(__file__).resolve().parents[3]

# It compiles everything once more.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def ended(*words: str | Path, errors: int = subprocess.PIPE) -> str:
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=errors, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, done.stdout + (done.stderr or "")
    return done.stdout


def build_wheel(folder: Path, *settings: str) -> tuple[Path, str]:
    """The wheel, and what pip said."""
    pip = (sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps")
    # pip writes the output of the build to stderr.
    said = ended(*pip, *settings, "-w", folder, str(ROOT), errors=subprocess.STDOUT)
    (wheel,) = folder.glob("*.whl")
    return wheel, said


def installed(wheel: Path, folder: Path) -> Path:
    """The folder of the programs of an environment that has the wheel and nothing else."""
    venv.create(folder, with_pip=True)
    ended(folder / "bin/python", "-m", "pip", "install", "--no-index", wheel)
    return folder / "bin"


# Every SQLite library that a process may have opens and closes the file between votes.
THREE_LIBRARIES = """
import os, signal, sqlite3, sys
import apsw, hotcount, pysqlite3

assert hotcount.__file__.startswith(sys.prefix), hotcount.__file__
votes = hotcount.Votes("sqlite:///" + sys.argv[1])
votes.create_tables()
votes.add_items([1])
user = 0
for connect in (sqlite3.connect, apsw.Connection, pysqlite3.connect):
    other = connect(sys.argv[1])
    other.execute("SELECT COUNT(*) FROM vote").fetchall()
    other.close()
    for _ in range(100):
        user += votes.cast(1, user).changed
print(user, int(votes.count(1)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a wheel as `make wheel` builds it: its hotcount-load opens the extension."""
    folder = tmp_path_factory.mktemp("wheel")
    if given := os.environ.get("HOTCOUNT_WHEEL"):
        return installed(Path(given).absolute(), folder / "venv")
    starter = "--config-settings=cmake.define.HOTCOUNT_LOAD_IN_EXTENSION=ON"
    wheel, _ = build_wheel(folder, starter)
    return installed(wheel, folder / "venv")


def test_a_wheel_beside_three_sqlite_libraries_keeps_every_vote_of_a_killed_process(
    programs: Path, tmp_path: Path
) -> None:
    # A .pth file appends the tests' packages to sys.path: apsw and pysqlite3 come from there, and
    # hotcount still from the wheel.
    (packages,) = programs.parent.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("platlib"))
    file = tmp_path / "votes.db"
    done = captured([programs / "python", "-c", THREE_LIBRARIES, file])
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "300 300\n"), done.stderr
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    assert rows(file, "SELECT COUNT(*), SUM(val) FROM vote") == [(300, 300)]


def test_a_wheel_brings_the_load_generator(programs: Path) -> None:
    memory = ("run", "-s", "memory", "--workload", "counters", "-d", "300ms", "--json")
    forked = ("run", "-s", "batched", "--processes", "2", "-d", "300ms", "--json")
    for command in [
        (programs / "hotcount", "load", *memory),
        (programs / "hotcount-load", *memory),
        (programs / "hotcount-load", *forked),
    ]:
        assert json.loads(ended(*command))


def test_a_load_generator_finds_its_package_below_any_name(programs: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(programs.parent, tmp_path / "a[b]*", symlinks=True)
    assert ended(moved / "bin" / "hotcount-load", "--version")


def test_a_load_generator_without_its_package_names_the_file(
    programs: Path, tmp_path: Path
) -> None:
    alone = shutil.copy2(programs / "hotcount-load", tmp_path)
    done = subprocess.run([alone, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "install hotcount again" in done.stderr
    assert "hotcount/_core." in done.stderr


def test_without_the_load_generators_libraries_the_package_installs(tmp_path: Path) -> None:
    wheel, said = build_wheel(
        tmp_path, "--config-settings=cmake.define.CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON"
    )
    assert "without hotcount-load, because CLI11 was not found" in said
    programs = installed(wheel, tmp_path / "venv")
    assert ended(programs / "hotcount", "--version")
    done = captured([programs / "hotcount", "load"], env={})
    assert (done.returncode, "CLI11" in done.stderr) == (3, True)
