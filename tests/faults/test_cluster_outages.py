"""on_error on a cluster: a policy answers the keys of the primary that is away, and no others."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest
from hotcount import hit_all

from tests.support.eventually import eventually, stand_still
from tests.support.interrupted_program import running
from tests.support.redis_cluster import RedisCluster, SpareCluster

pytestmark = [pytest.mark.server, pytest.mark.timed]

KEYS = [f"user:{number}" for number in range(60)]
TIMEOUT = 0.5


@pytest.fixture
def cluster(spare_cluster: SpareCluster) -> Iterator[RedisCluster]:
    with spare_cluster.taken(config=("--cluster-require-full-coverage", "no")) as running:
        yield running


def reasons(limiter: hotcount.Limiter, keys: list[str], *, many: bool = False) -> list[str]:
    if many:
        return [decision.reason for decision in limiter.hit_many(keys)]
    return [limiter.hit(key).reason for key in keys]


def keys_of(cluster: RedisCluster, index: int) -> list[str]:
    """The users whose limiter state that node has."""
    stored = [bytes(key).decode() for key in cluster.nodes[index].client.keys("*")]
    return [key for key in KEYS if any(name.endswith(key) for name in stored)]


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ("closed", "kill"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in [("open", "pause"), ("local", "kill")]
        ),
    ],
)
def test_a_primary_that_is_away_answers_no_other_primarys_hits(
    cluster: RedisCluster, policy: Any, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hotcount")
    with hotcount.Redis(cluster.url, timeout=TIMEOUT) as store:
        limiter = hotcount.Limiter(store, "1000/minute", on_error=policy)
        assert set(reasons(limiter, KEYS)) == {"allowed"}
        away, here = keys_of(cluster, 0), keys_of(cluster, 1)
        assert len(away) > 5
        assert len(here) > 5
        getattr(cluster, fault)(0)
        assert limiter.hit(away[0]).reason == policy  # It waits for its timeout.
        began = time.monotonic()
        for many in (False, True):
            assert set(reasons(limiter, away, many=many)) == {policy}
            assert set(reasons(limiter, here, many=many)) == {"allowed"}
        assert time.monotonic() - began < TIMEOUT, "a known outage makes nobody wait"
        assert reasons(limiter, [away[1], here[1]], many=True) == [policy, "allowed"]
        joint = hit_all([(limiter, away[2], 1), (limiter, here[2], 1)])
        assert bool(joint) == (policy != "closed")
        # Its replica takes its place, and knows the limits.
        eventually(lambda: limiter.hit(away[0]).reason == "allowed", seconds=20)
        assert set(reasons(limiter, KEYS)) == {"allowed"}
        if fault == "pause":
            cluster.resume(0)
    port = cluster.nodes[0].port
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if f"redis 127.0.0.1:{port} is away: on_error=" in text]
    assert [text for text in said if f"redis 127.0.0.1:{port} answers limiters again" in text]
    others = [f":{node.port} is away" for node in cluster.nodes[1:]]
    assert not [text for text in said if any(other in text for other in others)]


@pytest.mark.parametrize("first", ["answers", "is late", "is away"])
def test_hits_of_several_slots_begin_the_outage_at_their_first_call(
    cluster: RedisCluster, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hotcount")
    with hotcount.Redis(cluster.url, timeout=TIMEOUT) as store:
        limiter = hotcount.Limiter(store, "1000/minute", on_error="open")
        assert set(reasons(limiter, KEYS)) == {"allowed"}
        away, here = keys_of(cluster, 0), keys_of(cluster, 1)
        cluster.pause(0)
        if first != "answers":
            cluster.pause(1)
        late = threading.Timer(0.4 * TIMEOUT, cluster.resume, [1])
        if first == "is late":
            late.start()
        # Another primary comes first. It takes no time from the one that is away.
        assert hit_all([(limiter, here[0], 1), (limiter, away[0], 1)])
        is_here = first != "is away"
        began = time.monotonic()
        assert set(reasons(limiter, away)) == {"open"}
        assert set(reasons(limiter, here)) == {"allowed" if is_here else "open"}
        assert time.monotonic() - began < TIMEOUT, "a known outage makes nobody wait"
        late.cancel()
        for index in range(2):
            cluster.resume(index)
        eventually(lambda: set(reasons(limiter, KEYS)) == {"allowed"}, seconds=20)
    said = [record.getMessage() for record in caplog.records]
    told = [
        any(f"redis 127.0.0.1:{node.port} is away: on_error=" in text for text in said)
        for node in cluster.nodes[:3]
    ]
    assert told == [True, not is_here, False]


def test_ctrl_c_ends_a_hit_all_which_then_takes_nothing(cluster: RedisCluster) -> None:
    text = """
limiter = hotcount.Limiter(redis, "10/300 days")
assert redis.ping()
say("ready")
hits = [(limiter, key) for key in hear().split()]
say("took", interrupted(lambda: hotcount.hit_all(hits)))
hear()
"""
    with hotcount.Redis(cluster.url, timeout=20) as store, running(text, cluster.url) as program:
        limiter = hotcount.Limiter(store, "10/300 days")
        assert set(reasons(limiter, KEYS)) == {"allowed"}
        keys = [keys_of(cluster, 1)[0], keys_of(cluster, 0)[0]]
        program.expect("ready")
        cluster.pause(0)
        program.tell(*keys)
        eventually(lambda: limiter.peek(keys[0]).remaining == 8)  # It is held.
        program.end_the_wait()
        cluster.resume(0)
        eventually(lambda: [limiter.peek(key).remaining for key in keys] == [9, 9])
        program.tell("ends")
        program.end()


def test_a_stalled_hit_all_is_not_told_that_it_was_interrupted(cluster: RedisCluster) -> None:
    text = """
redis = hotcount.Redis(url, timeout=0.5)
limiter = hotcount.Limiter(redis, "10/300 days")
assert redis.ping()
say("ready")
try:
    say("took", hotcount.hit_all([(limiter, key) for key in hear().split()]).allowed)
except hotcount.HotcountError as error:
    say("failed", error)
"""
    with hotcount.Redis(cluster.url) as store, running(text, cluster.url) as program:
        limiter = hotcount.Limiter(store, "10/300 days")
        assert set(reasons(limiter, KEYS)) == {"allowed"}
        keys = [keys_of(cluster, 1)[0], keys_of(cluster, 0)[0]]
        program.expect("ready")
        cluster.pause(0)
        program.tell(*keys)
        eventually(lambda: limiter.peek(keys[0]).remaining == 8)  # It is held.
        stand_still(program.pid)
        cluster.resume(0)
        time.sleep(11.5)  # The holds have ended, and the time for which the caller waits.
        os.kill(program.pid, signal.SIGCONT)
        assert "interrupted" not in program.expect("failed")
        program.end()


def test_calls_that_wait_for_a_silent_primary_need_little_memory(tmp_path: Path) -> None:
    text = """
def stop(*_):
    raise TimeoutError

def kilobytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4

redis = hotcount.Redis(url, timeout=3)
limiter = hotcount.Limiter(redis, "10/300 days")
keys = [f"k{n}" for n in range(6)]
limiter.hit_many(keys)
say("ready")
hear()
before = kilobytes()
signal.signal(signal.SIGALRM, stop)
until = time.monotonic() + 6
while time.monotonic() < until:  # Its callers leave, and a call stays until its deadline.
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        limiter.hit_many(keys)
    except (TimeoutError, hotcount.HotcountError):
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
say("grew", kilobytes() - before)
"""
    bare = RedisCluster(tmp_path, replicas=False)
    with bare.started(), running(text, bare.url) as program:
        program.expect("ready")
        bare.pause(1)
        program.tell("paused")
        assert int(program.expect("grew")[0]) < 60_000
        bare.resume(1)
        program.end()


async def test_a_loop_asks_the_others(cluster: RedisCluster) -> None:
    async with hotcount.aio.Redis(cluster.url, timeout=TIMEOUT) as store:
        limiter = hotcount.aio.Limiter(store, "1000/minute", on_error="closed")
        for key in KEYS:
            assert (await limiter.hit(key)).reason == "allowed"
        away, here = keys_of(cluster, 0), keys_of(cluster, 1)
        cluster.pause(0)
        told = [(await limiter.hit(key)).reason for key in [away[0], *here, *away]]
        cluster.resume(0)
    assert told == ["closed"] + ["allowed"] * len(here) + ["closed"] * len(away)
