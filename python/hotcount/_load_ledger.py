"""The ledger of hotcount-load, written by other load generators.

The layout is that of loadtest/src/load/ledger.hpp, where it is explained. A process writes a part
of its own, in a file that a kill -9 leaves as it is; `merge` makes one ledger of all parts.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotcount import _load_frames as frames
from hotcount.errors import ConfigError

VOTE, UNVOTE, READ = 0, 1, 2

PART_PATTERN = "ledger-part-*.bin"
LEDGER = "ledger.bin"
RUN = "run.json"

_MAGIC = b"hcledger"
_VERSION = 2
_HEADER = struct.Struct("<8sIIQQQq")
_HEADER_BYTES = 4096
_RECORD = struct.Struct("<qqqiBBBBqqqIi")
_STEP = 16_384  # Records that the file grows by: 1 MB.
_SENT_AT = 40  # The offset of sent_ns in a record.
_SENT = 2
_STATUS = {frames.OK: 3, frames.FAILED: 4, frames.UNKNOWN: 5}
_SAID_NUMBER, _SAID_CAST, _SAID_CHANGED, _SAID_COUNTED, _SAID_EXACT = 1, 2, 4, 8, 16
# The error number of a record, C++'s ErrorCode + 1; all failures have the same.
_ERROR = {frames.OK: 0, frames.FAILED: 12, frames.UNKNOWN: 3}


class LedgerPart:
    """One process's calls. Not thread-safe: greenlets of one thread, which never yield in here."""

    def __init__(self, folder: Path, *, exact: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # A name that is unique among all processes of a fleet, on all machines.
        name = PART_PATTERN.replace("*", f"{os.getpid()}-{os.urandom(8).hex()}")
        self._path = folder / name
        self._path.touch(exist_ok=False)
        self._exact = exact
        self._wall_ns = time.time_ns() - time.monotonic_ns()
        self._used = 0
        self._room = 0
        try:
            self._grow()
        except BaseException:
            # A file without a header would look damaged to the audit.
            self._path.unlink()
            raise

    def _grow(self) -> None:
        room = self._room + _STEP
        with self._path.open("r+b") as file:
            # On a full disk this is an error, and a write into the mapping would be a signal.
            os.posix_fallocate(file.fileno(), 0, self._at(room))
            self._map = mmap.mmap(file.fileno(), 0)
        self._room = room

    def now_ns(self) -> int:
        """The wall clock, without its steps after the start of this process."""
        return time.monotonic_ns() + self._wall_ns

    def begin(self, kind: int, item: int, user: int, value: int, *, resent: bool) -> int:
        """Records a call before it is sent; returns its number."""
        number = self._used
        if number == self._room:
            self._grow()
        now = self.now_ns()
        self._map[self._at(number) : self._at(number + 1)] = _RECORD.pack(
            0, item, user, value, kind, resent, 0, 0, 0, now, 0, _SENT, 0
        )
        self._used += 1
        self._map[: _HEADER.size] = _HEADER.pack(
            _MAGIC, _VERSION, _RECORD.size, self._room, 0, self._used, 0
        )
        return number

    def end(self, number: int, told: frames.Told) -> None:
        """Records the outcome that the caller got."""
        said, now, returned = 0, 0, 0
        if told.told & frames.TOLD_COUNT:
            said = _SAID_NUMBER | (_SAID_EXACT if self._exact else 0)
            returned = told.value
        elif told.told & frames.TOLD_CAST:
            changed = _SAID_CHANGED if told.told & frames.CHANGED else 0
            said = _SAID_CAST | changed | (_SAID_COUNTED if told.value else 0)
            # A value out of range is not a vote of this load. It is clamped, and so stays wrong.
            now = _within(told.value, 31)
            returned = _within(told.previous, 63)
        at = self._at(number)
        head = _RECORD.unpack_from(self._map, at)
        done = self.now_ns()
        record = _RECORD.pack(
            returned, *head[1:6], _ERROR[told.outcome], said, *head[8:10], done,
            _STATUS[told.outcome], now,
        )  # fmt: skip
        # The status comes last: a kill between the two leaves a call that was sent.
        self._map[at : at + 56] = record[:56]
        self._map[at + 56 : at + 64] = record[56:]

    @staticmethod
    def _at(number: int) -> int:
        return _HEADER_BYTES + number * _RECORD.size


def _within(number: int, bits: int) -> int:
    return max(-(1 << bits), min(number, (1 << bits) - 1))


def read_part(path: Path) -> list[bytes]:
    """The records of a part, as bytes."""
    data = path.read_bytes()
    if not data:
        return []  # Its process was killed before the header, and so before the first call.
    if len(data) < _HEADER_BYTES:
        raise ConfigError(f"{path} is no part of a ledger: it is shorter than a header")
    magic, version, size, _, _, used, _ = _HEADER.unpack_from(data)
    if magic == bytes(8):
        return []  # No call was made.
    if (magic, version, size) != (_MAGIC, _VERSION, _RECORD.size):
        raise ConfigError(f"{path} is no part of a ledger of version {_VERSION}")
    if _HEADER_BYTES + used * size > len(data):
        raise ConfigError(f"{path} speaks of {used} calls and ends before them")
    return [data[at : at + size] for at in range(_HEADER_BYTES, _HEADER_BYTES + used * size, size)]


def merge(folder: Path, settings: Mapping[str, Any]) -> int:
    """Makes ledger.bin and run.json of the folder's parts; returns how many calls they have."""
    parts = sorted(folder.glob(PART_PATTERN))
    if not parts:
        raise ConfigError(f"{folder} has no part of a ledger: no file is named {PART_PATTERN}")
    if (folder / LEDGER).exists():
        raise ConfigError(f"{folder / LEDGER} is there already")
    items = settings.get("items")
    records = []
    for part in parts:
        for record in read_part(part):
            item = _RECORD.unpack(record)[1]
            if items is not None and not 1 <= item <= items:
                raise ConfigError(
                    f"{part} has a call on item {item}; --items {items} says that there are 1 to "
                    f"{items}, and the audit would leave it out"
                )
            records.append(record)

    def sent_ns(record: bytes) -> int:
        return int.from_bytes(record[_SENT_AT : _SENT_AT + 8], "little")

    records.sort(key=sent_ns)
    first = sent_ns(records[0]) if records else 0
    fresh = folder / (LEDGER + ".new")
    with fresh.open("wb") as file:
        header = _HEADER.pack(
            _MAGIC, _VERSION, _RECORD.size, len(records), settings.get("seed", 0), len(records), 0
        )
        file.write(header.ljust(_HEADER_BYTES, b"\0"))
        for record in records:
            fields = list(_RECORD.unpack(record))
            # Times count from the first call.
            fields[9] -= first
            if fields[10]:
                fields[10] -= first
            file.write(_RECORD.pack(*fields))
    document = {
        "schema": "hotcount-load/1",
        "kind": "run",
        "state": "measured",
        "settings": dict(settings),
    }
    (folder / RUN).write_text(json.dumps(document, indent=2) + "\n")
    fresh.rename(folder / LEDGER)
    return len(records)


def _settings(items: int, driver: str) -> dict[str, Any]:
    """Of run.json: what an audit reads. Rates and times are in the other generator's own report."""
    return {
        "workload": "votes",
        "strategy": f"exec:{driver}",
        "arrival": "closed",
        "rate_per_s": None,
        "workers": 1,
        "warmup_s": 0,
        "duration_s": 0,
        "timeout_s": 10,
        "items": items,
        "zipf": 0,
        "users": 1,
        "mix": {"vote": 1, "unvote": 0, "read": 0},
        "dup": 0,
        "seed": 1,
        "max_operations": 1,
        "database_url": "",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m hotcount.load merge FOLDER``: exit code 0 done, 2 bad usage."""
    parser = argparse.ArgumentParser(
        prog="python -m hotcount.load",
        description="Makes one ledger of those that the processes of a fleet wrote, for "
        "`hotcount-load audit FOLDER`.",
    )
    merging = parser.add_subparsers(dest="command", required=True).add_parser(
        "merge", help="one ledger of the parts in a folder"
    )
    merging.add_argument("folder", type=Path, help="where the parts are")
    merging.add_argument("--items", type=int, required=True, help="how many items there were")
    merging.add_argument(
        "--driver",
        required=True,
        help="the program that hotcount.load.driver() is in: the audit starts it and asks it for "
        "rows and counts",
    )
    options = parser.parse_args(arguments)
    if options.items < 1:
        parser.error(f"--items is {options.items}; it takes 1 or more")
    if not options.driver.split():
        parser.error("--driver is empty; it takes a program and its arguments")
    try:
        calls = merge(options.folder, _settings(options.items, options.driver))
    except (ConfigError, OSError) as failure:
        print(f"python -m hotcount.load: {failure}", file=sys.stderr)
        return 2
    print(f"{calls} calls; hotcount-load audit {options.folder} checks them")
    return 0
