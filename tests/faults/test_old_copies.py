"""write_behind where Redis has an old copy of its data, or ids or calls of another time."""

import itertools
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hotcount
import pytest
import sqlalchemy as sa
from hotcount import Votes

from tests.faults.proxy import CLIENT_TO_SERVER, FaultProxy
from tests.faults.test_erased_stays import (
    Snapshot,
    drained,
    go_back,
    open_votes,
    past,
    users_in_redis,
    votes,
)
from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.sqlalchemy_side import BothSides
from tests.support.wrong_clock import WrongClock

__all__ = ["past", "votes"]  # Fixtures.
pytestmark = pytest.mark.server

HOUR_MS = 3_600_000


def stream_of(past: Snapshot) -> bytes:
    """The only one with votes or ids."""
    (stream,) = (key for key in past.run("KEYS", "waiting:*") if key.endswith(b"}"))
    return bytes(stream)


def set_ids_ahead(past: Snapshot) -> None:
    """As if the clock had been an hour ahead."""
    ahead = int(time.time() * 1000) + HOUR_MS
    past.run("XSETID", stream_of(past), f"{ahead}-5")


@pytest.mark.parametrize("erase", ["erase_user", "remove_item"])
def test_a_copy_with_ids_ahead(sides: BothSides, past: Snapshot, votes: Votes, erase: str) -> None:
    dump = past.server.folder / "dump.rdb"
    votes.cast(1, 8)
    drained_but_open(votes)
    past.keep()
    shutil.copy(dump, dump.with_suffix(".before"))
    set_ids_ahead(past)
    votes.cast(1, 9)
    drained_but_open(votes)
    votes.cast(1, 7)
    past.keep()
    shutil.copy(dump, dump.with_suffix(".ahead"))

    past.server.kill()
    shutil.copy(dump.with_suffix(".before"), dump)
    again = go_back(sides, past)
    if erase == "erase_user":
        again.erase_user(7)
    else:
        again.remove_item(1)
    past.server.kill()
    shutil.copy(dump.with_suffix(".ahead"), dump)
    again = go_back(sides, past)
    left = [(8, 1), (9, 1)] if erase == "erase_user" else []
    assert drained(again, 1) == {1: left}


def scripts_executed(run: Callable[..., bytes]) -> int:
    found = re.findall(rb"cmdstat_evalsha:calls=(\d+)", run("INFO", "commandstats"))
    return sum(map(int, found))


def drained_but_open(votes: hotcount.Votes) -> None:
    assert votes.sync_worker().run_once(timeout=20).at_risk == 0


def test_each_erasure_raises_ids(sides: BothSides, past: Snapshot, votes: hotcount.Votes) -> None:
    """A page that was taken before it is written only if the fence is still the same."""
    votes.cast(1, 8)
    drained_but_open(votes)
    past.keep()
    set_ids_ahead(past)
    votes.erase_user(7)
    fences = [fence_of(sides)]
    again = go_back(sides, past)
    for _ in range(3):
        again.erase_user(7)
        fences.append(fence_of(sides))
    assert all(
        earlier < later
        for before, after in itertools.pairwise(fences)
        for earlier, later in zip(before, after, strict=True)
    )
    # Nor do ids run away from the clock.
    assert max(fences[-1]) >> 20 < time.time() * 1000 + HOUR_MS + 60_000


def fence_of(sides: BothSides) -> list[int]:
    with sides.engine.connect() as connection:
        found = connection.scalar(
            sa.text("SELECT value FROM vote_meta WHERE name = 'stream_fence'")
        )
    text = found.decode() if isinstance(found, bytes) else str(found)
    return [int(word, 36) for word in text.split(" ")[1:]]


def close_streams(votes: hotcount.Votes, past: Snapshot, sides: BothSides) -> None:
    assert votes.flush(timeout=20).at_risk == 0


def switch_away_and_back(votes: hotcount.Votes, past: Snapshot, sides: BothSides) -> None:
    close_streams(votes, past, sides)
    hotcount.Votes(hotcount.Database(sides.url, timeout=20)).create_tables()
    again = open_votes(sides.url, past)
    again.create_tables()
    again.cast(1, 8)
    drained_but_open(again)


def have_ids_ahead(votes: hotcount.Votes, past: Snapshot, sides: BothSides) -> None:
    set_ids_ahead(past)


@pytest.mark.parametrize("meanwhile", [close_streams, switch_away_and_back, have_ids_ahead])
def test_refused_votes_of_an_erased_user_do_not_come_back(
    sides: BothSides,
    past: Snapshot,
    votes: hotcount.Votes,
    meanwhile: Callable[[hotcount.Votes, Snapshot, BothSides], None],
) -> None:
    votes.cast(99, 7)
    drained_but_open(votes)
    assert b"7" in users_in_redis(past)
    meanwhile(votes, past, sides)
    past.keep()
    open_votes(sides.url, past).erase_user(7)
    assert b"7" not in users_in_redis(past)
    again = go_back(sides, past)
    again.sync_worker().run_once(timeout=20)
    assert b"7" not in users_in_redis(past)


VOTER = """
import hotcount, sys
hotcount.Votes(
    hotcount.Database(sys.argv[1], timeout=60), hotcount.Redis(sys.argv[2], timeout=60),
    "write_behind",
).cast(1, 7)
"""


class HeldOpening(FaultProxy):
    """Holds the script that makes a stream, until heal()."""

    def _allowance(self, data: bytes, direction: int) -> tuple[bytes, bool]:
        if direction == CLIENT_TO_SERVER and not self.fired and b"workers" in data:
            self.hold(CLIENT_TO_SERVER)
            self.fired += 1
            self._open[CLIENT_TO_SERVER].wait()
        return super()._allowance(data, direction)


def test_a_stream_of_a_killed_voter_is_not_made(sides: BothSides, own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis, HeldOpening(own_redis.socket) as proxy:
        votes = hotcount.Votes(hotcount.Database(sides.url, timeout=20), redis, "write_behind")
        votes.create_tables()
        votes.add_items([1])
        command = [sys.executable, "-c", VOTER, sides.url, proxy.url]
        with subprocess.Popen(command) as voter:
            eventually(lambda: proxy.fired > 0)
            voter.kill()
        eventually(lambda: votes.cast(1, 9).pending)
        drained_but_open(votes)
        assert votes.flush(timeout=20).at_risk == 0
        executed = scripts_executed(redis.execute)
        proxy.heal()
        eventually(lambda: scripts_executed(redis.execute) > executed)
        # Its votes would be nobody's: another strategy may have the tables.
        assert not [key for key in redis.execute("KEYS", "waiting:*") if key.endswith(b"}")]
        assert votes.cast(1, 10).pending
        with pytest.raises(hotcount.ConfigError, match="may wait"):
            hotcount.Votes(hotcount.Database(sides.url, timeout=20)).create_tables()


def test_a_dead_workers_page_outlives_a_clock(sides: BothSides, tmp_path: Path) -> None:
    """XAUTOCLAIM alone would wait until the clock has caught up."""
    clock = WrongClock(tmp_path)
    server = RedisServer(tmp_path, environment=clock.environment(3600, "redis")).start()
    try:
        with server.redis(timeout=20) as redis:
            votes = hotcount.Votes(sides.database, redis, "write_behind")
            votes.create_tables()
            votes.add_items([1])
            votes.cast_many([1, 1, 1], [7, 8, 9])
            (stream,) = redis.execute("KEYS", "waiting:*")
            page = ("GROUP", "workers", "dead", "COUNT", 2, "STREAMS", stream, ">")
            assert redis.execute("XREADGROUP", *page)
            clock.step("redis", 0)
            assert drained(votes, 1) == {1: [(7, 1), (8, 1), (9, 1)]}
    finally:
        server.stop()
