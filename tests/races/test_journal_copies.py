"""Copies of counts in a cache, published by folds: late, lost and out of order."""

from collections.abc import Iterator
from pathlib import Path

import hotcount
import pytest

from tests.races.test_journal_orders import play
from tests.support.eventually import eventually
from tests.support.gate import Gate
from tests.support.journal_play import Play
from tests.support.postgres_votes import in_background
from tests.support.servers import RedisServer

__all__ = ["play"]  # A fixture.
PREFIX = "copies-of-votes:"


@pytest.fixture
def redis(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    with own_redis.redis(prefix=PREFIX, timeout=20) as redis:
        yield redis


def cached(votes: hotcount.Votes, item: int = 1) -> int:
    count = votes.count(item, timeout=30)
    assert count.source == "cache"
    return int(count)


def test_a_fold_moves_the_copy(play: Play, redis: hotcount.Redis) -> None:
    votes = play.other(cache=redis, max_age=3600)
    assert int(votes.count(1, timeout=30)) == 1
    play.cast(1, 1)
    play.flush(votes)
    assert cached(votes) == 2
    # The copy has the votes up to the last fold, and its Count is inexact. An exact count has all.
    votes.cast(1, 2, timeout=30)
    count = votes.count(1, timeout=30)
    assert (int(count), count.exact) == (2, False) or count.source == "sql"
    assert int(votes.count(1, consistency="exact", timeout=30)) == 3
    play.flush(votes)
    assert cached(votes) == 3


def test_a_late_publish_does_not_overwrite_a_newer_copy(
    play: Play, redis: hotcount.Redis, own_redis: RedisServer, tmp_path: Path
) -> None:
    votes = play.other(cache=redis, max_age=3600)
    with Gate(own_redis.socket, tmp_path / "gate.sock") as gate:
        slow = hotcount.Redis(gate.url(), prefix=PREFIX, timeout=30)
        stalled = play.other(cache=slow, max_age=3600)
        assert int(stalled.count(1, timeout=30)) == 1
        play.cast(1, 1)
        gate.hold(PREFIX)
        # Its fold is committed, and its copy is on the way.
        fold = in_background(lambda: play.flush(stalled))
        gate.wait()
        assert play.stored(1) == 2
        play.cast(1, 2)
        play.flush(votes)
        assert cached(votes) == 3
        gate.open()
        assert not isinstance(fold(), Exception)
        assert cached(votes) == 3
        stalled.close()
        slow.close()


def test_folds_elsewhere_are_seen_by_the_next_copy(play: Play, redis: hotcount.Redis) -> None:
    # The fold of a process that has no cache, or that died before it published.
    votes = play.other(cache=redis, max_age=1)
    assert int(votes.count(1, timeout=30)) == 1
    play.cast(1, 1)
    play.flush()
    eventually(lambda: int(votes.count(1, timeout=30)) == 2)


def test_a_copy_is_never_newer_than_sql(play: Play, redis: hotcount.Redis) -> None:
    votes = play.other(cache=redis, max_age=3600)
    assert int(votes.count(1, timeout=30)) == 1
    for user in range(1, 6):
        play.cast(1, user)
        play.flush(votes)
        assert cached(votes) == user + 1
    # The view, the exact count and the vote rows agree with the last copy.
    assert play.counts(1) == {6}
