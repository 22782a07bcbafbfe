"""hotcount-load as a program, and its ledger read without its help."""

import json
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What every run here takes to be small and quiet.
SMALL = ["--items", "200", "-w", "8", "--warmup", "0", "--progress", "none"]


def program() -> str:
    """The hotcount-load of this environment; missing, the build is wrong, and that is a failure."""
    found = shutil.which("hotcount-load", path=str(Path(sys.executable).parent))
    found = found or shutil.which("hotcount-load")
    assert found is not None, "hotcount-load is not installed: run `make build`"
    return found


def run(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program(), *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )


def study(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """`hotcount load`: search, sweep, scale, calibrate, compare and diff."""
    command = [sys.executable, "-m", "hotcount", "load", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def study_json(*arguments: str, timeout: float = 60) -> tuple[int, dict[str, Any]]:
    return _read(study(*arguments, "--json", timeout=timeout))


def run_json(*arguments: str, timeout: float = 60) -> tuple[int, dict[str, Any]]:
    return _read(run(*arguments, "--json", timeout=timeout))


def _read(done: subprocess.CompletedProcess[str]) -> tuple[int, dict[str, Any]]:
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


# The layout that loadtest/src/load/ledger.hpp writes down.
_HEADER = struct.Struct("<8sIIQQQ")
_HEADER_BYTES = 4096
_RECORD = struct.Struct("<qqqiBBBBqqqIi")

PLANNED, SENT, OK, FAILED, UNKNOWN = 1, 2, 3, 4, 5
VOTE, UNVOTE, READ = 0, 1, 2


@dataclass(frozen=True)
class Operation:
    item: int
    user: int
    value: int
    kind: int
    status: int
    intended_ns: int
    sent_ns: int
    done_ns: int
    returned: int


def read_ledger(path: Path, *, reads: bool = False) -> list[Operation]:
    """The writes that were sent, in the order of their plan; or the reads."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        magic, version, record_bytes, _, _, planned = _HEADER.unpack_from(header)
        assert (magic, version, record_bytes) == (b"hcledger", 2, _RECORD.size)
        # Not the whole file: after a kill it is as long as its capacity, and mostly a hole.
        data = file.read(planned * record_bytes)
    operations = []
    for index in range(planned):
        (returned, item, user, value, kind, _, _, _, intended, sent, done, status, _) = (
            _RECORD.unpack_from(data, index * record_bytes)
        )
        assert status in {PLANNED, SENT, OK, FAILED, UNKNOWN}
        if (kind == READ) == reads and status != PLANNED:
            operations.append(
                Operation(item, user, value, kind, status, intended, sent, done, returned)
            )
    return operations
