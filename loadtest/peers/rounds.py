"""Rounds of loads against one server, and the check that no add was lost or doubled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.servers import RedisServer

TIMEOUT_S = 30.0
RATE = "adds/s"
P99 = "p99 us"
READS_P99 = "reads' p99 us"
HELD_WORST = "held votes' worst us"
WORST_GAP = "worst gap us"
SERVER_US = "server us"
OURS = "hotcount"

# Every contender adds to keys of this name: hotcount's counters put "count:" before theirs, and
# the others' keys are as long.
KEY_PREFIX = "count:"


class LostAdds(Exception):
    """The server does not hold what the contender was told that it added."""


class Failed(Exception):
    """A contender's add or program failed."""


class Missing(RuntimeError):
    """A program that a load needs is not installed."""


@dataclass(frozen=True)
class Measured:
    """The outcome of one load."""

    added: int  # acknowledged, warming up included: what the server must hold
    figures: dict[str, float]  # by metric: RATE, P99 ...


# Seconds to run for and a seed for the choice of keys. Raises when an add fails.
Run = Callable[[float, int], Measured]


@dataclass(frozen=True)
class Load:
    contender: str
    run: Run


@dataclass
class Case:
    """Loads that are compared with each other: ours, and the peers'.

    The peers are the loads whose contender is not OURS; ours may be missing.
    """

    name: str
    group: str
    loads: list[Load]
    # True if the server holds the sum of the adds afterwards, as it does not for a limiter.
    audited: bool = True
    # By contender and metric, a figure a round.
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def record(self, contender: str, measured: Measured) -> None:
        of = self.figures.setdefault(contender, {})
        for metric, figure in measured.figures.items():
            of.setdefault(metric, []).append(figure)


def found(server: RedisServer) -> int:
    """The sum of all that is in the server, over a connection of its own; and takes it away."""
    with server.redis(timeout=TIMEOUT_S) as store:
        keys = store.execute("KEYS", "*")
        values = store.execute("MGET", *keys) if keys else []
        store.execute("FLUSHALL")
    return sum(int(value) for value in values)


def cleared(server: RedisServer, added: int) -> int:
    with server.redis(timeout=TIMEOUT_S) as store:
        store.execute("FLUSHALL")
    return added


def order(loads: list[Load], number: int) -> list[Load]:
    """The loads of a case as they come in that round: each is first, and last, now and then."""
    at = number // 2 % len(loads)
    turned = loads[at:] + loads[:at]
    return turned if number % 2 == 0 else turned[::-1]


def run_rounds(
    cases: list[Case], rounds: int, seconds: float, check: Callable[[Case, Measured], None]
) -> None:
    """Fills in the cases' figures. `check` raises LostAdds if what a load acknowledged is not
    there; Failed is raised if a load failed.
    """
    for number in range(rounds):
        for case in cases:
            for load in order(case.loads, number):
                try:
                    measured = load.run(seconds, number)
                except Missing:
                    raise
                # Whatever a library raises: which one it was must be said.
                except Exception as failure:
                    said = str(failure) if isinstance(failure, Failed) else repr(failure)
                    raise Failed(f"{load.contender}: {case.name}: {said}") from failure
                try:
                    check(case, measured)
                except LostAdds as lost:
                    raise LostAdds(f"{load.contender}: {case.name}: {lost}") from lost
                case.record(load.contender, measured)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)


def measure(server: RedisServer, cases: list[Case], rounds: int, seconds: float) -> None:
    """run_rounds(), which finds all acknowledged adds in the server."""

    def check(case: Case, measured: Measured) -> None:
        there = found(server) if case.audited else cleared(server, measured.added)
        if there != measured.added:
            raise LostAdds(f"{measured.added} added, {there} there")

    run_rounds(cases, rounds, seconds, check)
