"""Rate: so many in so long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from hotcount._native import native, result
from hotcount.results import Result


@result
@dataclass(frozen=True, slots=True)
class Rate(Result):
    """So many in so long. Rate.parse reads one from text.

    >>> import hotcount
    >>> hotcount.Rate(100, 60, 20) == hotcount.Rate.parse("100/min burst 20")
    True
    """

    limit: int
    """How many, 1 to 10**12."""
    period: float
    """In how many seconds, 0.001 to 366 days."""
    burst: int
    """How many an idle key admits at once with gcra and the buckets. Rate.parse takes the limit for
    it when the text has no burst."""

    @native
    def __str__(self) -> str:
        """The text that every spelling of this rate comes to: '100/minute burst 20'."""

    @staticmethod
    @native
    def parse(text: str) -> Rate:
        """Reads '100/minute', '5/s', '10/2 hours', '10 per minute', '100/min burst 20'.

        Other text is a ConfigError that quotes it.

        >>> import hotcount
        >>> hotcount.Rate.parse("10/2 hours")
        Rate(limit=10, period=7200.0, burst=10)
        """

    @staticmethod
    @native
    def parse_many(text: str) -> tuple[Rate, ...]:
        """Reads several rates, separated by ';', ',' or '|'. Other text is a ConfigError.

        >>> import hotcount
        >>> [str(rate) for rate in hotcount.Rate.parse_many("5/s; 100/min")]
        ['5/second', '100/minute']
        """


# The type of rate=: '100/minute', a Rate, or several: '10/second; 1000/hour' or a tuple.
Rates = Union[str, Rate, tuple[Union[str, Rate], ...]]
