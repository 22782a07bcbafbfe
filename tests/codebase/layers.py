"""The layer rule, checked by parsing every #include.

    base -> memory, redis, sql -> counter, limiter, zset, votes -> dialects
                                                                -> python/src
                                                                -> loadtest

An arrow means "is included by". Each folder is a room. ROOMS names, for each room, the rooms that
it may include; a folder that is not named there may not exist. A public header
(hotcount/counter.hpp) belongs to the room of its concept. The core never includes Python.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

STORES = {"base", "memory", "redis", "sql"}
ROOMS: dict[str, set[str]] = {
    "base": set(),
    "memory": {"base"},
    "redis": {"base"},
    "sql": {"base"},
    "sql/group_commit": {"base", "sql"},
    "counter": STORES,
    "limiter": STORES,
    "zset": STORES,
    # The public header alone.
    "votes": STORES,
}
TABLES = {"base", "sql", "sql/group_commit", "votes"}
ROOMS |= {
    # It declares VoteDialect::journal(), and includes no header of the journal.
    "votes/tables": TABLES,
    "votes/journal": TABLES | {"votes/tables"},
    "votes/cache": TABLES | {"votes/tables", "votes/journal", "memory", "redis"},
    # It uses BulkStatement of tables, WorkerOfProcess of cache, and Count, FlushReport and
    # SyncWorker of the public header.
    "views": TABLES | {"votes/tables", "votes/cache", "redis"},
    "votes/strategies": TABLES
    | {"votes/tables", "votes/journal", "votes/cache", "counter", "memory", "redis"},
}
# Each folder there is a dialect: it defines what sql and votes declare. registry.cpp lists them.
DIALECTS = Path(__file__).parents[2] / "cpp/src/dialects"
for dialect in (path.name for path in DIALECTS.iterdir() if path.is_dir()):
    ROOMS[f"dialects/{dialect}"] = TABLES | {
        "counter",
        "votes/tables",
        "votes/journal",
    }
ROOMS["dialects"] = (
    TABLES | {"votes/tables"} | {room for room in ROOMS if room.startswith("dialects/")}
)

# The room of each header in hotcount/.
PUBLIC_HEADERS = {
    "clock": "base",
    "error": "base",
    "op_id": "base",
    "result": "base",
    "url": "base",
    "memory": "memory",
    "redis": "redis",
    "sql": "sql",
    "counter": "counter",
    "period_counter": "counter",
    "slotted_counter": "counter",
    "retry_queue": "counter",
    "limiter": "limiter",
    "concurrency_limit": "limiter",
    "live_sets": "zset",
    "votes": "votes",
    "write_behind_counter": "views",
}
# The room of the other headers in hotcount/ (hotcount.hpp, build_info.hpp), above all rooms.
TOP = "hotcount"
CORE = set(ROOMS) | {TOP}
ROOMS[TOP] = CORE

# Rooms beside the core: what they may include of each other. All see the core's public headers.
BESIDE = {
    "python": {
        "values": set(),
        "aio": {"values"},
        "native": {"values", "aio"},
        "concepts": {"values", "aio", "native"},
        "": {"values", "aio", "native", "concepts"},
    },
    "loadtest": {
        "load": set(),
        "checkers": {"load"},
        "targets": {"load", "checkers"},
        "report": {"load", "checkers", "targets"},
        "cli": {"load", "checkers", "targets", "report"},
        "examples": set(),
        "micro": set(),
        "peers/cpp": {"load"},
    },
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
PYTHON_HEADER = re.compile(r"(Python\.h|pybind11/.*|pyconfig\.h|structmember\.h)$")
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".inc"}


def core_room(inner: PurePosixPath) -> str:
    """The room of a path below cpp/src, or below cpp/include/hotcount."""
    folder = inner.parent.as_posix()
    if folder == ".":
        return PUBLIC_HEADERS.get(inner.stem, TOP)
    return folder.removeprefix("detail/")


def room_of(path: PurePosixPath) -> tuple[str, str] | None:
    """("core", "votes/tables"), ("python", "aio") ...; None for what is in none of them."""
    for top, start in (
        ("core", "cpp/include/hotcount"),
        ("core", "cpp/src"),
        ("python", "python/src"),
        ("loadtest", "loadtest/src"),
        ("loadtest", "loadtest"),
    ):
        if path.is_relative_to(start):
            inner = path.relative_to(start)
            folder = inner.parent.as_posix()
            return top, core_room(inner) if top == "core" else "" if folder == "." else folder
    return None


def sources(root: Path) -> Iterator[tuple[tuple[str, str], PurePosixPath]]:
    """Every C++ file with the room that it belongs to."""
    for folder in ("cpp/include/hotcount", "cpp/src", "python/src", "loadtest"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                inside = PurePosixPath(path.relative_to(root).as_posix())
                room = room_of(inside)
                assert room is not None
                yield room, inside


def target_of(root: Path, path: PurePosixPath, include: str) -> tuple[str, str] | None:
    """The room that an include reaches; None for the standard library and the like."""
    name = PurePosixPath(include)
    if name.parts[0] == "hotcount":
        return "core", core_room(PurePosixPath(*name.parts[1:]))
    if name.parts[0] == "hotcount_embedded":  # EmbedText.cmake's, private to the core
        return "core", name.parent.relative_to("hotcount_embedded").as_posix()
    # A private header: beside its includer, or named from the root of its sources.
    for start in (path.parent.as_posix(), "cpp/src", "python/src", "loadtest/src"):
        candidate = root / start / include
        if candidate.is_file():
            inside = candidate.resolve().relative_to(root.resolve())
            return room_of(PurePosixPath(inside.as_posix()))
    return None


def violations(root: Path) -> list[str]:
    found = []
    for (top, room), path in sources(root):
        allowed = ROOMS if top == "core" else BESIDE[top]
        if room not in allowed:
            found.append(f"{path}: {room} is no room; give it a place in {Path(__file__).name}")
            continue
        text = (root / path).read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            include = match[1]
            line = f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {top} {room}"
            if top != "python" and PYTHON_HEADER.match(include):
                found.append(f"{line} includes {include}; only python/src may know Python")
            target = target_of(root, path, include)
            if target is None or target == (top, room):
                continue
            if target[0] == top:
                if target[1] not in allowed[room]:
                    found.append(f"{line} includes {include}, an arrow that points backward")
            elif top == "core" or target[0] != "core":
                found.append(f"{line} includes {include}, an arrow that points backward")
            elif room == "micro":
                pass  # It measures inner loops, which are behind private headers.
            elif not include.startswith("hotcount/"):
                found.append(f"{line} includes {include}, which is no public header")
    return found


def reaches_itself(rooms: dict[str, set[str]]) -> list[str]:
    reach = {room: set(to) - {room} for room, to in rooms.items()}
    for _ in rooms:
        for to in reach.values():
            to |= {far for near in to for far in reach.get(near, ())}
    return [room for room, to in reach.items() if room in to]


def circles() -> list[str]:
    """Rooms that may include themselves by way of others."""
    return [room for rooms in (ROOMS, *BESIDE.values()) for room in reaches_itself(rooms)]
