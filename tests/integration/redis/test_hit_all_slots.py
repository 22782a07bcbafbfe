"""hit_all of keys in several slots of a Redis Cluster: each is held, then all are taken."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import hotcount
import pytest
from hotcount import aio, hit_all

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.limiters import CHARGING
from tests.support.servers import RedisServer, cluster_node
from tests.support.together import together

# A node takes two seconds until it is a cluster, so only test_known_complaints.py has a quick case.
pytestmark = [pytest.mark.server, pytest.mark.long]
TEN = "10/300 days"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with cluster_node(tmp_path_factory.mktemp("node")) as server:
        yield server


@pytest.fixture
def store(node: RedisServer) -> Iterator[hotcount.Redis]:
    with node.redis(timeout=20) as store:
        store.execute("FLUSHALL")
        yield store


@pytest.mark.parametrize("algorithm", CHARGING)
def test_all_or_none_over_slots(store: hotcount.Redis, algorithm: Any) -> None:
    wide = hotcount.Limiter(store, TEN, algorithm=algorithm, name="wide")
    tight = hotcount.Limiter(store, "5/300 days; 9/360 days", algorithm=algorithm, name="tight")
    taken = hit_all([(wide, "a", 3), (tight, "b", 3), (wide, "c")])
    assert (taken.allowed, taken.violated, taken.remaining, taken.policy) == (True, (), 2, "tight")
    refused = hit_all([(wide, "a", 3), (tight, "b", 3), (wide, "c")])
    assert (refused.allowed, refused.violated, refused.policy) == (False, ("tight",), "tight")
    assert (refused.reason, refused.remaining) == ("limited", 2)
    assert refused.retry_after is not None
    above = hit_all([(wide, "a"), (tight, "b", 6)])
    assert (above.reason, above.retry_after) == ("cost_above_limit", None)
    left = [wide.peek("a"), tight.peek("b"), wide.peek("c")]
    assert [one.remaining for one in left] == [7, 2, 9]
    # Nothing is held any more: all that is left can be taken.
    assert hit_all([(wide, "a", 7), (tight, "b", 2), (wide, "c", 9)])


async def test_in_a_loop_and_beside_shadow_limiters(store: hotcount.Redis) -> None:
    strict = aio.Limiter(store, TEN, name="strict")
    shadow = aio.Limiter(store, "1/300 days", name="shadow", shadow=True)
    decisions = [await aio.hit_all([(strict, "a", 4), (shadow, "b")]) for _ in range(3)]
    assert [one.allowed for one in decisions] == [True, True, False]
    assert [one.violated for one in decisions] == [(), ("shadow",), ("strict", "shadow")]
    assert hotcount.Limiter(store, TEN, name="strict").peek("a").remaining == 2


def test_callers_at_once_take_what_there_is(store: hotcount.Redis) -> None:
    first = hotcount.Limiter(store, "40/300 days", name="first")
    second = hotcount.Limiter(store, "30/300 days", name="second")

    def work(_: int) -> int:
        return sum(bool(hit_all([(first, "a"), (second, "b", 2)])) for _ in range(5))

    admitted = sum(together(work, 8))
    # Who meets another's hold may be refused although it is let go of: never more than the limit.
    assert 1 <= admitted <= 15
    assert first.peek("a").remaining == 40 - admitted
    assert second.peek("b").remaining == 30 - 2 * admitted


def test_a_process_that_dies_while_it_holds_has_taken_nothing(node: RedisServer) -> None:
    program = (
        "import sys, hotcount; store = hotcount.Redis(sys.argv[1], timeout=60);"
        "of = lambda name: hotcount.Limiter(store, '10/300 days', name=name);"
        "sys.stdin.readline();"
        "hotcount.hit_all([(of('first'), 'a', 3), (of('second'), 'b', 4)])"
    )
    with (
        FaultProxy(node.socket) as proxy,
        node.redis(timeout=20) as direct,
        subprocess.Popen(
            [sys.executable, "-c", program, proxy.url], stdin=subprocess.PIPE
        ) as dying,
    ):
        direct.execute("FLUSHALL")
        assert dying.stdin is not None

        def kill_when_both_are_held() -> None:
            if len(direct.execute("KEYS", "*")) == 2:
                dying.kill()
                dying.wait()

        proxy.before_each(kill_when_both_are_held)
        dying.stdin.write(b"\n")
        dying.stdin.flush()
        eventually(lambda: dying.poll() is not None, 60)
        assert dying.returncode == -9
        for name, key, cost in (("first", "a", 3), ("second", "b", 4)):
            limiter = hotcount.Limiter(direct, TEN, name=name)
            assert limiter.peek(key).remaining == 10 - cost
            (stored,) = direct.execute("KEYS", f"*:{name}:*")
            # Held by an id, and no state behind that: nothing has been charged.
            assert re.fullmatch(rb"!0,\d \d+ all-[^|,]+\|", direct.execute("GET", stored))
            # Holding and taking have the timeout each, and 10 s come to that.
            assert 0 < direct.execute("PTTL", stored) <= 130_000


def lose_the_reply_of_each_commit(
    proxy: FaultProxy, direct: hotcount.Redis, timeout: float
) -> set[bytes]:
    """Each commit is sent again when nearly all of the timeout has passed. Returns their keys."""
    lost: set[bytes] = set()

    def lose_new_ones() -> None:
        for key in set(direct.execute("KEYS", "*:commit.*")) - lost:
            lost.add(key)
            left = direct.execute("PTTL", key) - int(timeout * 1000)
            direct.execute("PEXPIRE", key, left)
            proxy.cut_after(0, SERVER_TO_CLIENT)

    proxy.before_each(lose_new_ones)
    return lost


@pytest.mark.parametrize("in_loop", [False, True], ids=["blocking", "loop"])
def test_a_commit_that_is_sent_again_late_in_the_timeout_is_taken_once(
    node: RedisServer, in_loop: bool
) -> None:
    # The store's timeout holds for a call without one.
    timeout = 20.0
    with (
        FaultProxy(node.socket) as proxy,
        node.redis(timeout=20) as direct,
        hotcount.Redis(proxy.url, timeout=timeout) as store,
    ):

        def hit_each(key: str, cost: int) -> hotcount.Decision:
            if not in_loop:
                limiters = [hotcount.Limiter(store, TEN, name=f"late{n}") for n in range(2)]
                return hit_all([(limiter, f"{key}{n}", cost) for n, limiter in enumerate(limiters)])

            async def hit() -> hotcount.Decision:
                limiters = [aio.Limiter(store, TEN, name=f"late{n}") for n in range(2)]
                return await aio.hit_all(
                    [(limiter, f"{key}{n}", cost) for n, limiter in enumerate(limiters)]
                )

            return asyncio.run(hit())

        direct.execute("FLUSHALL")
        # The scripts are there, and what is remembered of it is not taken for the commits below.
        assert hit_each("warm", 1)
        direct.execute("FLUSHALL")
        lost = lose_the_reply_of_each_commit(proxy, direct, timeout)
        decision = hit_each("k", 3)
        # The commits are sent together: a cut loses both replies, or each its own.
        assert proxy.fired
        assert len(lost) == 2
        assert (decision.allowed, decision.remaining) == (True, 7)
        looks = [hotcount.Limiter(direct, TEN, name=f"late{n}") for n in range(2)]
        assert [one.peek(f"k{n}").remaining for n, one in enumerate(looks)] == [7, 7]


@pytest.mark.parametrize("policy", ["open", "closed", "local"])
def test_a_policy_answers_the_hold_that_is_late(node: RedisServer, policy: Any) -> None:
    with FaultProxy(node.socket) as proxy, hotcount.Redis(proxy.url, timeout=0.4) as store:
        limiters = [
            hotcount.Limiter(store, TEN, name=f"{policy}{n}", on_error=policy) for n in range(3)
        ]
        hits = [(limiter, f"k{n}") for n, limiter in enumerate(limiters)]
        assert hit_all(hits, timeout=20)
        proxy.black_hole()
        assert hit_all(hits).allowed is (policy != "closed")


def refuse_the_script_and_be_gone(proxy: FaultProxy) -> None:
    """The node says that the keys are in several slots. Nothing else is answered."""
    passed: list[None] = []

    def see_a_call() -> None:
        passed.append(None)
        if len(passed) == 2:
            proxy.black_hole()

    proxy.before_each(see_a_call)


def test_a_call_that_fails_ends_with_its_timeout(node: RedisServer) -> None:
    with FaultProxy(node.socket) as proxy, hotcount.Redis(proxy.url, timeout=20) as store:
        limiters = [hotcount.Limiter(store, TEN, name=f"gone{n}") for n in range(2)]
        hits = [(limiter, f"k{n}") for n, limiter in enumerate(limiters)]
        assert hit_all(hits)
        refuse_the_script_and_be_gone(proxy)
        begun = time.monotonic()
        with pytest.raises(hotcount.HotcountError):
            hit_all(hits, timeout=1)
        # What may be held is let go of without the caller: that takes a second timeout.
        assert 0.9 < time.monotonic() - begun < 1.8
        assert proxy.fired


def test_a_call_that_fails_ends_when_what_it_held_is_free(node: RedisServer) -> None:
    with (
        FaultProxy(node.socket) as proxy,
        node.redis(timeout=20) as direct,
        hotcount.Redis(proxy.url, timeout=20) as store,
    ):
        limiters = [hotcount.Limiter(store, TEN, name=f"freed{n}") for n in range(2)]
        hits = [(limiter, f"k{n}") for n, limiter in enumerate(limiters)]
        assert hit_all(hits)
        (freed,) = direct.execute("KEYS", "*:freed0:*k0")
        (spoilt,) = direct.execute("KEYS", "*:freed1:*k1")
        direct.execute("DEL", spoilt)
        direct.execute("SADD", spoilt, "no limiter's value")

        delayed: list[bool] = []

        def delay_from_the_hold_on() -> None:
            if not delayed and b" all-" in direct.execute("GET", freed):
                delayed.append(True)
                proxy.delay(0.2)

        proxy.before_each(delay_from_the_hold_on)
        with pytest.raises(hotcount.HotcountError):
            hit_all(hits)
        assert delayed
        # A caller that ends its process now leaves nothing held for 10 s.
        assert hotcount.Limiter(direct, TEN, name="freed0").peek("k0").remaining == 9


def test_what_this_process_counted_is_given_back_when_another_limiter_refuses(
    node: RedisServer,
) -> None:
    with FaultProxy(node.socket) as proxy, hotcount.Redis(proxy.url, timeout=0.4) as store:
        policies: list[Any] = ["local", "local", "closed"]
        limiters = [
            hotcount.Limiter(store, TEN, name=f"back{n}", on_error=policy)
            for n, policy in enumerate(policies)
        ]
        hits = [(limiter, f"k{n}", 3) for n, limiter in enumerate(limiters)]
        eventually(lambda: hit_all(hits).reason == "allowed")
        refuse_the_script_and_be_gone(proxy)
        assert hit_all(hits).violated == ("back2",)
        assert proxy.fired
        assert [limiters[n].peek(f"k{n}").remaining for n in (0, 1)] == [10, 10]


def test_a_rate_of_the_call_counts_over_slots(store: hotcount.Redis) -> None:
    limiters = [hotcount.Limiter(store, "1/300 days", name=f"plan{n}") for n in range(2)]
    hits: list[Any] = [(limiters[0], "a", 4), (limiters[1], "b", 4, "5/300 days")]
    assert hit_all(hits, rate=TEN).remaining == 1
    assert hit_all(hits, rate=TEN).violated == ("plan1",)
    assert limiters[0].peek("a", rate=TEN).remaining == 6
    assert limiters[0].peek("a").remaining == 1


async def test_a_cancelled_call_holds_nothing(node: RedisServer) -> None:
    async with aio.Redis(node.url, timeout=20) as store:
        limiters = [aio.Limiter(store, "1000/300 days", name=f"c{n}") for n in range(3)]
        calls = [
            asyncio.ensure_future(aio.hit_all([(each, "k") for each in limiters]))
            for _ in range(60)
        ]
        for turn, call in enumerate(calls):
            if turn % 3 == 0:
                call.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*calls, return_exceptions=True)
        # Those that go on unseen have ended when a later one has.
        assert await aio.hit_all([(each, "k") for each in limiters])
        stored = [await store.execute("GET", key) for key in await store.execute("KEYS", "*:c*")]
        assert not [text for text in stored if b"all-" in text], "held by a cancelled call"
    with node.redis(timeout=20) as direct:
        direct.execute("FLUSHALL")


def test_what_takes_no_reservations_says_so(store: hotcount.Redis) -> None:
    first = hotcount.Limiter(store, "101/31622399 s", name="first")
    second = hotcount.Limiter(store, TEN, name="second")
    with pytest.raises(hotcount.ConfigError):
        first.reserve("a", 1)
    with pytest.raises(hotcount.ConfigError):
        hit_all([(first, "a"), (second, "b")])
    assert second.peek("b").remaining == 10


def test_a_refusal_says_how_long_keys_count_without_what_was_held(store: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, "1/10 s")
    limiter.hit("{y}")
    refused = hit_all([(limiter, "{x}"), (limiter, "{y}")])
    assert not refused.allowed
    assert 0 < refused.reset_after <= 10
    assert limiter.peek("{x}").reset_after == 0
