"""Writes the stub of the extension, or says how the committed one differs.

    python -m tests.codebase.stubs            writes python/hotcount/_core.pyi
    python -m tests.codebase.stubs --check    exits 1 with a diff where it differs

pybind11-stubgen imports the installed hotcount._core and prints what it finds,
so that the types which a user's editor shows are those of the extension.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import hotcount

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python/hotcount/_core.pyi"


def generate() -> str:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                *(sys.executable, "-m", "pybind11_stubgen", "hotcount._core"),
                *("--output-dir", folder),
                # A signature that it cannot parse shows as `...` and types nothing:
                # refuse it, for the cure is a better signature in the binding.
                "--exit-code",
            ],
            check=True,
            # Elsewhere than in the repository, whose python/hotcount has no extension.
            cwd=folder,
        )
        text = Path(folder, "hotcount/_core.pyi").read_text(encoding="utf-8")
    text = complete(text)
    # Formatted, so that a line's length does not depend on stubgen's version.
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", "_core.pyi", "-"],
        input=text,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def complete(text: str) -> str:
    """What pybind11-stubgen cannot know of an extension's class."""
    unhashable = "__hash__: typing.ClassVar[None] = None"
    # Registered with collections.abc.Sequence, which leaves no trace among the bases. Of
    # __hash__, mypy wants it said that None is meant (as typeshed does for list).
    for name, element in (
        ("Column", "typing.Any"),
        ("Casts", "Cast"),
        ("Counts", "Count"),
        ("Upserts", "Upsert"),
        ("Decisions", "hotcount.Decision"),
    ):
        text, count = re.subn(
            rf"^class {name}:$(.*?){re.escape(unhashable)}",
            rf"class {name}(collections.abc.Sequence[{element}]):\1"
            rf"{unhashable}  # type: ignore[assignment]",
            text,
            flags=re.MULTILINE | re.DOTALL,
        )
        assert count == 1, f"the stub has {count} classes {name}"
    # What declarations are made of, as those who declare need it (hotcount/_native.py).
    for name, member in (("Handle", "__init__"), ("NativeFunction", "__call__")):
        text, count = re.subn(
            rf'^class {name}:$(\s+""".*?""")?.*?(?=^class |^def )',
            rf"class {name}:\1\n    def {member}(self, *arguments: typing.Any, "
            rf"**options: typing.Any) -> {'None' if member == '__init__' else 'typing.Any'}: ...\n",
            text,
            flags=re.MULTILINE | re.DOTALL,
        )
        assert count == 1, f"the stub has {count} classes {name}"
    # What hotcount.aio returns is annotated by what may be done with it: a Coroutine.
    text, count = re.subn(
        r"^class Pending:$.*?(?=^class )", "", text, flags=re.MULTILINE | re.DOTALL
    )
    assert count == 1, f"the stub has {count} classes Pending"
    # An enum's members are values, and it makes itself.
    for member in hotcount.Upsert:
        old = f"{member.name}: typing.ClassVar[Upsert]"
        assert old in text, f"the stub has no {member!r}"
        text = text.replace(old, f"{member.name} = {member.value}")
    text = re.sub(r"    @classmethod\n    def __new__\(cls, value\):\s+\.\.\.\n", "", text)
    # Which Python gives every class with a buffer, from 3.12 on.
    place = "    def __contains__("
    return text.replace(
        place, f"    def __buffer__(self, flags: int, /) -> memoryview: ...\n{place}", 1
    )


def drift() -> str:
    """A diff from the committed stub to the right one; empty when they agree."""
    committed = STUB.read_text(encoding="utf-8") if STUB.exists() else ""
    return "".join(
        difflib.unified_diff(
            committed.splitlines(keepends=True),
            generate().splitlines(keepends=True),
            fromfile="python/hotcount/_core.pyi",
            tofile="what the installed extension says",
        )
    )


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        difference = drift()
        print(difference or "the stub agrees with the extension")
        if difference:
            print("Run scripts/stubs and commit the result.", file=sys.stderr)
        return bool(difference)
    STUB.write_text(generate(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
