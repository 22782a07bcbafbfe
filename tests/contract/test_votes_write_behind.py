"""Strategy write_behind: acknowledged by Redis, written to the database by workers."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount import Cast, Database, Redis, Votes, aio

from tests.support.servers import RedisServer
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import join

pytestmark = pytest.mark.server

Make = Callable[..., Votes]
_numbers = itertools.count()


@pytest.fixture
def cache(redis_server: RedisServer) -> Iterator[hotcount.Redis]:
    # A brace of the application's own in the prefix must do no harm.
    with hotcount.Redis(redis_server.url, prefix=f"w{next(_numbers)}{{:", timeout=20) as redis:
        yield redis


@pytest.fixture
def make(database: hotcount.Database, cache: hotcount.Redis) -> Make:
    def make(strategy: str = "write_behind", **options: Any) -> Votes:
        own = cache if strategy == "write_behind" else None
        return Votes(database, own, strategy, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def votes(make: Make) -> Votes:
    votes = make()
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


def streams(cache: hotcount.Redis) -> list[str]:
    assert isinstance(cache.prefix, str)
    found = cache.execute("KEYS", cache.prefix.replace("{", "\\{") + "waiting:*")
    return sorted(key.decode() for key in found)


def stream_of(cache: hotcount.Redis, item: int = 1) -> str:
    """The stream in which an item's votes wait."""
    for key in streams(cache):
        for _, fields in cache.execute("XRANGE", key, "-", "+"):
            if fields[1] == str(item).encode():
                return key
    raise AssertionError(f"no vote for item {item} waits")


def drained(votes: Votes) -> bool:
    report = votes.flush(timeout=20)
    return (report.pending, report.at_risk) == (0, 0) and votes.reconcile(dry_run=True) == []


def test_a_vote_waits_in_redis_until_a_worker_writes_it(votes: Votes) -> None:
    assert votes.cast(1, 7) == Cast(True, changed=None, previous=None, value=1, pending=True)
    waiting = votes.count(1)
    assert (int(waiting), waiting.pending, waiting.exact, votes.get(1, 7)) == (0, 1, False, 0)
    done = votes.sync_worker().run_once()
    assert (done.scanned, done.saved, done.refused, done.at_risk) == (1, 1, 0, 0)
    count = votes.count(1, consistency="exact")
    assert (int(count), count.pending, count.exact, votes.get(1, 7)) == (1, 0, False, 1)


def test_the_last_of_a_users_votes_stands(votes: Votes) -> None:
    for value in (1, 5, 0, -2):
        votes.cast(1, 7, value)
    votes.cast(2, 7)
    assert votes.retract(2, 7) == Cast(False, changed=None, previous=None, value=0, pending=True)
    assert drained(votes)
    assert [int(count) for count in votes.count_many([1, 2])] == [-2, 0]


def test_a_batch_is_acknowledged_and_a_bad_ballot_fails_alone(votes: Votes) -> None:
    casts = votes.cast_many([1, 2, 1], [7, 7, 8], [1, 2**40, 3], errors="return")
    assert list(casts.errors) == [1]
    assert list(casts.pending) == [True, False, True]
    assert [cast.changed for cast in casts] == [None, False, None]
    assert list(hotcount.Casts(list(casts))) == list(casts)
    assert drained(votes)
    assert [int(count) for count in votes.count_many([1, 2])] == [4, 0]


def test_votes_without_a_user_are_counted_once_under_their_op_id(votes: Votes) -> None:
    for _ in range(3):
        votes.cast(1, None, op_id="once")
    assert drained(votes)
    assert int(votes.count(1)) == 1


def test_workers_in_several_threads_write_every_vote_once(make: Make) -> None:
    voter = make(missing_items="create", page=7, workers=3)
    voter.create_tables()
    workers = [voter.sync_worker() for _ in range(3)]
    voter.cast_many([i % 20 for i in range(400)], list(range(400)))
    join(threading.Thread(target=worker.run_once) for worker in workers)
    assert drained(voter)
    assert sum(int(count) for count in voter.count_many(list(range(20)))) == 400


def test_one_vote_more_than_max_pending_is_refused_and_not_applied(make: Make) -> None:
    votes = make(max_pending=3)
    votes.create_tables()
    votes.add_items([1])
    for user in range(3):
        votes.cast(1, user)
    with pytest.raises(hotcount.CapacityError, match="max_pending") as caught:
        votes.cast(1, 9)
    assert "Nothing was applied" in str(caught.value)
    assert drained(votes)
    assert (int(votes.count(1)), votes.cast(1, 9).pending) == (3, True)


def test_a_vote_for_a_missing_item_is_set_aside_alone(votes: Votes) -> None:
    votes.cast_many([1, 99, 2], [7, 7, 7])
    done = votes.sync_worker().run_once()
    assert (done.scanned, done.saved, done.refused, done.unsettled) == (3, 2, 1, 0)
    assert [int(count) for count in votes.count_many([1, 99, 2])] == [1, 0, 1]
    assert votes.stats()["refused_votes"] == 1


def test_an_entry_that_is_no_vote_is_set_aside(votes: Votes, cache: hotcount.Redis) -> None:
    votes.cast(1, 7)
    stream = stream_of(cache)
    cache.execute("XADD", stream, "*", "i", "seven", "u", "1", "v", "1")
    cache.execute("XADD", stream, "*", "other", "fields")
    done = votes.sync_worker().run_once()
    assert (done.saved, done.refused) == (1, 2)
    assert votes.stats()["refused_votes"] == 2


def test_a_version_is_refused(votes: Votes) -> None:
    with pytest.raises(hotcount.ConfigError, match="version"):
        votes.cast(1, 7, version=3)
    assert votes.stats()["pending_votes"] == 0


@pytest.mark.parametrize("cache", [None, "memory://"])
def test_it_needs_a_redis(cache: str | None) -> None:
    with pytest.raises(hotcount.ConfigError, match="write_behind' needs cache=: a Redis"):
        Votes("sqlite:///:memory:", cache, "write_behind")


def test_a_page_written_twice_changes_nothing(votes: Votes, cache: hotcount.Redis) -> None:
    votes.cast(1, 7, 5)
    stream = stream_of(cache)
    kept = cache.execute("DUMP", stream)
    votes.sync_worker().run_once()
    votes.cast(1, 7, 6)
    votes.sync_worker().run_once()
    # As if the first worker had died before it took the vote out.
    cache.execute("RESTORE", stream, 0, kept, "REPLACE")
    assert votes.sync_worker().run_once().scanned == 1
    assert (int(votes.count(1)), votes.get(1, 7)) == (6, 6)


def test_votes_of_a_dead_worker_are_taken_over(votes: Votes, cache: hotcount.Redis) -> None:
    votes.cast(1, 7)
    stream = stream_of(cache)
    cache.execute("XREADGROUP", "GROUP", "workers", "dead", "STREAMS", stream, ">")
    worker = votes.sync_worker()
    assert worker.run_once().scanned == 0
    # Unknown, if the deadline passes while a question to Redis is under way.
    with pytest.raises((hotcount.DeadlineError, hotcount.OutcomeUnknownError)):
        votes.remove_item(1, timeout=0.3)
    claim = ("XCLAIM", stream, "workers", "dead", 0)
    ((entry, _),) = cache.execute("XRANGE", stream, "-", "+")
    cache.execute(*claim, entry, "IDLE", 30_001)
    assert worker.run_once().saved == 1
    assert int(votes.count(1)) == 1


def test_after_flushall_new_votes_are_newer(votes: Votes, cache: hotcount.Redis) -> None:
    votes.cast(1, 7, 5)
    stream = stream_of(cache)
    # The clock of Redis was a year ahead.
    ((entry, _),) = cache.execute("XRANGE", stream, "-", "+")
    ahead = int(entry.split(b"-")[0]) + 366 * 86_400_000
    cache.execute("XADD", stream, f"{ahead}-5", "i", "1", "u", "7", "v", "8")
    votes.sync_worker().run_once()
    assert votes.get(1, 7) == 8
    for key in streams(cache):
        cache.execute("DEL", key)
    votes.cast(1, 7, 9)
    assert drained(votes)
    assert (votes.get(1, 7), int(votes.count(1))) == (9, 9)


def test_a_group_that_somebody_deleted_is_made_again(votes: Votes, cache: hotcount.Redis) -> None:
    votes.cast(1, 7)
    cache.execute("XGROUP", "DESTROY", stream_of(cache), "workers")
    assert votes.sync_worker().run_once().saved == 1


def test_a_waiting_vote_does_not_bring_a_removed_item_back(make: Make) -> None:
    votes = make(missing_items="create")
    votes.create_tables()
    votes.cast_many([1, 1, 2], [7, 8, 7])
    assert votes.remove_item(1, delete_row=True) == 2
    assert drained(votes)
    assert [int(count) for count in votes.count_many([1, 2])] == [0, 1]
    assert votes.voters(1) == []


def test_erase_user_takes_all_that_waits(votes: Votes, cache: hotcount.Redis) -> None:
    votes.cast_many([1, 99, 1], [7, 7, 8])
    votes.sync_worker().run_once()
    votes.cast(2, 7)
    assert votes.erase_user(7) == 2
    assert (votes.get(1, 7), votes.get(2, 7), votes.get(1, 8)) == (0, 0, 1)
    assert (votes.stats()["refused_votes"], votes.stats()["pending_votes"]) == (0, 0)


def test_a_toggle_knows_the_vote_that_waits(votes: Votes) -> None:
    votes.cast(1, 7)
    assert votes.toggle(1, 7) == Cast(counted=False, changed=True, previous=1, value=0)
    votes.cast(1, 7, 3)
    assert drained(votes)
    assert int(votes.count(1)) == 3


def test_prune_waits_for_what_was_cast_before(votes: Votes) -> None:
    votes.cast(1, 7)
    votes.retract(1, 7)
    assert votes.prune(2**62) == 1
    assert drained(votes)


def test_after_a_switch_versions_lose_to_those_of_a_stream(sides: BothSides, cache: Redis) -> None:
    votes = Votes(sides.database, cache, "write_behind")
    votes.create_tables()
    votes.add_items([1])
    votes.cast(1, 7)
    assert drained(votes)
    batched = Votes(sides.database)
    batched.create_tables()
    micros = 1_800_000_000_000_000
    late = batched.cast(1, 7, value=0, version=micros)
    assert (late.counted, late.changed) == (True, False)
    assert batched.get(1, 7) == 1
    # Without a version as ever.
    assert batched.cast(1, 7, value=0).changed
    assert batched.cast(1, 7).changed
    # As docs/reference/existing-tables.md has it.
    forget = "UPDATE vote SET version = NULL WHERE version > 1000000000000000000"
    with sides.engine.begin() as connection:
        connection.execute(sa.text(forget))
    assert batched.cast(1, 7, value=0, version=micros).changed
    assert not batched.cast(1, 7, version=micros - 1).changed
    assert batched.count(1, consistency="exact") == 0
    assert batched.reconcile(dry_run=True) == []


def test_another_strategy_takes_over_only_when_no_vote_waits(make: Make, votes: Votes) -> None:
    votes.cast(1, 7)
    naive = make("naive")
    with pytest.raises(hotcount.ConfigError, match="may wait in Redis"):
        naive.create_tables()
    votes.sync_worker().run_once()
    votes.flush()
    naive.create_tables()
    assert (int(naive.count(1)), naive.cast(1, 8).changed) == (1, True)
    with pytest.raises(hotcount.ConfigError, match="create_tables"):
        votes.cast(1, 9)
    votes.create_tables()
    votes.cast(1, 8, 4)
    assert drained(votes)
    assert int(votes.count(1)) == 5


def test_versions_that_batched_was_given_are_older(make: Make) -> None:
    batched = make("batched")
    batched.create_tables()
    batched.add_items([1])
    batched.cast(1, 7, 3, version=2**61)
    votes = make()
    votes.create_tables()
    votes.cast(1, 7, 4)
    assert drained(votes)
    assert int(votes.count(1)) == 4


def test_the_contract_says_what_may_be_lost(votes: Votes) -> None:
    contract = votes.contract()
    assert (contract.strategy, contract.durable, contract.exact) == ("write_behind", False, False)
    for word in ("max_pending", "appendfsync", "FLUSHALL", "set aside"):
        assert word in contract.may_lose


@pytest.mark.parametrize("many", [False, True])
async def test_calls_of_a_loop_are_counted(database: Database, cache: Redis, many: bool) -> None:
    votes = aio.Votes(database, cache, "write_behind", missing_items="create")
    await votes.create_tables()
    if many:
        casts = list(await votes.cast_many([i % 5 for i in range(50)], list(range(50))))
    else:
        casts = await asyncio.gather(*(votes.cast(i % 5, i) for i in range(50)))
    assert all(cast.pending for cast in casts)
    report = await votes.flush(timeout=20)
    assert (report.pending, report.at_risk) == (0, 0)
    assert sum(int(count) for count in await votes.count_many(list(range(5)))) == 50
