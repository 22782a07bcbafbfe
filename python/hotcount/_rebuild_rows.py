"""The rows of rebuild_many(), of the sync and of the aio class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from hotcount._types import Seconds

if TYPE_CHECKING:
    from hotcount.live_sets import RebuildMembers

PART = 300


def patience_of(lease: Seconds) -> float:
    """Seconds that a complete build waits for others, and that members wait to be sent."""
    return (lease.total_seconds() if isinstance(lease, timedelta) else lease) / 4


def pair_of(row: object) -> tuple[Any, Any]:
    """A row of rebuild_many()."""
    if not isinstance(row, (tuple, list)) or len(row) != 2:
        raise TypeError(f"sets must be rows of (key, members), not {type(row).__name__}")
    return row[0], row[1]


class Part:
    """Rows that are gathered until there are 300, or until the lease wants to be renewed."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._rows: list[Any] = []
        self._due = monotonic() + patience

    def takes(self, row: object) -> bool:
        """Takes the row. True: the rows are to be sent."""
        self._rows.append(row)
        return len(self._rows) == PART or monotonic() > self._due

    def give(self) -> list[Any]:
        rows, self._rows, self._due = self._rows, [], monotonic() + self._patience
        return rows


def parts_of(members: RebuildMembers, patience: float) -> Iterator[RebuildMembers]:
    """The rows in lists of at most 300, shorter ones where they come slowly."""
    rows: Iterable[Any] = members.items() if isinstance(members, Mapping) else members
    part = Part(patience)
    for row in rows:
        if part.takes(row):
            yield part.give()
    yield part.give()
