"""Reads the .sql files of cpp/src as cpp/src/sql/statements.hpp says, with names from one table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "cpp/src"
ROWS = 2


class Undecided(Exception):
    """A flag that nobody has given: the statement has two texts."""


def files() -> list[Path]:
    """Without those that have nothing but parts of statements."""
    parts = ("words.sql", "parts.sql")
    return sorted(path for path in ROOT.rglob("*.sql") if path.name not in parts)


def parts_of(path: Path) -> dict[str, list[str]]:
    """The lines of each statement of a file, without its comments."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in map(str.strip, path.read_text().splitlines()):
        if line.startswith("-- name: "):
            lines = parts.setdefault(line.removeprefix("-- name: "), [])
        elif line and not line.startswith(("-- ", "-->")) and line != "--":
            lines.append(line)
    return parts


@dataclass(frozen=True)
class Statements:
    """The statements of some files, the first of which has a name gives it."""

    parts: Mapping[str, Sequence[str]]
    names: Mapping[str, str]

    @classmethod
    def of(cls, paths: Sequence[Path], names: Mapping[str, str]) -> Statements:
        parts: dict[str, list[str]] = {}
        for path in reversed(paths):
            parts |= parts_of(path)
        return cls(parts, names)

    def uses(self, name: str) -> set[str]:
        """The names in braces within a statement, but itself."""
        return set(re.findall(r"\{(\w+)", " ".join(self.parts[name]))) - {name}

    def texts(self, name: str, given: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
        """The statement with each of its flags tried both ways, and those flags."""
        try:
            yield with_rows(self.text(name, given)).strip(), given
        except Undecided as flag:
            set_to = self.names.get(f"{flag}?", "1")
            for value in ("", set_to):
                yield from self.texts(name, {**given, str(flag): value})

    def text(self, name: str, given: Mapping[str, str]) -> str:
        text = ""
        blocks: list[bool] = []
        separators: list[bool] = []  # of blocks: whether it is an --each
        for line in self.parts[name]:
            word, _, rest = line.partition(" ")
            if word == "--if":
                is_set = all(blocks) and bool(self.flag(rest.lstrip("!"), given))
                blocks.append(is_set != rest.startswith("!"))
                separators.append(False)
            elif word == "--else":
                blocks[-1] = not blocks[-1]
            elif word == "--each":
                blocks.append(True)
                separators.append(True)
                text += f"\x1e{rest}\x1e" if all(blocks) else ""
            elif word == "--end":
                text += "\x1e" if separators.pop() and all(blocks) else ""
                blocks.pop()
            elif all(blocks):
                text += self.filled(line, given) + "\n"
        return text.rstrip("\n")

    def flag(self, name: str, given: Mapping[str, str]) -> str:
        if name in given or name in self.names:
            return given.get(name, self.names.get(name, ""))
        if name in self.parts:
            return self.text(name, given)
        raise Undecided(name)

    def filled(self, text: str, given: Mapping[str, str]) -> str:
        made = ""
        for piece in pieces_of(text):
            is_name = piece.startswith("{")
            made += self.value(piece[1:-1], given) if is_name else piece
        return made

    def value(self, reference: str, given: Mapping[str, str]) -> str:
        name, _, rest = reference.partition("(")
        if rest:
            given = {**given, **self.arguments(rest.removesuffix(")"), given)}
        elif name in given or name in self.names:
            return given.get(name, self.names.get(name, ""))
        if name in self.parts:
            return self.text(name, given)
        raise LookupError(f"nothing is given for {{{name}}}: tests/support/sql_names.py")

    def arguments(self, text: str, given: Mapping[str, str]) -> dict[str, str]:
        """Of {name(a: x; b: y)}, or of {name(x, y)}, which are called 1 and 2."""
        if re.match(r"\w+: ", text):
            named = (argument.split(": ", 1) for argument in text.split("; "))
            return {name: self.filled(value, given) for name, value in named}
        values = [""]
        depth = 0
        for piece in pieces_of(text):
            for part in [piece] if piece[0] in "'\"{" else piece:
                depth += {"(": 1, ")": -1}.get(part, 0)
                if part == "," and depth == 0:
                    values.append("")
                else:
                    values[-1] += part
        filled = [self.filled(value.strip(), given) for value in values]
        return {"*": ", ".join(filled)} | {str(i): value for i, value in enumerate(filled, 1)}


def pieces_of(text: str) -> list[str]:
    """What stands in quotes, what stands in braces, and what stands between."""
    pieces = [""]
    quote = ""
    depth = 0
    for char in text:
        begins = not quote and not depth and char in "'\"{"
        if begins:
            pieces.append("")
        pieces[-1] += char
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += {"{": 1, "}": -1}.get(char, 0)
        if not begins and not quote and not depth and pieces[-1][0] in "'\"{":
            pieces.append("")
    return [piece for piece in pieces if piece]


def with_rows(text: str) -> str:
    """Each --each repeated, the numbers of a row's parameters going on from row to row."""
    pieces = text.split("\x1e")
    numbers = [int(number) for row in pieces[2::3] for number in re.findall(r"\?(\d+)", row)]
    for at in range(2, len(pieces), 3):
        first = numbers[0] if numbers else 0
        step = max(numbers, default=0) - first + 1
        rows = [numbered(pieces[at], first, step, i) for i in range(ROWS)]
        pieces[at - 1 : at + 1] = ["", f" {pieces[at - 1]} ".join(rows)]
    return "".join(pieces)


def numbered(row: str, first: int, step: int, i: int) -> str:
    """Numbers below the row's first one are those of all rows."""

    def number(found: re.Match[str]) -> str:
        written = int(found[2])
        if written == 0:
            return str(i + 1)
        own = written + (step * i if written >= first else 0)
        return f"?{own}" if found[1] == "?" else str(own)

    return re.sub(r"([?#])(\d+)", number, row).replace("?=", "?")
