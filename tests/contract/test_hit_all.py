"""hit_all takes hits of several limiters, all or none."""

import asyncio
import uuid
from typing import Any

import hotcount
import pytest
from hotcount import Database, aio, hit_all

from tests.support.limiters import SAFE
from tests.support.servers import RedisServer, calls_of, keys_of
from tests.support.stores import AnyStore, Store
from tests.support.together import together

TEN, FIVE = "10/300 days", "5/300 days"
ALGORITHMS = pytest.mark.parametrize("algorithm", SAFE)


@ALGORITHMS
def test_a_refused_one_spends_nothing_of_the_others(counter_store: Store, algorithm: Any) -> None:
    wide = hotcount.Limiter(counter_store, TEN, algorithm=algorithm, name="wide")
    tight = hotcount.Limiter(counter_store, FIVE, algorithm=algorithm, name="tight")
    taken = hit_all([(wide, "w", 3), (tight, "t", 3)])
    assert (taken.allowed, taken.violated, taken.remaining) == (True, (), 2)
    assert (taken.policy, taken.limit, taken.reason) == ("tight", 5, "allowed")
    for order in ([(wide, "w", 3), (tight, "t", 3)], [(tight, "t", 3), (wide, "w", 3)]):
        refused = hit_all(order)
        assert (refused.allowed, refused.violated, refused.policy) == (False, ("tight",), "tight")
        assert refused.reason == "limited"
        assert refused.retry_after is not None
    assert (wide.peek("w").remaining, tight.peek("t").remaining) == (7, 2)
    above = hit_all([(wide, "w"), (tight, "t", 6)])
    assert (above.reason, above.retry_after) == ("cost_above_limit", None)
    assert hit_all([(wide, "w", 2), (tight, "t", 2)])


@pytest.mark.parametrize("rates", [TEN, "10/300 days; 20/360 days"])
def test_limiters_of_all_algorithms_are_one_step(counter_store: Store, rates: str) -> None:
    names: list[Any] = [
        name for name in SAFE if name != "sliding_log" or isinstance(counter_store, hotcount.Memory)
    ]
    limiters = [hotcount.Limiter(counter_store, rates, algorithm=name, name=name) for name in names]
    assert hit_all([(limiter, "k", 4) for limiter in limiters]).remaining == 6
    # A hit of its own leaves one limiter too little.
    assert limiters[2].hit("k", 4)
    for _ in range(2):
        assert hit_all([(limiter, "k", 4) for limiter in limiters]).violated == (names[2],)
    assert [limiter.peek("k").remaining for limiter in limiters] == [
        2 if limiter is limiters[2] else 6 for limiter in limiters
    ]


def test_hits_of_one_key_are_one_hit_of_their_sum(counter_store: Store) -> None:
    limiter = hotcount.Limiter(counter_store, TEN)
    same = hotcount.Limiter(counter_store, TEN)
    assert hit_all([(limiter, "k", 3), (same, "k", 3)]).remaining == 4
    assert not hit_all([(limiter, "k", 3), (same, "k", 2)])
    assert limiter.peek("k").remaining == 4
    assert hit_all([(limiter, ("a", "b"), 1), (same, "a:b", 1)]).remaining == 9
    with pytest.raises(hotcount.ConfigError, match="64 bits"):
        hit_all([(limiter, "k", 2**63 - 1), (same, "k", 1)])


async def test_a_refusal_spends_nothing_on_any_store(limit_store: AnyStore) -> None:
    one = hotcount.Limiter(limit_store, TEN, name="one")
    other = hotcount.Limiter(limit_store, FIVE, name="other")
    assert hit_all([(one, "k", 3), (other, "k", 3)]).remaining == 2
    for order in (1, -1):
        refused = hit_all([(one, "k", 3), (other, "k", 3)][::order])
        assert (refused.allowed, refused.violated) == (False, ("other",))
    assert not hit_all([(other, "k", 1), (other, "k", 2)])
    assert (one.peek("k").remaining, other.peek("k").remaining) == (7, 2)
    assert hit_all([(other, "k", 1), (other, "k", 1)]).remaining == 0
    pair = [
        aio.Limiter(limit_store, rate, name=name) for rate, name in ((TEN, "one"), (FIVE, "other"))
    ]
    assert (await aio.hit_all([(limiter, "k", 1) for limiter in pair])).violated == ("other",)
    assert (await pair[0].peek("k")).remaining == 7
    assert (await aio.hit_all([(pair[0], "k", 4)])).remaining == 3


def test_a_rate_of_hit_all_has_the_state_that_peek_has_at_it(limit_store: AnyStore) -> None:
    one = hotcount.Limiter(limit_store, TEN, name="one")
    other = hotcount.Limiter(limit_store, FIVE, name="other")
    large = hotcount.Rate.parse("30/300 days")
    hits: list[Any] = [(one, "k", 4), (other, "k", 4, large)]
    assert hit_all(hits, rate="20/300 days; 25/360 days").remaining == 16
    assert hit_all(hits, rate="7/300 days").allowed
    refused = hit_all(hits, rate="7/300 days")
    assert (refused.allowed, refused.violated, refused.limit) == (False, ("one",), 7)
    assert one.peek("k", rate="20/300 days; 25/360 days").remaining == 16
    assert one.peek("k", rate="7/300 days").remaining == 3
    assert other.peek("k", rate=large).remaining == 22
    # At the limiters' own rates nothing was taken. Equal keys at two rates are two.
    assert hit_all([(one, "k", 10, None), (one, "k", 3, "7/300 days"), (other, "k", 5)])

    async def program() -> None:
        pair = [aio.Limiter(limit_store, FIVE, name=f"aio{i}") for i in range(2)]
        own: list[Any] = [(pair[0], "k", 2), (pair[1], "k", 2, "3/300 days")]
        assert (await aio.hit_all(own, rate=large)).remaining == 1
        assert (await aio.hit_all(own, rate=large)).violated == ("aio1",)
        assert (await pair[0].peek("k", rate=large)).remaining == 28
        assert (await pair[0].peek("k")).remaining == 5

    asyncio.run(program())
    for bad, error in (("no rate", hotcount.ConfigError), (5, TypeError)):
        rate: Any = bad
        with pytest.raises(error):
            hit_all([(one, "k")], rate=rate)
        with pytest.raises(error):
            hit_all([(one, "k", 1, rate)])


def test_denied_hits_are_charged_nothing_on_any_store(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, "2/300 days", charge_denied=True)
    assert hit_all([(limiter, "k", 2)])
    seen = limiter.peek("k").reset_after
    for _ in range(3):
        assert not hit_all([(limiter, "k", 2)])
    assert limiter.peek("k").reset_after <= seen
    # hit() charges a denied hit.
    assert limiter.hit("k", 2).reset_after > seen


class Stubborn(hotcount.Limiter):
    """A limiter that cannot give back."""

    def refund(self, *_: Any, **__: Any) -> int:
        raise hotcount.DeadlineError("refund")


def test_an_error_gives_back_every_hit_even_if_one_refund_fails() -> None:
    stores = [hotcount.Memory() for _ in range(3)]
    kinds = (hotcount.Limiter, hotcount.Limiter, Stubborn)
    limiters = [kind(store, FIVE) for kind, store in zip(kinds, stores, strict=True)]
    last = hotcount.Limiter(hotcount.Memory(), FIVE)
    hits = [(limiter, "k", 2) for limiter in limiters]
    with pytest.raises(hotcount.DeadlineError, match="refund"):
        hit_all([*hits, (last, "k", 6)])
    assert [limiter.peek("k").remaining for limiter in limiters] == [5, 5, 3]
    with pytest.raises(hotcount.ConfigError, match="key"):
        hit_all([*hits[:2], (last, "")])
    assert [limiter.peek("k").remaining for limiter in limiters] == [5, 5, 3]


@ALGORITHMS
def test_threads_in_every_order_take_the_limit(counter_store: Store, algorithm: Any) -> None:
    one = hotcount.Limiter(counter_store, TEN, algorithm=algorithm, name="one")
    other = hotcount.Limiter(counter_store, "14/300 days", algorithm=algorithm, name="other")
    pairs = [(one, "a", 1), (other, "b", 1)]
    taken = together(lambda i: sum(bool(hit_all(pairs[:: 1 if i % 2 else -1])) for _ in range(10)))
    if algorithm == "sliding_log" and isinstance(counter_store, hotcount.Redis):
        # The hits are taken one by one: a hit that is given back may have refused another.
        assert sum(taken) <= 10
        assert other.peek("b").remaining == 14 - sum(taken)
    else:
        assert sum(taken) == 10
        assert other.peek("b").remaining == 4


def test_a_block_refuses_all(counter_store: Store) -> None:
    one = hotcount.Limiter(counter_store, TEN, name="one")
    other = hotcount.Limiter(counter_store, TEN, name="other")
    other.hit("b", 2)
    other.block("b", 60)
    refused = hit_all([(one, "a"), (other, "b")])
    assert (refused.reason, refused.violated, refused.remaining) == ("blocked", ("other",), 0)
    assert one.peek("a").remaining == 10
    other.block("b", 0.001)
    other.acquire("b")
    assert hit_all([(one, "a"), (other, "b")]).remaining == 6


def test_a_shadow_limiter_keeps_no_other_from_taking(counter_store: Store) -> None:
    strict = hotcount.Limiter(counter_store, TEN, name="strict")
    shadow = hotcount.Limiter(counter_store, FIVE, name="shadow", shadow=True)
    taken = hit_all([(strict, "a", 4), (shadow, "b", 4)])
    assert (taken.reason, taken.violated) == ("allowed", ())
    taken = hit_all([(strict, "a", 4), (shadow, "b", 4)])
    assert (taken.allowed, taken.reason, taken.violated) == (True, "shadow", ("shadow",))
    assert (strict.peek("a").remaining, shadow.peek("b").remaining) == (2, 1)
    refused = hit_all([(strict, "a", 4), (shadow, "b", 1)])
    assert (refused.allowed, refused.violated) == (False, ("strict",))
    assert shadow.peek("b").remaining == 1


def test_on_several_stores_a_refusal_gives_back_what_was_taken(redis: hotcount.Redis) -> None:
    memory = hotcount.Memory()
    here = hotcount.Limiter(memory, TEN, name="here")
    there = hotcount.Limiter(redis, FIVE, name="there")
    log = hotcount.Limiter(redis, FIVE, name="log", algorithm="sliding_log")
    looks = hotcount.Limiter(memory, "1/300 days", name="looks", shadow=True)
    hits: list[Any] = [(here, "k", 2), (log, "k", 2), (there, "k", 2), (looks, "k", 2)]
    taken = hit_all(hits)
    assert (taken.allowed, taken.reason, taken.violated) == (True, "shadow", ("looks",))
    there.hit("k", 2)
    refused = hit_all(hits)
    assert (refused.allowed, refused.violated, refused.remaining) == (False, ("there",), 1)
    assert [limiter.peek("k").remaining for limiter, *_ in hits[:3]] == [8, 3, 1]
    # An error does the same.
    with pytest.raises(hotcount.ConfigError, match="key"):
        hit_all([(here, "k", 2), (there, "", 1)])
    assert here.peek("k").remaining == 8


def test_hits_on_one_server_are_one_script_and_all_keys_expire(redis: hotcount.Redis) -> None:
    limiters = [hotcount.Limiter(redis, "5/second; 9/minute", name=f"n{i}") for i in range(3)]
    hits = [(limiter, "k", 2) for limiter in limiters]
    assert hit_all(hits)
    redis.execute("SCRIPT", "FLUSH")
    assert hit_all(hits)
    keys = keys_of(redis)
    assert len(keys) == 3
    assert all(0 < redis.execute("PTTL", key) <= 60_000 for key in keys)
    redis.execute("CONFIG", "RESETSTAT")
    assert not hit_all(hits)
    stats = str(redis.execute("INFO", "commandstats"))
    assert "cmdstat_evalsha:calls=1," in stats
    assert "cmdstat_set:" not in stats


def test_policies_and_known_denials_leave_it_one_script(redis: hotcount.Redis) -> None:
    options: list[dict[str, Any]] = [{"on_error": "local"}, {"deny_cache": 9}, {}]
    limiters = [
        hotcount.Limiter(redis, FIVE, name=f"n{i}", **each) for i, each in enumerate(options)
    ]
    hits = [(limiter, "k", 3) for limiter in limiters]
    before = calls_of(redis, "evalsha")
    assert hit_all(hits).remaining == 2
    assert hit_all(hits).violated == ("n0", "n1", "n2")
    assert hit_all([(limiters[1], "k", 2)]).remaining == 0
    assert calls_of(redis, "evalsha") == before + 3


def test_a_key_that_holds_something_else_or_is_denied_lets_nothing_be_taken(
    redis: hotcount.Redis, redis_server: RedisServer
) -> None:
    one, other = (hotcount.Limiter(redis, FIVE, name=name) for name in ("one", "other"))
    hit_all([(one, "k"), (other, "k")])
    (key,) = keys_of(redis, "*:other:*")
    user = uuid.uuid4().hex
    mine = f"~{redis.prefix!s}limit:one:*"
    redis.execute("ACL", "SETUSER", user, "on", ">pw", "+@all", "%R~*", mine)
    url = redis_server.login(user, "pw")
    with hotcount.Redis(url, prefix=redis.prefix, timeout=20) as poor:
        pair = [hotcount.Limiter(poor, FIVE, name=name) for name in ("one", "other")]
        with pytest.raises(hotcount.PermissionDeniedError) as denied:
            hit_all([(pair[0], "k"), (pair[1], "k")])
        assert denied.value.key is None, "the server does not say which"
    redis.execute("ACL", "DELUSER", user)
    for command, value in (("SET", "x"), ("RPUSH", "x")):
        redis.execute("DEL", key)
        redis.execute(command, key, value)
        with pytest.raises(hotcount.WrongTypeError, match="limit:other:") as raised:
            hit_all([(one, "k"), (other, "k")])
        assert raised.value.key == key.decode()
    assert one.peek("k").remaining == 4


def test_a_full_memory_store_takes_all_or_nothing() -> None:
    strict = hotcount.Memory(max_keys=2, when_full="refuse")
    one, other = (hotcount.Limiter(strict, FIVE, name=name) for name in ("one", "other"))
    one.hit("there")
    with pytest.raises(hotcount.CapacityError):
        hit_all([(one, "there"), (one, "new"), (other, "new")])
    assert one.peek("there").remaining == 4
    assert strict.stats()["keys"] == 1
    lax = hotcount.Limiter(hotcount.Memory(max_keys=1), FIVE)
    lax.hit("a")
    with pytest.warns(RuntimeWarning, match="full"):
        lax.hit("b")
    assert hit_all([(lax, "a"), (lax, "c")]).allowed
    assert lax.peek("a").remaining == 3


async def test_aio_takes_the_same(counter_store: Store) -> None:
    one = aio.Limiter(counter_store, TEN, name="one")
    other = aio.Limiter("memory://", FIVE, name="other")
    third = aio.Limiter(counter_store, "14/300 days", name="third")
    hits = [(one, "k", 2), (third, "k", 2)]
    taken = await asyncio.gather(*(aio.hit_all(hits) for _ in range(9)))
    assert sum(bool(decision) for decision in taken) == 5
    assert (await third.peek("k")).remaining == 4
    assert await aio.hit_all([(third, "k", 2), (other, "k", 2)])
    assert (await aio.hit_all([(third, "k", 2), (other, "k", 4)])).violated == ("other",)
    assert (await third.peek("k")).remaining == 2


def test_malformed_hits_are_refused() -> None:
    limiter = hotcount.Limiter("memory://", FIVE)
    wrong: list[tuple[Any, str | None]] = [
        *((hits, None) for hits in ([limiter], [(limiter,)], [(limiter, "k", 1, 1)], 5)),
        *((hits, None) for hits in ([("k", limiter)], [(limiter, "k", 1, None, None)])),
        ([(aio.Limiter("memory://", FIVE), "k")], None),
        (None, "hits must be an iterable of tuples, not NoneType"),
        ([(limiter, 5)], r"hits\[0\]: key must be str, bytes or a tuple of them, not int"),
        *(
            ([(limiter, "k", cost)], rf"hits\[0\]: cost must be int, not {type(cost).__name__}")
            for cost in ("1", 1.5, True)
        ),
    ]
    for hits, said in wrong:
        with pytest.raises(TypeError, match=said):
            hit_all(hits)
    bad: list[Any] = [
        [],
        [(limiter, "k", 0)],
        [(limiter, "")],
        [(limiter, str(i)) for i in range(101)],
    ]
    for hits in bad:
        with pytest.raises(hotcount.ConfigError):
            hit_all(hits)
    assert limiter.peek("k").remaining == 5


@pytest.mark.parametrize("key", ["k", ("a", "b")])
def test_hits_of_one_key_are_added_up(counter_store: Store, database: Database, key: Any) -> None:
    for store in (counter_store, database):
        limiter = hotcount.Limiter(store, FIVE, algorithm="sliding_log")
        limiter.create_table()
        same = key.encode() if isinstance(key, str) else key
        refused = hit_all([(limiter, key, 3), (limiter, same, 3)])
        assert (refused.reason, refused.retry_after) == ("cost_above_limit", None)
        assert refused.remaining == 5
        assert hit_all([(limiter, key, 3), (limiter, same, 2)]).remaining == 0
        limiter.reset(key)
