"""Votes from a Locust fleet, in the ledger that hotcount-load audits (extra ``hotcount[locust]``).

A `VoteUser` casts votes, takes some back and reads counts, as hotcount-load's own traffic does, and
notes each call before it is sent and after its answer. Each Locust process writes a part of its own
into the folder. Where the processes run on several machines, copy their parts into one folder; the
audit then needs clocks that agree (NTP) to better than the time between two votes of one user on
one item.

Example::

    # locustfile.py
    from hotcount.integrations.locust import VoteUser

    class Voter(VoteUser):
        ledger = "fleet"                 # a folder
        items = 1000

        def cast(self, item, user, value):
            requests.put(f"{self.host}/items/{item}/votes/{user}", json=value).raise_for_status()

        def read(self, item):
            return requests.get(f"{self.host}/items/{item}/count").json()

    $ locust --headless --processes 2 -u 50 -t 60s
    $ python -m hotcount.load merge fleet --items 1000 --driver 'python driver.py'
    $ hotcount-load audit fleet
"""

from __future__ import annotations

import bisect
import itertools
import random
import time
from pathlib import Path
from typing import Any

import locust
from locust.env import Environment
from locust.runners import WorkerRunner

from hotcount import _load_frames as frames
from hotcount._load_ledger import READ, UNVOTE, VOTE, LedgerPart
from hotcount.errors import ConfigError
from hotcount.load import outcome_of, told_cast, told_read

__all__ = ["VoteUser"]

_NAMES = {VOTE: "vote", UNVOTE: "unvote", READ: "read"}
_MOST_ITEMS = 1_000_000
# Users of one process are so far apart that no two processes have the same.
_PROCESSES = 1024
_REMEMBERED = 4096


class _Traffic:
    """The operations of one process: items by Zipf's law, each vote from a user of its own."""

    def __init__(self, kind: type[VoteUser], worker: int) -> None:
        self._random = random.Random(f"{kind.seed}/{worker}")
        weights = [1 / (rank**kind.zipf) for rank in range(1, kind.items + 1)]
        self._shares = list(itertools.accumulate(weights))
        self._items = list(range(1, kind.items + 1))
        # The same order in all processes: they vote on the same hot items.
        random.Random(str(kind.seed)).shuffle(self._items)
        self._kinds = [VOTE, UNVOTE, READ]
        self._mix = [kind.mix.get(_NAMES[each], 0) for each in self._kinds]
        self._dup = kind.dup
        self._worker = worker
        self._votes: dict[int, int] = {}
        self._cast: list[tuple[int, int]] = []  # The latest, in a ring.
        self._next = 0

    def _item(self) -> int:
        at = bisect.bisect_left(self._shares, self._random.random() * self._shares[-1])
        return self._items[min(at, len(self._items) - 1)]

    def next(self) -> tuple[int, int, int, bool]:
        """(kind, item, user, whether it is sent again)."""
        (kind,) = self._random.choices(self._kinds, self._mix)
        if kind == READ:
            return kind, self._item(), 0, False
        again = kind == VOTE and self._random.random() < self._dup
        if self._cast and (kind == UNVOTE or again):
            item, user = self._random.choice(self._cast)
            return kind, item, user, again
        item = self._item()
        number = self._votes[item] = self._votes.get(item, 0) + 1
        user = number * _PROCESSES + self._worker
        if len(self._cast) < _REMEMBERED:
            self._cast.append((item, user))
        else:
            self._cast[self._next % _REMEMBERED] = (item, user)
            self._next += 1
        return VOTE, item, user, False


class VoteUser(locust.User):
    """A caller of a Locust fleet that votes and reads; subclass it with `cast` and `read`.

    A `ConfigError` when the class is made, for an attribute that cannot be. As every Locust user it
    runs in a greenlet: its calls must be those of libraries that gevent patches, or be short.
    """

    abstract = True

    ledger: str | Path = ""
    """The folder for the parts of the ledger. It is made; use a new one for each run."""
    items: int = 10_000
    """How many items are voted on, 1 to 1,000,000: ids 1 to this."""
    zipf: float = 0.99
    """How uneven their popularity is, 0 to 20; 0: not at all."""
    mix: dict[str, float] = {"vote": 80, "unvote": 5, "read": 15}  # noqa: RUF012
    """Shares of the operations."""
    dup: float = 0.01
    """The share of the votes that is sent again on purpose, 0 to 1: it must not count again."""
    seed: int = 1
    """The same seed and the same workers make the same operations, not in the same order."""
    exact: bool = True
    """A read has every vote that was acknowledged before it."""

    def cast(self, item: int, user: int, value: int) -> Any:
        """Sets the vote of a user on an item: 1 votes, 0 takes it back. As ``cast=`` of
        `hotcount.load.driver`, which says what it returns and raises."""
        raise NotImplementedError

    def read(self, item: int) -> int:
        """The count of an item."""
        raise NotImplementedError

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.__dict__.get("abstract") is not True:
            _check(cls)

    @locust.task
    def operate(self) -> None:
        """One operation of the traffic: calls, records in the ledger and reports to Locust."""
        traffic, part = _of_process(type(self), self.environment)
        kind, item, user, resent = traffic.next()
        value = 1 if kind == VOTE else 0
        number = part.begin(kind, item, user, value, resent=resent)
        started = time.perf_counter()
        problem: Exception | None = None
        try:
            if kind == READ:
                told = told_read(self.read(item))
            else:
                told = told_cast(self.cast(item, user, value), value)
        except Exception as failure:
            problem = failure
            told = frames.Told(outcome_of(failure, reads=kind == READ))
        part.end(number, told)
        self.environment.events.request.fire(
            request_type=_NAMES[kind],
            name=type(self).__name__,
            response_time=(time.perf_counter() - started) * 1000,
            response_length=0,
            exception=problem,
            context=self.context(),
        )


# By class: a process of Locust forks before its first user, and has one environment.
_processes: dict[type[VoteUser], tuple[_Traffic, LedgerPart]] = {}


def _of_process(kind: type[VoteUser], environment: Environment) -> tuple[_Traffic, LedgerPart]:
    if kind not in _processes:
        runner = environment.runner
        worker = runner.worker_index if isinstance(runner, WorkerRunner) else 0
        if not 0 <= worker < _PROCESSES:
            raise ConfigError(f"this is worker {worker} of the fleet; a fleet has {_PROCESSES}")
        _processes[kind] = (_Traffic(kind, worker), LedgerPart(Path(kind.ledger), exact=kind.exact))
    return _processes[kind]


def _refuse(option: str, value: object, takes: str) -> ConfigError:
    error = ConfigError(f"VoteUser.{option} is {value!r}; it takes {takes}")
    error.option, error.value = option, str(value)
    return error


def _check(kind: type[VoteUser]) -> None:
    if not str(kind.ledger):
        raise _refuse("ledger", kind.ledger, "a folder")
    items: Any = kind.items  # A subclass may set any value.
    if not isinstance(items, int) or not 1 <= kind.items <= _MOST_ITEMS:
        raise _refuse("items", kind.items, f"1 to {_MOST_ITEMS}")
    if not 0 <= kind.zipf <= 20:
        raise _refuse("zipf", kind.zipf, "0 to 20")
    if not 0 <= kind.dup <= 1:
        raise _refuse("dup", kind.dup, "0 to 1")
    unknown = set(kind.mix) - set(_NAMES.values())
    if unknown or min(kind.mix.values(), default=0) < 0 or not sum(kind.mix.values()) > 0:
        raise _refuse("mix", kind.mix, "shares of vote, unvote and read")
