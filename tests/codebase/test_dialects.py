"""What differs between databases is in the dialects' folders."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Comparing is reading; handing a code on to a caller is not.
READS_A_CODE = re.compile(
    r"server_code\s*(?:==|!=|\.starts_with|\.find)|(?:==|!=)\s*\S*server_code"
)
# An error that a dialect makes by itself needs its condition: those above do not read the code.
MAKES_WITH_CODE = re.compile(r'make_error\((?:[^;"]|"[^"]*")*?,\s*"(?:\d{4}|[0-9A-Z]{5})"\s*\)')


def sources(*folders: str) -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for folder in folders
        for path in sorted((ROOT / "cpp/src" / folder).rglob("*.[ch]pp"))
    }


def test_nobody_above_the_dialects_reads_a_databases_code() -> None:
    above = sources("sql", "votes/tables", "votes/journal", "votes/strategies")
    assert len(above) > 40
    assert [path for path, text in above.items() if READS_A_CODE.search(text)] == []
    assert READS_A_CODE.search('if (error.server_code == "57014") {')


def test_no_error_has_a_databases_code_without_its_condition() -> None:
    everywhere = sources("sql", "votes", "dialects")
    assert [path for path, text in everywhere.items() if MAKES_WITH_CODE.search(text)] == []
    assert MAKES_WITH_CODE.search('make_error(ErrorCode::deadline,\n "moved; again", "1213")')
