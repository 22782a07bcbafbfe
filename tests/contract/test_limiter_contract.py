"""What a Limiter promises, with every algorithm, on every store."""

import math
import pickle
import time
from array import array
from collections.abc import Callable
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import Limiter, Redis

from tests.support.errors import kinds
from tests.support.limiters import CHARGING, OPTIONS, SAFE, occupy, periods
from tests.support.servers import keys_of
from tests.support.stores import AnyStore, Store
from tests.support.together import together

# A window that no test run crosses the edge of, and a bucket that refills too slowly to see.
TEN = "10/300 days"


def only_key(redis: hotcount.Redis) -> bytes:
    (key,) = keys_of(redis)
    return key


def test_exactly_the_limit_is_admitted(limiter: Limiter) -> None:
    decisions = [limiter.hit("k") for _ in range(15)]
    assert [decision.allowed for decision in decisions] == [True] * 10 + [False] * 5
    assert [decision.remaining for decision in decisions] == [*range(9, -1, -1), 0, 0, 0, 0, 0]
    assert {decision.limit for decision in decisions} == {10}
    assert [decision.reason for decision in decisions] == ["allowed"] * 10 + ["limited"] * 5


def test_exactly_the_limit_is_admitted_to_many_threads(limiter: Limiter) -> None:
    admitted = together(lambda _: sum(limiter.hit("hot").allowed for _ in range(5)))
    assert sum(admitted) == 10


def test_a_decision_is_true_or_false_and_says_when_to_come_back(limiter: Limiter) -> None:
    decision = limiter.hit("k")
    assert decision
    assert decision.retry_after == 0
    assert 0 < decision.reset_after <= periods(limiter.algorithm) * 300 * 86400 + 0.001
    limiter.hit("j", 10)
    decision = limiter.hit("j")
    assert not decision
    most = periods(limiter.algorithm) * 300 * 86400 + 0.001
    assert 0 < (decision.retry_after or 0) <= decision.reset_after <= most


def test_denied_hits_and_costs_above_the_limit_cost_nothing(limiter: Limiter) -> None:
    limiter.hit("k", 7)
    for _ in range(20):
        assert not limiter.hit("k", 4)
    assert limiter.hit("k", 3)
    for cost in (11, 2**53 + 1, 2**63 - 1):
        decision = limiter.hit("j", cost)
        assert not decision
        assert decision.retry_after is None
        assert decision.reason == "cost_above_limit"
    assert limiter.hit("j", 10).remaining == 0


@pytest.mark.parametrize("cost", [0, -1, -(2**63), 2**63])
def test_a_cost_that_is_none_is_refused(limiter: Limiter, cost: int) -> None:
    with pytest.raises(hotcount.ConfigError, match="cost"):
        limiter.hit("k", cost)


@pytest.mark.parametrize("costs", [2**63, [2**63], (2**70,), array("Q", [2**63])])
def test_a_cost_beyond_64_bits_is_refused_in_a_batch_as_alone(limiter: Limiter, costs: Any) -> None:
    with pytest.raises((hotcount.ConfigError, hotcount.BatchError)) as caught:
        limiter.hit_many(["k"], costs)
    error = caught.value
    if isinstance(error, hotcount.BatchError):
        error = error.errors[0]
    assert type(error) is hotcount.ConfigError
    assert "does not fit in signed 64 bits" in str(error)


def test_keys_of_equal_text_are_different_keys(limiter: Limiter) -> None:
    keys: list[Any] = [
        ("a:b", "c"), ("a", "b:c"), ("a", "b", "c"), ("a%3Ab", "c"), ("a:b:c",), ("", "a:b", "c"),
        "a:b:c", "a:b%3Ac", ":a:b:c", "%:a:b:c", "%25:a:b:c", "%2525:a:b:c", ("25", "a"), "%",
    ]  # fmt: skip
    for key in keys:
        assert limiter.hit(key, 10), key
    for key in keys:
        assert not limiter.hit(key), key
    assert list(limiter.hit_many(keys).allowed) == [False] * len(keys)


@pytest.mark.parametrize("key", ["%" * 1000, "%:" + "x" * 998])
def test_what_escaping_adds_is_not_counted(limiter: Limiter, key: str) -> None:
    assert limiter.hit(key, 10)
    with pytest.raises(hotcount.ConfigError, match="1001 bytes"):
        limiter.hit(key + "x")


def test_a_str_and_its_bytes_are_one_key(limiter: Limiter) -> None:
    limiter.hit("é", 4)
    limiter.hit(("é", "b"), 4)
    assert limiter.hit("é".encode(), 4).remaining == 2
    assert limiter.hit(("é".encode(), b"b"), 4).remaining == 2


@pytest.mark.parametrize("key", [1, None, 1.5, bytearray(b"a"), ["a"], ("a", 1)])
def test_a_key_of_another_type_is_a_type_error(limiter: Limiter, key: Any) -> None:
    with pytest.raises(TypeError, match="key must be"):
        limiter.hit(key)
    with pytest.raises(TypeError, match=r"keys\[1\] must be"):
        limiter.hit_many(["a", key])
    assert limiter.peek("a").remaining == 10


@pytest.mark.parametrize("key", ["", b"", "x" * 1001, ("x" * 600, "y" * 600), ()])
def test_a_key_of_a_wrong_length_is_a_config_error(limiter: Limiter, key: Any) -> None:
    with pytest.raises(hotcount.ConfigError):
        limiter.hit(key)


def test_a_passed_window_counts_no_more(limit_store: AnyStore, options: dict[str, Any]) -> None:
    limiter = Limiter(limit_store, "3/300 ms", **options)
    while not limiter.hit("k", 3):
        time.sleep(0.01)  # The clock's window may have ended between the two.
    decision = limiter.hit("k", 3)
    if not decision:
        wait = decision.retry_after or 0
        # Where Redis's own expiry is the window, it ends with the millisecond.
        assert 0 < wait <= periods(limiter.algorithm) * 0.3 + 0.001
        time.sleep(wait)
        assert limiter.hit("k", 3)


def test_a_bucket_never_admits_more_than_its_burst_and_its_rate(limit_store: AnyStore) -> None:
    limiter = Limiter(limit_store, "200/s burst 20")
    start = time.monotonic()
    admitted = sum(
        together(lambda _: sum(limiter.hit("hot").allowed for _ in range(25)), threads=16)
    )
    assert 20 <= admitted <= 20 + 200 * (time.monotonic() - start)


@pytest.mark.parametrize("algorithm", CHARGING)
def test_charging_denied_hits_makes_waits_longer(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = Limiter(limit_store, TEN, algorithm=algorithm, charge_denied=True)
    limiter.hit("k", 10)
    waits = [limiter.hit("k").retry_after or 0 for _ in range(30)]
    if algorithm != "fixed_window":  # Whose edge comes when it comes.
        assert waits[0] < waits[4] < waits[9]
    # Twice the limit is the most.
    assert waits[29] <= waits[10]
    assert limiter.hit("k").remaining == 0


def test_looking_takes_nothing(limiter: Limiter) -> None:
    assert limiter.peek("k").remaining == 10
    assert limiter.peek("k").reset_after == 0
    limiter.hit("k", 4)
    for _ in range(3):
        assert limiter.peek("k").remaining == 6
        assert limiter.test("k", 6)
        assert not limiter.test("k", 7)
    assert limiter.test("k", 11).retry_after is None
    assert limiter.hit("k", 6)
    assert not limiter.peek("k")


def test_a_reset_key_is_as_if_never_hit(limiter: Limiter) -> None:
    limiter.hit("k", 10)
    limiter.reset("k")
    limiter.reset("absent")
    assert limiter.hit("k", 10)


def test_a_batch_decides_equal_keys_one_after_another(limiter: Limiter) -> None:
    decisions = limiter.hit_many(["a", "b", "a", b"a", ("c", "d")], [6, 6, 6, 4, 10])
    assert list(decisions.allowed) == [True, True, False, True, True]
    assert list(decisions.remaining) == [4, 4, 4, 0, 0]
    assert decisions[2].reason == "limited"
    assert decisions.errors == {}
    assert limiter.hit_many([]) == []
    keys = [f"k{number % 50}" for number in range(700)]
    decisions = limiter.hit_many(keys)
    assert list(decisions.allowed) == [number < 500 for number in range(700)]


def test_a_batch_has_columns_for_numpy(limiter: Limiter) -> None:
    decisions = limiter.hit_many(["a", "a", "b"], [10, 1, 11])
    assert np.asarray(decisions.allowed).tolist() == [True, False, False]
    assert np.asarray(decisions.remaining).dtype == np.int64
    retry = np.asarray(decisions.retry_after)
    assert retry[0] == 0
    assert retry[1] > 0
    assert np.isnan(retry[2])
    again = pickle.loads(pickle.dumps(decisions))
    assert again == decisions
    assert np.array_equal(np.asarray(again.retry_after), retry, equal_nan=True)


def test_one_bad_element_hurts_no_other(counter_store: Store, options: dict[str, Any]) -> None:
    limiter = Limiter(counter_store, TEN, **options)
    occupy(counter_store, options, "taken")
    keys: list[Any] = ["a", "taken", "", "a", "b"]
    with pytest.raises(hotcount.BatchError) as caught:
        limiter.hit_many(keys, [1, 1, 1, 1, 0])
    assert kinds(caught.value.errors) == {1: "WrongTypeError", 2: "ConfigError", 4: "ConfigError"}
    assert list(caught.value.result.remaining) == [9, 0, 0, 8, 0]
    assert limiter.hit_many(keys[:2], errors="return").errors.keys() == {1}


def test_a_key_of_something_else_is_wrong(counter_store: Store, options: dict[str, Any]) -> None:
    limiter = Limiter(counter_store, TEN, **options)
    occupy(counter_store, options, "k")
    for call in (limiter.hit, limiter.test, limiter.peek):
        with pytest.raises(hotcount.WrongTypeError, match="limit:default"):
            call("k")
    limiter.reset("k")
    assert limiter.hit("k")


def test_state_is_shared_by_name_and_rate(limit_store: AnyStore, options: dict[str, Any]) -> None:
    Limiter(limit_store, "10/day", **options).hit("k", 10)
    assert not Limiter(limit_store, " 10 / 24 hours", **options).hit("k")
    assert Limiter(limit_store, "10/day", name="other", **options).hit("k")
    assert Limiter(limit_store, "10/hour", **options).hit("k")
    for other in OPTIONS:
        if other != options:
            assert Limiter(limit_store, "10/day", **other).hit("k")


def test_every_key_has_an_expiry(redis: hotcount.Redis, options: dict[str, Any]) -> None:
    limiter = Limiter(redis, "10/minute", **options)
    most = periods(limiter.algorithm) * 60_000
    for cost in (3, 7, 1):  # Admitted, admitted, denied.
        limiter.hit("k", cost)
        assert 0 < redis.execute("PTTL", only_key(redis)) <= most


@pytest.mark.parametrize("cost", [1, 10])
def test_a_key_without_expiry_is_healed(redis: Redis, options: dict[str, Any], cost: int) -> None:
    limiter = Limiter(redis, "10/minute", **options)
    limiter.hit("k", 5)
    assert redis.execute("PERSIST", only_key(redis)) == 1
    limiter.hit("k", cost)
    assert 0 < redis.execute("PTTL", only_key(redis)) <= periods(limiter.algorithm) * 60_000


def test_a_forgotten_script_is_sent_again(redis: hotcount.Redis, options: dict[str, Any]) -> None:
    limiter = Limiter(redis, TEN, **options)
    limiter.hit("k")
    redis.execute("SCRIPT", "FLUSH")
    assert limiter.hit("k").remaining == 8
    redis.execute("SCRIPT", "FLUSH")
    assert list(limiter.hit_many(["k", "k"]).remaining) == [7, 6]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/minute", hotcount.Rate(100, 60, 100)),
        ("5/s", hotcount.Rate(5, 1, 5)),
        ("10/2 hours", hotcount.Rate(10, 7200, 10)),
        ("100/min burst 20", hotcount.Rate(100, 60, 20)),
        ("  1 / 7DAYS  ", hotcount.Rate(1, 7 * 86400, 1)),
        ("10 per minute", hotcount.Rate(10, 60, 10)),
        ("10 per 2 hours burst 3", hotcount.Rate(10, 7200, 3)),
    ],
)
def test_rates_are_read_from_text(text: str, rate: hotcount.Rate) -> None:
    assert hotcount.Rate.parse(text) == rate
    assert hotcount.Rate.parse(str(rate)) == rate
    assert hotcount.Rate.parse_many(f"{text}; 7/s") == (rate, hotcount.Rate(7, 1, 7))


BAD_RATES = [
    "", " ", "/", "5", "5/", "/s", "/minute", "0/minute", "-1/s", "+1/s", "5/fortnight", "5 s",
    "5/0 s", "5/0 seconds", "5/-1 s", "1.5/s", "5/1.5 s", "nan/s", "inf/s", "1e3/s", "\u0665/s",
    "5 per", "5 each s", "5/minute/hour", "5/s 5/s", "5/s\0", "5\0/s", "1000000000001/s",
    "9223372036854775807/s", "9223372036854775808/s", "99999999999999999999/s", "5/367 days",
    "5/400 days", "5/99999999999999999999 s", "5/9223372036854775807 days", "5/s burst",
    "5/s burst 0", "5/s burst -1", "5/s burst 2 x", "5/s" + "x" * 2**20,
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_RATES, ids=lambda text: repr(text[:20]))
def test_an_argument_that_is_no_rate_is_named(counter_store: Store, text: str) -> None:
    with pytest.raises(hotcount.ConfigError) as caught:
        hotcount.Rate.parse(text)
    shown = repr(text[:50].encode())[2:-1]  # Bytes that are no letters are shown by their number.
    assert shown in str(caught.value).lower()
    with pytest.raises(hotcount.ConfigError):
        hotcount.Rate.parse_many(f"5/s;{text}")
    for algorithm in SAFE:
        options: dict[str, Any] = {"algorithm": algorithm}
        with pytest.raises(hotcount.ConfigError) as caught:
            Limiter(counter_store, text, **options)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("period", [0, -1, float("nan"), float("inf"), 1e-9, 367 * 86400])
def test_a_period_out_of_range_is_refused(period: float) -> None:
    with pytest.raises(hotcount.ConfigError, match="period"):
        Limiter("memory://", hotcount.Rate(5, period, 5))


def test_a_rate_that_integers_cannot_keep_exactly_is_refused() -> None:
    with pytest.raises(hotcount.ConfigError, match="999999999989/day"):
        Limiter("memory://", "999999999989/day")
    assert Limiter("memory://", "1000000000/day").hit("k")


def test_options_are_checked_and_named() -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"algorithm": "leaky"}, r"leaky.*fixed_window.*gcra"),
        ({"align": "first"}, "align"),
        ({"align": "middle"}, "align"),
        ({"rate": "5/s burst 9", "algorithm": "fixed_window"}, "burst"),
        *(({"name": name}, "name") for name in ("", "x" * 101, 'a"b', "é", "a\n")),
        *(
            ({"algorithm": gone}, rf"'{gone}'.*hotcount-load.*ways\.py")
            for gone in ("list", "per_second_key", "racy_incr", "incr_expire", "racy_list")
        ),
    ]
    for options, says in bad:
        with pytest.raises(hotcount.ConfigError, match=says):
            Limiter("memory://", **{"rate": "5/s", **options})
    with pytest.raises(hotcount.ConfigError, match=r"who.*hotcount-load.*ways\.py"):
        Limiter("memory://", "5/s").hit("k", who="me")  # type: ignore[call-arg]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1, -0.5])
def test_seconds_that_are_none_are_refused_by_every_call(seconds: float) -> None:
    limiter = hotcount.Limiter("memory://", "5/second")
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("seconds", lambda: limiter.block("k", seconds)),
        ("lease", lambda: limiter.reserve("k", 1, lease=seconds)),
        ("lease", lambda: hotcount.ConcurrencyLimit("memory://", 1, lease=seconds)),
        ("timeout", lambda: limiter.acquire("k", timeout=seconds)),
        ("timeout", lambda: limiter.hit("k", timeout=seconds)),
        ("timeout", lambda: hotcount.ConcurrencyLimit("memory://", 1).acquire("k", seconds)),
    ]
    for name, call in calls:
        with pytest.raises(ValueError, match=f"^{name} is {seconds}") as caught:
            call()
        if not math.isfinite(seconds):
            assert "it takes a finite number of seconds" in str(caught.value)


def test_headers_tell_a_client_in_whole_seconds(limit_store: AnyStore) -> None:
    limiter = Limiter(limit_store, "10/100 days", name="api")
    limiter.hit("k", 9)
    allowed = limiter.hit("k")
    assert allowed.headers() == {
        "RateLimit-Policy": '"api";q=10;w=8640000',
        "RateLimit": '"api";r=0;t=8640000',
    }
    legacy = limiter.hit("k").headers("legacy")
    assert legacy == {
        "X-RateLimit-Limit": "10",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "8640000",
        "Retry-After": "864000",
    }
    assert "Retry-After" not in limiter.hit("k", 11).headers()
    with pytest.raises(hotcount.ConfigError, match="style"):
        limiter.hit("k").headers("other")  # type: ignore[arg-type]


def test_values_survive_pickle(limiter: Limiter) -> None:
    for value in (limiter.hit("k"), limiter.hit("k", 11), hotcount.Rate.parse("5/s burst 9")):
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_limiter_closes_and_refuses_to_pickle(limit_store: AnyStore) -> None:
    with Limiter(limit_store, TEN) as limiter:
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(limiter)
        limiter.hit("k")
    assert limiter.closed
    with pytest.raises(hotcount.ClosedError):
        limiter.hit("k")


def test_the_declared_algorithms_are_those_that_the_core_knows() -> None:
    with pytest.raises(hotcount.ConfigError) as caught:
        Limiter("memory://", "5/s", algorithm="leaky")  # type: ignore[arg-type]
    known = str(caught.value).split("it takes ")[1].split(", ")
    assert sorted(known) == sorted(SAFE)
