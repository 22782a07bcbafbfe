"""What a Counter promises on every store."""

import os
import time
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import hotcount
import pytest
from hotcount import Counter

from tests.support.errors import kinds
from tests.support.stores import Store
from tests.support.together import THREADS, together

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def test_add_returns_the_value_after_this_very_add(counter: Counter) -> None:
    assert [counter.add("k"), counter.add("k", 4), counter.add("k", n=-2)] == [1, 5, 3]
    assert counter.get("k") == 3


def test_every_thread_gets_a_value_of_its_own_and_none_is_lost(counter: Counter) -> None:
    each = 100
    answers = together(lambda _: [counter.add("hot") for _ in range(each)])
    assert sorted(chain.from_iterable(answers)) == list(range(1, THREADS * each + 1))
    # A thread's own adds are in the order in which it made them.
    assert all(answer == sorted(answer) for answer in answers)
    assert counter.get("hot") == THREADS * each


def test_adds_of_both_signs_from_many_threads_sum_exactly(counter: Counter) -> None:
    together(lambda index: [counter.add("k", index - 7) for _ in range(50)])
    assert counter.get("k") == 50 * sum(index - 7 for index in range(THREADS))


def test_sums_beyond_a_double_stay_exact(counter: Counter) -> None:
    counter.add("k", 2**53 + 1)
    assert counter.add("k") == 2**53 + 2
    assert counter.try_add("k", 1, max=INT64_MAX).value == 2**53 + 3
    counter.add("least", INT64_MIN)
    assert counter.add("least", INT64_MAX) == -1


def test_try_add_refuses_outside_of_inclusive_bounds(counter: Counter) -> None:
    assert counter.try_add("k", 3, max=3) == hotcount.TryAdd(True, 3)
    assert counter.try_add("k", 1, max=3) == hotcount.TryAdd(False, 3)
    assert counter.try_add("k", -3, min=0) == hotcount.TryAdd(True, 0)
    assert counter.try_add("k", -1, min=0) == hotcount.TryAdd(False, 0)
    assert counter.get("k") == 0
    assert counter.try_add("j", max=1)
    assert not counter.try_add("j", max=1)


def test_an_inventory_is_never_oversold(counter: Counter) -> None:
    counter.add("stock", 100)
    sold = together(lambda _: sum(counter.try_add("stock", -1, min=0).applied for _ in range(10)))
    assert sum(sold) == 100
    assert counter.get("stock") == 0


def test_the_bounds_of_64_bits_are_bounds_to_try_add_too(counter: Counter) -> None:
    counter.add("k", INT64_MAX)
    assert counter.try_add("k", 1) == hotcount.TryAdd(False, INT64_MAX)
    assert counter.try_add("k", INT64_MIN) == hotcount.TryAdd(True, -1)
    assert counter.try_add("k", INT64_MIN) == hotcount.TryAdd(False, -1)


def test_add_many_returns_the_value_after_each_add_in_order(counter: Counter) -> None:
    assert counter.add_many(["a", "b", "a", b"a"], [1, 10, 2, 3]) == [1, 10, 3, 6]
    assert counter.add_many(["a", "b"]) == [7, 11]
    assert counter.add_many(("a", "b"), -1) == [6, 10]
    assert counter.add_many([]) == []


def test_batches_from_many_threads_lose_nothing(counter: Counter) -> None:
    keys = [f"k{number % 10}" for number in range(100)]
    together(lambda _: counter.add_many(keys))
    assert counter.get_many([f"k{number}" for number in range(10)]) == [THREADS * 10] * 10


def test_one_bad_element_is_reported_and_the_others_are_done(counter: Counter) -> None:
    counter.add("full", INT64_MAX)
    keys: list[str] = ["a", "", "full", "b", "x" * 1001, "\ud800", "c"]
    with pytest.raises(hotcount.BatchError) as caught:
        counter.add_many(keys, [1, 1, 1, 1, 1, 1, 2**63])
    assert kinds(caught.value.errors) == {
        1: "ConfigError",
        2: "CounterOverflowError",
        4: "ConfigError",
        5: "ConfigError",
        6: "CounterOverflowError",
    }
    assert caught.value.result == [1, 0, 0, 1, 0, 0, 0]
    assert caught.value.result.errors == caught.value.errors
    assert counter.get_many(["a", "b", "c", "full"]) == [1, 1, 0, INT64_MAX]


def test_errors_return_gives_the_batch_without_raising(counter: Counter) -> None:
    result = counter.add_many(["a", ""], errors="return")
    assert result == [1, 0]
    assert isinstance(result.errors[1], hotcount.ConfigError)
    assert counter.get_many(["a", ""], errors="return").errors.keys() == {1}


def test_an_unknown_way_with_errors_is_named(counter: Counter) -> None:
    with pytest.raises(hotcount.ConfigError, match=r"'ignore'.*'raise', 'return'"):
        counter.add_many(["a"], errors="ignore")  # type: ignore[call-overload]


def test_an_absent_key_reads_as_zero_and_is_not_made(counter: Counter) -> None:
    assert counter.get("never") == 0
    assert counter.get_many(["never", "ever"]) == [0, 0]
    assert counter.reset("never") == 0
    assert counter.ttl("never") is None


def test_reset_returns_the_last_value_and_the_next_add_starts_anew(counter: Counter) -> None:
    counter.add("k", 5)
    assert counter.reset("k") == 5
    assert counter.get("k") == 0
    assert counter.add("k") == 1


def test_no_add_falls_between_the_reading_and_the_removing_of_reset(counter: Counter) -> None:
    def work(index: int) -> int:
        if index % 4 == 0:
            return sum(counter.reset("k") for _ in range(50))
        for _ in range(50):
            counter.add("k")
        return 0

    taken = sum(together(work))
    assert taken + counter.get("k") == 50 * (THREADS - THREADS // 4)


def test_with_a_ttl_no_key_is_ever_without_an_expiry(counter_store: Store) -> None:
    counter = Counter(counter_store, ttl=60)
    counter.add("added")
    counter.try_add("tried", max=5)
    counter.add_many(["one", "of many"])
    for key in ("added", "tried", "one", "of many"):
        assert 55 < (counter.ttl(key) or 0) <= 60


def test_later_adds_do_not_extend_a_ttl(counter_store: Store) -> None:
    counter = Counter(counter_store, ttl=0.3)
    counter.add("k")
    time.sleep(0.15)
    assert counter.add("k") == 2
    assert 0 < (counter.ttl("k") or 0) < 0.16


def test_an_expired_key_is_absent_and_starts_anew_with_a_full_life(counter_store: Store) -> None:
    counter = Counter(counter_store, ttl=timedelta(milliseconds=50))
    counter.add("k", 7)
    time.sleep(0.1)
    assert counter.get("k") == 0
    assert counter.ttl("k") is None
    assert counter.add("k") == 1
    assert counter.ttl("k") is not None


def test_without_a_ttl_a_key_never_expires(counter: Counter) -> None:
    counter.add("k")
    assert counter.ttl("k") is None


def test_a_ttl_that_is_no_time_is_refused_by_name(counter_store: Store) -> None:
    no_time: list[Any] = [0, 0.0, -1, float("nan"), float("inf"), 1e30, timedelta(0)]
    for bad in no_time:
        with pytest.raises(hotcount.ConfigError, match="ttl"):
            Counter(counter_store, ttl=bad)
    wrong: list[Any] = ["1", True, Decimal(1), b"1"]
    for bad in wrong:
        with pytest.raises(TypeError, match=f"ttl.*{type(bad).__name__}"):
            Counter(counter_store, ttl=bad)


AWKWARD = [
    b"\0", b"a\0b", b"\r\n", b"$5\r\nhello\r\n", b"{}", b"{a}", b"a:b", b":", b"%", b"*", b" ",
    b"\xff\xfe", b"\xc3\x28", "\u00e9".encode(), "e\u0301".encode(), "\U0001f5f3".encode(),
    b"'; DROP TABLE x; --", b"x" * 1000,
]  # fmt: skip


def test_awkward_keys_are_counted_apart(counter: Counter) -> None:
    amounts = list(range(1, len(AWKWARD) + 1))
    assert counter.add_many(AWKWARD, amounts) == amounts
    assert counter.get_many(AWKWARD) == amounts
    for key, amount in zip(AWKWARD, amounts):
        assert counter.reset(key) == amount


def test_prefixes_keep_counters_apart(counter_store: Store) -> None:
    counters = [Counter(counter_store, prefix=prefix) for prefix in ("a", "b", b"c")]
    for number, counter in enumerate(counters, 1):
        counter.add("k", number)
    assert [counter.get("k") for counter in counters] == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"ttl": 60}])
def test_an_empty_prefix_means_the_key_itself(counter_store: Store, options: Any) -> None:
    bare = Counter(counter_store, prefix="", **options)
    assert bare.add("likes:k", 3) == 3
    assert bare.add_many(["likes:k", "likes:k"]) == [4, 5]
    assert bare.get_many(["likes:k", ":likes:k"]) == [5, 0]
    # "likes:k" is also what a counter with the prefix "likes" calls its key "k".
    assert Counter(counter_store, prefix="likes").get("k") == 5
    if isinstance(counter_store, hotcount.Redis):
        key = os.fsdecode(counter_store.prefix) + "likes:k"
        assert counter_store.execute("GET", key) == b"5"


def test_every_call_takes_a_timeout(counter: Counter) -> None:
    counter.add("k", timeout=5)
    counter.try_add("k", timeout=5.0)
    counter.add_many(["k"], timeout=timedelta(seconds=5))
    counter.get("k", timeout=5)
    counter.get_many(["k"], timeout=5)
    counter.ttl("k", timeout=5)
    assert counter.reset("k", timeout=None) == 3


def test_a_closed_store_ends_its_counters(counter_store: Store) -> None:
    counter = Counter(counter_store)
    counter_store.close()
    for call in (
        lambda: counter.add("k"),
        lambda: counter.get_many(["k"]),
        lambda: counter_store.ping(),
        lambda: Counter(counter_store),
    ):
        with pytest.raises(hotcount.ClosedError):
            call()


def test_ping_and_stats_answer(counter_store: Store) -> None:
    assert counter_store.ping() is True
    Counter(counter_store).add("k")
    stats = counter_store.stats()
    stats.pop("latency_s_buckets", None)  # Of a Redis: tests/integration/package/test_metrics.py
    assert all(isinstance(number, (int, float)) for number in stats.values())
