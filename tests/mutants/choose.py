"""Chooses the faults of faults.json: 40 lines of the sources, each changed by one rule.

    python -m tests.mutants.choose >tests/mutants/faults.json

The same seed chooses the same faults from the same tree. A fault counts only beside its result from
an earlier tree, so the file is chosen once and then kept; run.py says which of its lines are gone.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEED = 33
CPP = (".cpp", ".hpp")

# Code that leaves the library, or that another library's takes the place of: its faults would be
# gone for that reason alone.
LEAVES = re.compile(
    r"src/unsafe/|limiter/(lua/)?list\.|plain_windows|redis/reply_reader|postgres/authentication|"
    r"counter/retry_journal|zset/redis_steps|hotcount/(_demo|_?report|_load)"
)
LEAVING = re.compile(
    r"increx|entries|\bwho\b|racy|unguarded|compensation|watch|check_and_set", re.I
)
# They declare, or only choose how fast something is: no test can tell the fault.
STATIC = re.compile(
    r"^(#|//|--|\*|template|using|static_assert|constexpr|enum|assert|case|@|virtual)|"
    r"\bspin|kMax|reserve\(|\b\w*fd_? >= 0|\+ 0\b"
)
# Compilers ask for parentheses.
MIXED = re.compile(r"&&.*\|\||\|\|.*&&|(&&|\|\|)$")
# Read: no test can tell the fault. Another patience, two times that are hardly ever the same, the
# greatest of truths for their sum, the greater of two equal numbers, an expiry set to what it is, a
# deadline that the next statement checks itself.
ALIKE = {
    "while (wait_for_held && !folded.held.empty() && !deadline.passed()) {",
    "const bool many = groups_.size() != 1 || groups_.front()->writes.size() > 1;",
    "if (write.get() != own_ && write->deadline_.time() > over) {",
    '"SELECT COALESCE(SUM(instr(sql, ?1) = 0), 0) > 0 OR COALESCE(SUM(instr(sql, ?1 || "',
    "return a > b and a or b",
    "if left < ARGV[1] + ARGV[2] then redis.call('PEXPIRE', KEYS[2], ARGV[1] + ARGV[2]) end",
}


@dataclass(frozen=True)
class Kind:
    name: str
    wanted: int
    suffixes: tuple[str, ...]
    rules: tuple[tuple[str, str], ...]
    in_text: bool = False  # In string literals, where SQL stands; else outside of them.


COMPARISONS = ((r" < ", " <= "), (r" <= ", " < "), (r" > (?!0\b)", " >= "), (r" >= ", " > "))
KINDS = (
    Kind("bound", 8, CPP, COMPARISONS),
    Kind(
        "operator",
        6,
        CPP,
        ((" == ", " != "), (" != ", " == "), (" && ", " || "), (r" \|\| ", " && ")),
    ),
    Kind("off by one", 3, CPP, ((r" \+ 1(?=[;,) ])", ""), (r" - 1(?=[;,) ])", ""))),
    Kind(
        "deadline",
        3,
        CPP,
        ((r"(?<![\w>.])\w*deadline_?(\.|->)passed\([^()]*(\(\))?\)", r"(false && \g<0>)"),),
    ),
    Kind("mutex", 3, CPP, ((r"^(const )?std::lock_guard \w+\(.*\);$", ""),)),
    Kind(
        "SQL lock",
        4,
        CPP,
        (
            (" FOR (NO KEY )?UPDATE( NOWAIT)?", ""),
            (" FOR (KEY )?SHARE", ""),
            (" LOCK IN SHARE MODE", ""),
            (" SKIP LOCKED", ""),
            ("BEGIN IMMEDIATE", "BEGIN"),
        ),
        in_text=True,
    ),
    Kind(
        "SQL clause",
        5,
        CPP,
        (
            *COMPARISONS,
            (" <> ", " = "),
            (" IS DISTINCT FROM ", " = "),
            (" IS NOT NULL", " IS NULL"),
            (" AND ", " OR "),
            (r"\bMAX\(", "MIN("),
            (r"\bSUM\(", "MAX("),
        ),
        in_text=True,
    ),
    Kind(
        "Lua",
        5,
        (".lua",),
        (
            *COMPARISONS,
            (" == ", " ~= "),
            (" ~= ", " == "),
            (" and ", " or "),
            (r" \+ ", " - "),
            (r" - ", " + "),
        ),
    ),
    Kind(
        "Python",
        3,
        (".py",),
        (
            *COMPARISONS,
            (" == ", " != "),
            (" and ", " or "),
            (r"\bif not ", "if "),
            (r" \+ 1\b", ""),
            (" is None", " is not None"),
        ),
    ),
)


def changed(line: str, kind: Kind) -> Iterator[str]:
    """The line with one place changed, in each way that the rules have."""
    code = re.split(r"\s(?://|--|#) ", line)[0]
    parts = re.split(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", code)
    for number in range(kind.in_text, len(parts), 2):
        for pattern, instead in kind.rules:
            for match in re.finditer(pattern, parts[number]):
                made = match.expand(instead)
                part = parts[number][: match.start()] + made + parts[number][match.end() :]
                result = "".join([*parts[:number], part, *parts[number + 1 :]]) + line[len(code) :]
                if made.strip() not in ("&&", "||") or not MIXED.search(result):
                    yield result


def without_docstrings(text: str) -> str:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)
    return "\n".join(lines)


def candidates(path: Path, kind: Kind) -> list[tuple[str, str]]:
    """(before, after) of lines that the file has once, so that each can be found by its text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = without_docstrings(text)
    lines = [line.strip() for line in text.splitlines()]
    return [
        (line, after)
        for line in lines
        if lines.count(line) == 1
        and line not in ALIKE
        and not STATIC.search(line)
        and not LEAVING.search(line)
        if kind.in_text is False or re.search(r'"[^"]*[A-Z]{2,}', line)
        for after in changed(line, kind)
    ]


def room_of(name: str) -> str:
    return name.split("/")[2] if name.startswith("cpp/src/") else "python"


def choose() -> list[dict[str, str]]:
    files = [
        path for folder in ("cpp/src", "python/hotcount") for path in (ROOT / folder).rglob("*")
    ]
    names = sorted(path.relative_to(ROOT).as_posix() for path in files if path.is_file())
    draws = random.Random(SEED)
    faults: list[dict[str, str]] = []
    rooms: Counter[str] = Counter()
    for kind in KINDS:
        fit = [name for name in names if name.endswith(kind.suffixes) and not LEAVES.search(name)]
        draws.shuffle(fit)
        here: Counter[str] = Counter()
        for _ in range(kind.wanted):
            # A room that has few faults, first of this kind; and no file twice.
            fit.sort(key=lambda name: (here[room_of(name)], rooms[room_of(name)]))
            name, found = next(
                (name, found) for name in fit if (found := candidates(ROOT / name, kind))
            )
            before, after = draws.choice(found)
            faults.append({"kind": kind.name, "path": name, "before": before, "after": after})
            rooms[room_of(name)] += 1
            here[room_of(name)] += 1
            names.remove(name)
            fit.remove(name)
    return faults


if __name__ == "__main__":
    json.dump(choose(), sys.stdout, indent=1)
    print()
