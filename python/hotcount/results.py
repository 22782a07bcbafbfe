"""What calls answer: frozen dataclasses with slots.

They compare and hash by value, survive pickle, are taken apart by ``match`` and
``dataclasses.asdict``, and are JSON objects where FastAPI returns them. C++ fills them.
"""

from __future__ import annotations

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
