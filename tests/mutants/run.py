"""Puts each fault of faults.json into the sources, builds, and runs the tests of its room: a fault
that no test finds has survived.

    git worktree add ../mutants && cd ../mutants && make mutants
    make mutants MUTANTS_ARGS="--list"
    make mutants MUTANTS_ARGS="--only 3,17 --results before.json"

It changes the work tree that it runs in, so give it one of its own; the fault is taken out again,
also after Ctrl-C. A fault is found by its text: where a line has moved to another file, there. A
fault whose text is nowhere is gone, and faults.json takes its new text by hand. Before the faults
of a room its tests pass once without any, or the run ends. With --results a run goes on where an
earlier one has stopped.

A fault in C++ or Lua costs a build of its parts and the tests of a room: 3 to 15 minutes. A fault
in the dialect of MariaDB and MySQL is also tested on MySQL, which `make mutants` brings.
Exit code: 0 all found, 1 some survived, are gone or did not build, 2 bad usage or tests that fail
anyway.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAULTS = json.loads(Path(__file__).with_name("faults.json").read_text(encoding="utf-8"))
TIMEOUT_S = 3600

# Labels of ctest, and patterns of pytest's files, by the beginning of a path; the first that fits.
TESTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cpp/src/base": (
        "base|redis|sql",
        ("contract/*op_id*", "contract/test_counter*", "integration/package/test_fork*"),
    ),
    "cpp/src/counter": (
        "counter",
        (
            *("contract/*counter*", "faults/test_retry*", "faults/test_op_id*"),
            *("races/*counter*", "races/test_retry*", "integration/sql/*slotted*"),
            "integration/sql/test_sqlalchemy",
        ),
    ),
    "cpp/src/limiter": (
        "limiter",
        (
            *("contract/*limit*", "contract/*reserv*", "contract/test_hit*"),
            *("faults/*limit*", "faults/*reserv*", "races/*limiter*"),
            *("integration/redis/*limit*", "integration/redis/test_leases"),
            *("integration/redis/test_deny*", "integration/redis/test_hit*"),
            "integration/sql/test_sql_limiter",
        ),
    ),
    "cpp/src/zset": (
        "zset",
        ("contract/*sets*", "contract/*rebuild*", "races/*sets*", "races/*rebuild*"),
    ),
    "cpp/src/views": (
        "views",
        ("contract/test_write_behind*", "faults/test_write_behind_counter", "races/*views*"),
    ),
    "cpp/src/memory": ("memory|counter|limiter", ("contract/*counter*", "contract/*limiter*")),
    "cpp/src/redis": (
        "redis",
        ("integration/redis/*", "faults/test_redis*", "faults/*script*", "races/test_shared*"),
    ),
    "cpp/src/": (
        "sql|votes",
        (
            *("contract/*votes*", "faults/*vote*", "faults/*fold*", "faults/*write_behind*"),
            *("races/*votes*", "races/*journal*", "races/*write_behind*", "integration/sql/*"),
        ),
    ),
    "python/hotcount/integrations/limits": ("", ("integration/web/test_limits*",)),
    "python/hotcount/concurrency_limit.py": (
        "",
        ("contract/*concurrency*", "faults/*concurrency*"),
    ),
    # Not all of package: some of them build it.
    "python/": (
        "",
        (
            *("integration/package/test_[abel]*", "integration/package/test_cli*"),
            *("integration/package/test_native", "integration/package/test_results"),
            *("integration/aio/*", "contract/test_b*", "hostile/test_unfinished"),
        ),
    ),
}
# The dialect of two servers: --mysql runs what can tell them apart on the second one.
ON_MYSQL = "cpp/src/dialects/mysql/"
# Where a line may have moved to.
SOURCES = [ROOT / "cpp/src", ROOT / "cpp/include", ROOT / "python/hotcount"]


def core(line: str) -> str:
    """Without what quotes it: a line of SQL may move from a string to a file of its own."""
    quoted = re.fullmatch(r'"([^"]*)"[^\w"]*', line.strip())
    return quoted[1].strip() if quoted else line.strip()


def places(path: Path, before: str) -> list[int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    whole = [number for number, line in enumerate(lines) if line.strip() == before]
    return whole or [n for n, line in enumerate(lines) if core(line) == core(before)]


def place_of(fault: dict[str, str]) -> tuple[Path, int] | None:
    """Its file and line; None: gone, or at more than one place."""
    home = ROOT / fault["path"]
    if home.is_file() and len(found := places(home, fault["before"])) == 1:
        return home, found[0]
    files = [file for folder in SOURCES for file in sorted(folder.rglob("*")) if file.is_file()]
    text = {".cpp", ".hpp", ".lua", ".sql", ".py"}
    moved = [
        (file, line)
        for file in files
        if file.suffix in text
        for line in places(file, fault["before"])
    ]
    return moved[0] if len(moved) == 1 else None


def put_in(file: Path, number: int, fault: dict[str, str]) -> Callable[[], object]:
    """What takes it out again."""
    original = file.read_text(encoding="utf-8")
    lines = original.splitlines(keepends=True)
    lines[number] = lines[number].replace(core(fault["before"]), core(fault["after"]))
    file.write_text("".join(lines), encoding="utf-8")
    return lambda: file.write_text(original, encoding="utf-8")


def passes(command: list[str], log: Path) -> bool:
    """A command that does not end has failed."""
    with log.open("a", encoding="utf-8") as out:
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=out, stderr=out, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            out.write(f"{command[0]} did not end\n")
            return False
    # 5: pytest has no test of that kind.
    return done.returncode == 0 or (done.returncode == 5 and "pytest" in command)


def tests_of(path: str) -> tuple[str, tuple[str, ...]]:
    return next(tests for start, tests in TESTS.items() if path.startswith(start))


def files_of(pattern: str) -> list[str]:
    files = (ROOT / "tests").glob(f"{pattern}.py")
    found = [str(file) for file in files if file.name.startswith("test_")]
    assert found, f"TESTS names {pattern}, and no file is called so"
    return found


def tests_pass(path: str, log: Path) -> bool:
    label, patterns = tests_of(path)
    files = sorted({file for each in patterns for file in files_of(each)})
    jobs = str(os.cpu_count() or 1)
    ctest = ["ctest", "--test-dir", "build/release", "--stop-on-failure", "-j", jobs, "-L", label]
    pytest = [".venv/bin/python", "-m", "pytest", "-q", "-x", "-p", "tests.support.require_servers"]
    beside = ["-n", jobs, "--dist", "loadfile"]
    return (
        (not label or passes([*ctest, "--output-on-failure"], log))
        and passes([*pytest, *beside, "--beside", *files], log)
        and passes([*pytest, "--timed", "--alone", *files], log)
        and (not path.startswith(ON_MYSQL) or passes([*pytest, *beside, "--mysql", *files], log))
    )


def outcome(fault: dict[str, str], build: list[str], log: Path) -> str:
    place = place_of(fault)
    if place is None:
        return "gone"
    take_out = put_in(*place, fault)
    try:
        if not passes(build, log):
            return "does not build"
        return "survived" if tests_pass(fault["path"], log) else "found"
    finally:
        take_out()


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__)
    parser.add_argument("--only", metavar="NUMBERS", help="some of the faults, by commas [all]")
    parser.add_argument("--list", action="store_true", help="say where each is; change nothing")
    parser.add_argument("--build", default="make build", metavar="COMMAND", help="[make build]")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep the outcomes there")
    parser.add_argument(
        "--log", type=Path, default=ROOT / "build/mutants.log", help="[build/mutants.log]"
    )
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    chosen = arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # So that the fault is taken out.
    only = [int(each) for each in chosen.only.split(",")] if chosen.only else []
    faults = {number: fault for number, fault in enumerate(FAULTS, 1) if not only or number in only}
    if chosen.list:
        for number, fault in faults.items():
            place = place_of(fault)
            where = f"{place[0].relative_to(ROOT)}:{place[1] + 1}" if place else "gone"
            print(f"{number:2} {fault['kind']:11} {where}")
        return 0
    results: dict[str, str] = {}
    if chosen.results and chosen.results.exists():
        results = json.loads(chosen.results.read_text(encoding="utf-8"))
    chosen.log.parent.mkdir(parents=True, exist_ok=True)
    build = ["sh", "-c", chosen.build]
    sound: set[tuple[str, tuple[str, ...], bool]] = set()
    for number, fault in sorted(faults.items(), key=lambda each: each[1]["path"]):
        if str(number) in results:
            continue
        tests = (*tests_of(fault["path"]), fault["path"].startswith(ON_MYSQL))
        if tests not in sound and not (
            passes(build, chosen.log) and tests_pass(fault["path"], chosen.log)
        ):
            print(f"{fault['path']}: its tests fail without a fault: {chosen.log}", file=sys.stderr)
            return 2
        sound.add(tests)
        results[str(number)] = outcome(fault, build, chosen.log)
        print(
            f"{number:2} {results[str(number)]:14} {fault['kind']:11} {fault['path']}", flush=True
        )
        if chosen.results:
            chosen.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    passes(build, chosen.log)  # Without a fault again.
    of = Counter(results[str(number)] for number in faults)
    print(", ".join(f"{count} {name}" for name, count in sorted(of.items())))
    return int(of["found"] < len(faults))


if __name__ == "__main__":
    sys.exit(main())
