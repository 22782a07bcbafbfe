"""What calls answer: frozen dataclasses with slots.

They compare and hash by value, survive pickle, are taken apart by ``match`` and
``dataclasses.asdict``, and are JSON objects where FastAPI returns them. C++ fills them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from hotcount._native import native, result


@result
@dataclass(frozen=True, slots=True)
class Decision:
    """What a limiter answered. True where the hit was admitted.

    >>> import hotcount
    >>> limiter = hotcount.Limiter("memory://", "2/minute")
    >>> [bool(limiter.hit("user:1")) for _ in range(3)]
    [True, True, False]
    """

    allowed: bool
    """Whether it was admitted."""
    limit: int
    """What an idle key admits at once."""
    remaining: int
    """What is left after this call."""
    retry_after: float | None
    """Seconds until the same hit would be admitted if nobody else came: 0 where it was, None where
    it costs more than the limit and so never will."""
    reset_after: float
    """Seconds until the key is as if it had never been hit."""
    reason: str
    """'allowed', 'limited', 'cost_above_limit', or 'untracked': admitted without being counted,
    because a Memory store is full (its when_full)."""
    policy: str
    """The limiter's name."""
    period: float
    """Seconds of the limiter's rate."""

    def __bool__(self) -> bool:
        """Whether it was admitted."""
        return self.allowed

    @native
    def headers(self, style: Literal["ietf", "legacy"] = "ietf") -> dict[str, str]:
        """HTTP headers that tell a client.

        'ietf': RateLimit-Policy and RateLimit. 'legacy': X-RateLimit-Limit, -Remaining and -Reset
        (seconds from now). A denial that may pass adds Retry-After. Seconds are whole, rounded up.
        Another style is a ConfigError.

        >>> import hotcount
        >>> limiter = hotcount.Limiter("memory://", "10/minute", name="api")
        >>> limiter.hit("user:1").headers()
        {'RateLimit-Policy': '"api";q=10;w=60', 'RateLimit': '"api";r=9;t=6'}
        """


@result
@dataclass(frozen=True, slots=True)
class TryAdd:
    """What Counter.try_add came to. True where it was applied.

    >>> import hotcount
    >>> bool(hotcount.Counter("memory://").try_add("seats", 3, max=2))
    False
    """

    applied: bool
    """Whether n was added."""
    value: int
    """After the add, or as it stands where refused."""

    def __bool__(self) -> bool:
        """Whether it was applied."""
        return self.applied


@result
class Upsert(enum.IntEnum):
    """What an upsert or remove of LiveSets came to. True where it is APPLIED; str() is the name.

    >>> import hotcount
    >>> outcome = hotcount.LiveSets("memory://").upsert("never made", "member", 1.0)
    >>> bool(outcome), str(outcome), int(outcome)
    (False, 'ABSENT', 2)
    """

    FAILED = 0
    """Only in a batch, where the element has its exception in .errors."""
    APPLIED = 1
    """The member has the score."""
    ABSENT = 2
    """No such set; nothing was made."""
    STALE = 3
    """The member's last write has this version or a higher one."""
    EXPIRING = 4
    """The set's TTL is not above the gate."""
    NO_TTL = 5
    """The set never expires, and was left alone: see LiveSets.sweep."""

    # An IntEnum is as true as its number, and prints it: neither is what an answer should do.

    def __bool__(self) -> bool:
        """Whether it is APPLIED."""
        return self is Upsert.APPLIED

    def __str__(self) -> str:
        """The name."""
        return self.name

    def __format__(self, specification: str) -> str:
        """The name, as a str is formatted."""
        return format(self.name, specification)


@result
@dataclass(frozen=True, slots=True)
class SweepReport:
    """What LiveSets.sweep came to.

    >>> import hotcount
    >>> hotcount.LiveSets("memory://").sweep("feed:*")
    SweepReport(scanned=0, found=0, deleted=0, keys=())
    """

    scanned: int
    """Sorted sets that matched."""
    found: int
    """Of them, those without a TTL."""
    deleted: int
    """Of them, those that still had none when they were deleted."""
    keys: tuple[str | bytes, ...]
    """The first 1,000 of those found."""
