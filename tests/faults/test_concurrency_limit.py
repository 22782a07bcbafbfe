"""ConcurrencyLimit over Redis: killed holders, lost replies, forgotten scripts, many processes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hotcount
import pytest

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.holding_program import LIMIT
from tests.support.servers import RedisServer
from tests.support.together import flushing_scripts

ROOT = Path(__file__).parents[2]
LONG = 3600.0


@contextmanager
def program(server: RedisServer, prefix: str, what: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.support.holding_program", server.url, prefix, what],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def said(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def test_the_place_of_a_killed_holder_is_free_when_its_lease_ends(own_redis: RedisServer) -> None:
    with own_redis.redis(prefix="p:") as redis, program(own_redis, "p:", "hold") as holder:
        limit = hotcount.ConcurrencyLimit(redis, 1, lease=LONG)
        assert said(holder) == "held"
        holder.kill()
        holder.wait()
        assert limit.acquire("k", timeout=60)


@pytest.mark.long
def test_processes_threads_and_tasks_are_never_more_than_the_limit(own_redis: RedisServer) -> None:
    with own_redis.redis(prefix="p:") as redis, flushing_scripts(redis), ExitStack() as stack:
        holders = [stack.enter_context(program(own_redis, "p:", "storm")) for _ in range(4)]
        assert [said(one) for one in holders] == ["ready"] * 4
        for one in holders:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        assert max(int(said(one)) for one in holders) == LIMIT
        assert redis.execute("KEYS", "p:concurrency:*") == [], "all places were given back"


def test_scripts_that_are_gone_are_sent_again(own_redis: RedisServer) -> None:
    with own_redis.redis() as redis:
        limit = hotcount.ConcurrencyLimit(redis, 1, lease=LONG)
        place = limit.acquire("k")
        redis.execute("SCRIPT", "FLUSH")
        place.renew()
        redis.execute("SCRIPT", "FLUSH")
        assert place.release()
        redis.execute("SCRIPT", "FLUSH")
        assert limit.acquire("k", timeout=0)
        assert redis.execute("ZCARD", "concurrency:default:k") == 1


def test_every_key_has_an_expiry_and_one_that_lost_it_gets_it_back(own_redis: RedisServer) -> None:
    key = "concurrency:default:k"
    with own_redis.redis() as redis:
        short = hotcount.ConcurrencyLimit(redis, 2, lease=60)
        long = hotcount.ConcurrencyLimit(redis, 2, lease=LONG)
        place = short.acquire("k")
        assert 0 < redis.execute("PTTL", key) <= 60_000
        second = long.acquire("k")
        assert 60_000 < redis.execute("PTTL", key) <= LONG * 1000
        place.renew()
        assert redis.execute("PTTL", key) > 60_000, "a renewal cuts off no longer lease"
        redis.execute("PERSIST", key)
        place.renew()
        assert 60_000 < redis.execute("PTTL", key) <= LONG * 1000
        redis.execute("PERSIST", key)
        assert not short.acquire("k", timeout=0)
        assert 60_000 < redis.execute("PTTL", key) <= LONG * 1000
        assert place.release()
        assert second.release()
        assert redis.execute("EXISTS", key) == 0


def test_a_key_of_another_type_is_named_and_kept(own_redis: RedisServer) -> None:
    with own_redis.redis() as redis:
        redis.execute("SET", "concurrency:default:k", "mine")
        limit = hotcount.ConcurrencyLimit(redis, 1)
        for call in (limit._acquire, limit._renew, limit._release):
            with pytest.raises(hotcount.WrongTypeError, match="no places of a ConcurrencyLimit"):
                call("k", "me")
        assert redis.execute("GET", "concurrency:default:k") == b"mine"


def test_an_acquire_whose_reply_was_lost_takes_one_place(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        limit = hotcount.ConcurrencyLimit(redis, 5, lease=LONG)
        limit.acquire("other")  # The script is there.
        proxy.cut_after(0, SERVER_TO_CLIENT)
        place = limit.acquire("k")
        assert proxy.fired == 1
        assert direct.execute("ZCARD", "concurrency:default:k") == 1
        assert place.decision.remaining == 4
        proxy.cut_after(0, SERVER_TO_CLIENT)
        place.renew()
        assert proxy.fired == 2


def test_a_release_whose_reply_was_lost_is_made_again(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        limit = hotcount.ConcurrencyLimit(redis, 1, lease=LONG)
        with limit.acquire("k"):
            proxy.cut_after(0, SERVER_TO_CLIENT)
        assert proxy.fired == 1
        assert direct.execute("EXISTS", "concurrency:default:k") == 0
        place = limit.acquire("k")
        proxy.cut_after(0, SERVER_TO_CLIENT)
        with pytest.raises(hotcount.OutcomeUnknownError):
            place.release()
        assert not place.release()


def test_an_acquire_of_unknown_outcome_leaves_no_place_behind(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    with hotcount.Redis(proxy.url, timeout=1, silence_limit=0.5) as redis:
        limit = hotcount.ConcurrencyLimit(redis, 1, lease=LONG)
        limit.acquire("other")
        # Both the call and its repetition are answered by nothing.
        proxy.cut_after(0, SERVER_TO_CLIENT, times=2)
        with pytest.raises(hotcount.OutcomeUnknownError):
            limit.acquire("k")
        eventually(lambda: direct.execute("EXISTS", "concurrency:default:k") == 0)


def test_a_block_ends_well_although_redis_went_away(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=0.2) as redis:
        limit = hotcount.ConcurrencyLimit(redis, 1, lease=LONG)
        with limit.acquire("k") as place:
            own_redis.kill()
        with pytest.raises(hotcount.HotcountError):
            place.release()
        with pytest.raises((hotcount.UnavailableError, hotcount.DeadlineError)):
            limit.acquire("k")
