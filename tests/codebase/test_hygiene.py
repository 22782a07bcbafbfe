"""What no file of the repository may hold, and what files must agree on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from tests.codebase.tracked import ROOT, tracked

FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"""(?<![\w.$}/-])/(?:work|root|home/(?!user/)\w+|Users/\w+)/"""
    ),
    # Which registry a user's pip asks is the user's choice.
    "a package registry's host": re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:com|org)|proxy\.golang\.org|deb\.debian\.org)\b"
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if FORBIDDEN[what].search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", "cd " + "/" + "root/hotcount"),
        ("a path of somebody's machine", 'open("' + "/" + 'home/anna/x")'),
        ("a package registry's host", "index-url = https://" + "pypi" + ".org/simple"),
    ],
)
def test_each_pattern_finds_what_it_forbids(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


FOLDERS = ("cpp", "python/src", "loadtest/src")

# They write and read numbers as the process's locale does: "1,5" under a German one.
BY_LOCALE = re.compile(
    r"\b(v?s?n?f?printf|v?f?s?scanf|strto(d|f|ld)|atof|sto(d|f|ld)|[io]?stringstream|[io]stream)\b"
)
# The standard hash of text is the same in every process: who chooses keys can choose collisions.
UNSEEDED = re.compile(r"std::hash<std::string")


def lines() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                code = line.split("//")[0]
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}", code


@pytest.mark.parametrize("forbidden", [BY_LOCALE, UNSEEDED])
def test_no_source_asks_the_locale_or_hashes_without_a_key(forbidden: re.Pattern[str]) -> None:
    assert [where for where, code in lines() if forbidden.search(code)] == []


def test_every_hash_table_of_text_has_a_keyed_hash() -> None:
    table = re.compile(r"unordered_(map|set)<\s*std::string(_view)?\b([^;]*)")
    found = [
        where
        for where, code in lines()
        if (match := table.search(code)) and "Hash" not in match.group(3)
    ]
    assert found == []


# -- long files: more than 500 lines are two files, or stand here with a reason

MOST = 500
SUFFIXES = {".py", ".pyi", ".cpp", ".hpp", ".lua", ".go"}

# The reason why these are one file all the same.
LONG = {
    "python/hotcount/limiter.py": "one class, whose docstrings are its reference",
    "python/hotcount/live_sets.py": "likewise",
    "python/hotcount/votes.py": "likewise",
    "cpp/src/votes/journal/folder.cpp": "one state: when to fold, and what a fold left behind",
    "cpp/src/votes/cache/stream_worker.cpp": "one loop, from a stream's page to SQL and back",
    "cpp/src/votes/cache/sync_worker.cpp": "one round, from the hashes of a cache to SQL and back",
    "python/src/concepts/stores.cpp": "the options of all stores, and how each is read and shown",
    "loadtest/src/load/runner.cpp": "one run: its threads, and what they measure",
    "loadtest/src/report/columns.cpp": "a row for each column of every report",
    "tests/cpp/redis/cluster_schedules_test.cpp": "one model and what is drawn against it",
    "notebooks/sorted_sets.py": "one text, read from top to bottom",
    "python/src/aio/loop_adapter.cpp": "one object that two threads share under one lock",
    "python/src/aio/pending.cpp": "one type",
    "python/src/native/native.cpp": "what joins declarations to C++",
    "python/src/native/native_calls.hpp": "templates that instantiate one another",
}


def lines_of_long_files() -> dict[str, int]:
    found = {}
    for path in tracked():
        if path.suffix in SUFFIXES:
            lines = path.read_text(encoding="utf-8").count("\n")
            if lines > MOST:
                found[path.relative_to(ROOT).as_posix()] = lines
    return found


def test_no_new_file_has_more_than_500_lines() -> None:
    new = {name: lines for name, lines in lines_of_long_files().items() if name not in LONG}
    assert not new, f"split these along a seam, or give a reason in LONG: {new}"


def test_every_file_that_is_listed_is_long() -> None:
    assert LONG.keys() <= lines_of_long_files().keys(), "the list has files that are short by now"


@pytest.mark.parametrize(
    "folder", ["cpp", "python", "loadtest", "loadtest/micro", "loadtest/peers/cpp", "tests/cpp"]
)
def test_every_source_is_listed(folder: str) -> None:
    base = ROOT / folder
    names = {
        word.strip("()\"'")
        for line in (base / "CMakeLists.txt").read_text().splitlines()
        for word in line.split("#")[0].split()
    }
    sources = {path.relative_to(base).as_posix() for path in base.rglob("*.cpp")}
    if folder == "loadtest":  # these have lists of their own
        sources = {source for source in sources if not source.startswith(("micro/", "peers/"))}
    assert sources - names == set()


def test_the_calls_of_aio_are_those_that_scripts_aio_writes() -> None:
    command = [sys.executable, str(ROOT / "scripts/aio"), "--check"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""


def written(path: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, f"{path} names no version"
    return match[1]


def test_versions_agree() -> None:
    expected = written("pyproject.toml", r'^version = "([^"]+)"')
    assert written("CMakeLists.txt", r"^  VERSION (\S+)") == expected
    assert written("cpp/include/hotcount/build_info.hpp", r'kVersion = "([^"]+)"') == expected
    # The newest entry: work that is not released yet stands under the next version.
    assert written("CHANGELOG.md", r"^## \[?v?(\d+\.\d+\.\d+)") == expected
    assert version("hotcount") == expected


def test_an_image_may_copy_every_file_of_the_repository() -> None:
    text = (ROOT / ".dockerignore").read_text()
    left_out = {line for line in text.splitlines() if line and not line.startswith("#")}
    assert [name for name in left_out if not re.fullmatch(r"[.\w]+", name)] == []  # No pattern.
    assert left_out & {path.relative_to(ROOT).parts[0] for path in tracked()} == set()
