"""Numbers of `hotcount.report` as text, as hotcount-load writes them in a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hotcount.report import Row


def _rounded(value: float) -> float:
    """To a whole number, halves away from zero. Python's round() takes them to the even one."""
    size = abs(value)
    below = math.floor(size)
    return math.copysign(below + (size - below >= 0.5), value)


def whole(value: float) -> str:
    """A rate or a count as a whole number: 52,703."""
    text = f"{abs(_rounded(value)):,.0f}"
    return f"-{text}" if value <= -0.5 else text


def number(value: float) -> str:
    """Three digits: 0.0123, 1.50, 12,300."""
    size = abs(value)
    if size == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(size)) - 2)
    rounded = _rounded(value / step) * step
    # Rounding may carry into another digit: 0.9996 is 1.00. The margin is for its last bit.
    magnitude = math.floor(math.log10(abs(rounded) * (1 + 1e-12)))
    if magnitude >= 2:
        return whole(rounded)
    return f"{rounded:.{min(2 - magnitude, 9)}f}"


def spread(
    three: tuple[float, float, float] | None, format: Callable[[float], str] = number
) -> str:
    """The median, then the ends of its interval in parentheses, or minimum and maximum."""
    if three is None:
        return "-"
    least, median, most = three
    if least == most:
        return format(median)
    return f"{format(median)} ({format(least)} to {format(most)})"


def ratio_of(row: Row) -> str:
    # ~ marks a ratio that may be noise. Without an interval there were too few rounds to tell.
    noise = row.ratio is not None and row.difference is False and row.interval
    return f"{spread(row.ratio)}{' ~' if noise else ''}"


# The share of calls at or below each percentile, by the percentile's name in JSON.
OWN_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def can_tell(calls: int, share: float) -> bool:
    """Whether the percentile of so many calls can differ from their maximum."""
    return calls * (1 - share) > 1 - 1e-7


def least_values(share: float) -> int:
    """The number of values from which on a percentile can differ from their maximum."""
    # 1 - 0.9999 is a little less than 0.0001.
    return math.ceil((1 - 1e-7) / (1 - share))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """For a terminal: names on the left, numbers on the right."""
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def is_known(row: Row, name: str = "p99") -> bool:
    """Whether a row's percentile is known.

    A failed call is recorded with the time limit, so a percentile at the limit is only a bound.
    """
    ms = row.p50_ms if name == "p50" else row.p99_ms
    in_time = row.limit_ms is None or ms < row.limit_ms
    return in_time and not row.overloaded and can_tell(row.calls, OWN_SHARES[name])


def percentile_of(row: Row, name: str = "p99") -> str:
    """The percentile as text; "> LIMIT" if it is only a bound.

    "-" if the row was overloaded: times in a growing queue depend on the duration of the run.
    """
    if is_known(row, name):
        return number(row.p50_ms if name == "p50" else row.p99_ms)
    if row.overloaded or row.limit_ms is None or not can_tell(row.calls, OWN_SHARES[name]):
        return "-"
    return f"> {number(row.limit_ms)}"
