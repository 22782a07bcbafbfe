"""Held: what a store holds for a process until a lease ends, and who may end it."""

from __future__ import annotations

import os
from typing import Generic, TypeVar

from hotcount._types import LimiterKey
from hotcount.errors import LimitExceeded
from hotcount.results import Decision

Owner = TypeVar("Owner")


class Held(Generic[Owner]):
    """What the reservations and places of the sync and the aio classes have in common."""

    __slots__ = {
        "_id": None,
        "_is_ended": None,
        "_owner": None,
        "_process": None,
        "decision": "What the store answered: whether there was room, and what remains.",
        "key": "The key that it is of.",
    }

    key: LimiterKey
    decision: Decision

    def __init__(self, owner: Owner, key: LimiterKey, id: str, decision: Decision) -> None:
        """Use reserve() or acquire(), which make one."""
        self.key = key
        self.decision = decision
        self._owner = owner
        self._id = id
        self._is_ended = False
        self._process = os.getpid()

    def __bool__(self) -> bool:
        """Whether there was room for it."""
        return self.decision.allowed

    def _require_admitted(self) -> None:
        if not self.decision.allowed:
            raise LimitExceeded(self.decision)

    def _is_open(self) -> bool:
        """Whether it is this process's to end: a forked child ends nothing of its parent's."""
        return not self._is_ended and os.getpid() == self._process
