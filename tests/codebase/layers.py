"""The layer rule, checked by parsing every #include.

    base -> redis, sql, memory -> counter, votes, limiter, zset -> python/src
                                                                -> loadtest

An arrow means "is included by". Folders side by side do not include each other,
except votes, which builds on counter. The core never includes Python.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

STORES = {"base", "redis", "sql", "memory"}
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "redis": {"base"},
    "sql": {"base"},
    "memory": {"base"},
    "counter": STORES,
    "limiter": STORES,
    "zset": STORES,
    "votes": STORES | {"counter"},
}
# Files right in hotcount/ (the umbrella, build_info) stand above all layers.
TOP = "hotcount"
EVERYTHING = set(ALLOWED) | {TOP}
ALLOWED[TOP] = EVERYTHING
ALLOWED["python"] = EVERYTHING
ALLOWED["loadtest"] = EVERYTHING

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
PYTHON_HEADER = re.compile(r"(Python\.h|pybind11/.*|pyconfig\.h|structmember\.h)$")


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Every C++ file with the layer that it belongs to."""
    for folder, layer in (
        ("cpp/include/hotcount", None),
        ("cpp/src", None),
        ("python/src", "python"),
        ("loadtest", "loadtest"),
    ):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".hpp", ".cpp", ".cc", ".inc"}:
                parts = path.relative_to(root / folder).parts
                yield layer or (parts[0] if len(parts) > 1 else TOP), path


def target_layer(root: Path, path: Path, include: str) -> str | None:
    """The layer that an include reaches; None for the standard library and the like."""
    name = PurePosixPath(include)
    if name.parts[0] == "hotcount":
        return name.parts[1] if len(name.parts) > 2 else TOP
    if name.parts[0] == "hotcount_embedded":  # EmbedText.cmake's, private to the core
        return name.parts[1]
    # A private header: beside its includer, or named from cpp/src.
    for candidate in (path.parent / include, root / "cpp/src" / include):
        if candidate.is_file():
            parts = candidate.resolve().relative_to(root.resolve()).parts
            if parts[:2] in {("cpp", "src"), ("cpp", "include")}:
                inner = parts[2:] if parts[1] == "src" else parts[3:]
                return inner[0] if len(inner) > 1 else TOP
            return parts[0]
    return None


def violations(root: Path) -> list[str]:
    found = []
    for layer, path in sources(root):
        where = path.relative_to(root).as_posix()
        if layer not in ALLOWED:
            found.append(f"{where}: {layer} is no layer; give it a place in {Path(__file__).name}")
            continue
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            include = match[1]
            line = f"{where}:{text.count(chr(10), 0, match.start()) + 1}: {layer}"
            if layer != "python" and PYTHON_HEADER.match(include):
                found.append(f"{line} includes {include}; only python/src may know Python")
            target = target_layer(root, path, include)
            if target is None or target == layer:
                continue
            if target not in ALLOWED[layer]:
                found.append(f"{line} includes {include}, an arrow that points backward")
            elif "micro" in path.parts:
                pass  # It measures inner loops, which are behind private headers.
            elif layer == "loadtest" and not include.startswith("hotcount/"):
                found.append(f"{line} includes {include}, which is no public header")
    return found
