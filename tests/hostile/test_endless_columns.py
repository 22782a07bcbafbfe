"""Columns of a batch that have no end, or lie about it: refused, or ended by Ctrl-C."""

from __future__ import annotations

import collections
import itertools
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import hotcount
import pytest

from tests.support.programs import run_python

MOST = 2**24


class Interrupted(Exception):
    """What the handler of a signal raises, as Ctrl-C's does."""


def test_a_range_of_more_than_can_be_held_is_refused_at_once() -> None:
    counter = hotcount.Counter(hotcount.Memory())
    sets = hotcount.LiveSets(hotcount.Memory())
    for numbers in (range(MOST + 1), range(2**62), range(2**80)):
        for call in (
            lambda numbers=numbers: hotcount.Upserts(numbers),
            lambda numbers=numbers: counter.get_many(numbers),
            lambda numbers=numbers: counter.add_many(["k"], numbers),
            lambda numbers=numbers: sets.upsert_many(numbers),
            lambda numbers=numbers: sets.create("k", 60, numbers),
        ):
            with pytest.raises(hotcount.ConfigError, match="more than 16777216 elements"):
                call()


def test_a_length_that_is_not_true_costs_no_memory() -> None:
    class Liar:
        def __len__(self) -> int:
            return 2**50

        def __iter__(self) -> Iterator[str]:
            return iter(["a", "b"])

    counter = hotcount.Counter(hotcount.Memory())
    keys: Any = Liar()
    assert list(counter.add_many(keys)) == [1, 1]


class EndlessItems(collections.UserDict[str, int]):
    def items(self) -> Any:
        return itertools.repeat(("k", 1))


def endless_calls() -> dict[str, Callable[[], object]]:
    counter = hotcount.Counter(hotcount.Memory())
    limiter = hotcount.Limiter(hotcount.Memory(), "9/s")
    sets = hotcount.LiveSets(hotcount.Memory())
    endless: Any = itertools.repeat("k")
    return {
        "keys": lambda: counter.add_many(endless),
        "amounts": lambda: counter.add_many(["k"], itertools.repeat(1)),
        "mapping": lambda: counter.add_many(EndlessItems(k=1)),
        "hits": lambda: limiter.hit_many(endless),
        "rows": lambda: sets.upsert_many(endless),
        "members": lambda: sets.create("k", 60, EndlessItems(k=1)),
    }


@pytest.mark.parametrize("name", endless_calls())
def test_a_signal_ends_a_column_without_an_end(name: str) -> None:
    done = run_python("-m", "tests.hostile.test_endless_columns", name)
    assert done.stdout == "interrupted\n", done.stderr


def run(name: str) -> None:
    # What goes on is ended by this: it must not take the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))

    def interrupt(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    call = endless_calls()[name]
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        call()
    except Interrupted:
        print("interrupted")


if __name__ == "__main__":
    run(sys.argv[1])
