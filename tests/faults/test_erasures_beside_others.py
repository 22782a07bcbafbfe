"""Erasures of write_behind beside late calls: erased votes stay erased, and later votes count.

tests/races/test_stream_model.py has found these orders.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import hotcount
import pytest
from hotcount import Votes

from tests.faults.proxy import CLIENT_TO_SERVER, FaultProxy
from tests.faults.test_erased_stays import (
    Snapshot,
    drained,
    go_back,
    past,
    streams,
    users_in_redis,
    votes,
)
from tests.faults.test_old_copies import (
    VOTER,
    HeldOpening,
    drained_but_open,
    fence_of,
    scripts_executed,
    set_ids_ahead,
)
from tests.support.eventually import eventually
from tests.support.sqlalchemy_side import BothSides

__all__ = ["past", "votes"]  # Fixtures.
pytestmark = pytest.mark.server


class Held(FaultProxy):
    """Before Redis: holds the first command that has such bytes, until heal()."""

    def __init__(self, past: Snapshot, sought: bytes) -> None:
        super().__init__(past.server.socket)
        self.sought = sought

    def _allowance(self, data: bytes, direction: int) -> tuple[bytes, bool]:
        if direction == CLIENT_TO_SERVER and not self.fired and self.sought in data:
            self.hold(CLIENT_TO_SERVER)
            self.fired += 1
            self._open[CLIENT_TO_SERVER].wait()
        return super()._allowance(data, direction)


def through(sides: BothSides, proxy: FaultProxy) -> hotcount.Votes:
    return hotcount.Votes(
        hotcount.Database(sides.url, timeout=20),
        hotcount.Redis(proxy.url, timeout=20),
        "write_behind",
    )


@contextmanager
def under_way(call: threading.Thread, proxy: FaultProxy) -> Iterator[None]:
    """Once the call is held, until the end of the block."""
    call.start()
    try:
        eventually(lambda: proxy.fired > 0)
        yield
    finally:
        proxy.heal()
        call.join()


def wait_for_clock(past: Snapshot, version: int) -> None:
    """Until Redis gives ids beyond the version by its clock alone."""

    def passed() -> bool:
        seconds, microseconds = past.run("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000 > version >> 20

    eventually(passed)


def last_ids(past: Snapshot) -> list[tuple[int, int]]:
    """The last ID of each stream: milliseconds and number."""
    found = []
    for key in streams(past):
        about = past.run("XINFO", "STREAM", key)
        pairs = dict(about) if isinstance(about, dict) else dict(zip(*[iter(about)] * 2))
        milliseconds, number = pairs[b"last-generated-id"].split(b"-")
        found.append((int(milliseconds), int(number)))
    return found


def test_an_erasure_deletes_late_votes(sides: BothSides, past: Snapshot, votes: Votes) -> None:
    """The eraser knows an older floor, and finds no stream."""
    votes.cast(1, 8)
    drained_but_open(votes)
    set_ids_ahead(past)
    votes.cast(1, 9)
    votes.cast(1, 7)
    erased = []
    with Held(past, b"waiting:") as proxy:
        eraser = through(sides, proxy)
        call = threading.Thread(target=lambda: erased.append(int(eraser.erase_user(7))))
        with under_way(call, proxy):
            drained_but_open(votes)
            assert votes.flush(timeout=20).at_risk == 0
    assert (erased, drained(votes, 1)) == ([1], {1: [(8, 1), (9, 1)]})


def test_a_killed_voters_stream_is_fenced(sides: BothSides, past: Snapshot, votes: Votes) -> None:
    with HeldOpening(past.server.socket) as proxy:
        command = [sys.executable, "-c", VOTER, sides.url, proxy.url]
        with subprocess.Popen(command) as voter:
            eventually(lambda: proxy.fired > 0)
            voter.kill()
        eventually(lambda: votes.cast(2, 8).pending)
        set_ids_ahead(past)
        votes.cast(2, 9)
        drained_but_open(votes)
        votes.erase_user(99)
        executed = scripts_executed(past.run)
        proxy.heal()
        eventually(lambda: scripts_executed(past.run) > executed)
        assert votes.cast(1, 7).pending
    assert drained(votes, 1) == {1: [(7, 1)]}


def test_a_late_worker_lowers_none(sides: BothSides, past: Snapshot, votes: hotcount.Votes) -> None:
    votes.cast(1, 8)
    drained_but_open(votes)
    past.keep()
    votes.erase_user(99)
    votes = go_back(sides, past)
    # The stream of an old copy, whose ids the worker raises.
    with Held(past, b":least") as proxy:
        late = through(sides, proxy).sync_worker()
        with under_way(threading.Thread(target=late.run_once), proxy):
            drained_but_open(votes)
            set_ids_ahead(past)
            votes.erase_user(99)
            before = last_ids(past)
        assert last_ids(past) >= before
        assert votes.cast(1, 7).pending
    assert drained(votes, 1) == {1: [(7, 1), (8, 1)]}


def test_refused_votes_do_not_come_back(sides: BothSides, past: Snapshot, votes: Votes) -> None:
    """The votes are refused after the fence was drawn."""
    votes.cast(99, 7)
    with Held(past, b"$6\r\nXRANGE\r\n") as proxy:
        eraser = through(sides, proxy)
        with under_way(threading.Thread(target=eraser.erase_user, args=[7]), proxy):
            past.keep()
    assert b"7" not in users_in_redis(past)
    again = go_back(sides, past)
    again.sync_worker().run_once(timeout=20)
    assert b"7" not in users_in_redis(past)


def test_a_vote_after_an_erasure_counts(sides: BothSides, past: Snapshot, votes: Votes) -> None:
    votes.cast(1, 8)
    drained_but_open(votes)
    past.keep()
    votes.erase_user(7)
    wait_for_clock(past, max(fence_of(sides)))
    again = go_back(sides, past)
    assert again.cast(1, 7).pending
    assert drained(again, 1) == {1: [(7, 1), (8, 1)]}


def test_the_later_vote_stands_on_a_copy(sides: BothSides, past: Snapshot, votes: Votes) -> None:
    votes.cast(1, 8)
    drained_but_open(votes)
    votes.erase_user(99)
    past.keep()
    votes.cast(1, 7, 1)
    drained_but_open(votes)
    ((milliseconds, number),) = last_ids(past)
    wait_for_clock(past, milliseconds << 20 | number)
    again = go_back(sides, past)
    again.sync_worker().run_once(timeout=20)
    assert again.cast(1, 7, 2).pending
    assert drained(again, 1) == {1: [(7, 2), (8, 1)]}
