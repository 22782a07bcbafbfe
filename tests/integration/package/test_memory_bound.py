"""A memory store at max_keys: nothing live is forgotten in silence, whatever comes."""

from __future__ import annotations

import time
import warnings

import hotcount
import pytest

from tests.support.limiters import SAFE


def limiter(store: hotcount.Memory, algorithm: str = "gcra") -> hotcount.Limiter:
    return hotcount.Limiter(store, "2/hour", algorithm=algorithm)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", SAFE)
@pytest.mark.parametrize("when_full", ["admit", "refuse"])
def test_a_denied_key_stays_denied_whoever_floods_the_store(algorithm: str, when_full: str) -> None:
    store = hotcount.Memory(max_keys=100, when_full=when_full)  # type: ignore[arg-type]
    limited = limiter(store, algorithm)
    limited.hit("attacker", 2)
    assert not limited.hit("attacker")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(1100):
            limited.hit_many([f"k{number}"], errors="return")
    assert not limited.hit("attacker")
    assert store.stats()["keys"] == 100


@pytest.mark.parametrize("algorithm", SAFE)
def test_admit_lets_new_keys_in_untracked_counts_them_and_warns_once(algorithm: str) -> None:
    store = hotcount.Memory(max_keys=2)
    limited = limiter(store, algorithm)
    assert list(limited.hit_many(["a", "b"]).allowed) == [True, True]
    with pytest.warns(RuntimeWarning, match="memory://.*max_keys"):
        first = limited.hit("c")
    decisions = [first, *(limited.hit("c", 2) for _ in range(3))]
    assert [decision.allowed for decision in decisions] == [True] * 4
    assert [decision.reason for decision in decisions] == ["untracked"] * 4
    assert [decision.remaining for decision in decisions] == [1, 0, 0, 0]
    assert limited.hit("c", 3).reason == "cost_above_limit"
    batch = limited.hit_many(["a", "d", "a"])
    assert [decision.reason for decision in batch] == ["allowed", "untracked", "limited"]
    stats = store.stats()
    assert (stats["keys"], stats["untracked"], stats["refused"]) == (2, 5, 0)


@pytest.mark.parametrize("algorithm", SAFE)
def test_refuse_is_a_capacity_error_for_new_keys_only(algorithm: str) -> None:
    store = hotcount.Memory(max_keys=2, when_full="refuse")
    limited = limiter(store, algorithm)
    limited.hit_many(["a", "b"])
    with pytest.raises(hotcount.CapacityError, match="max_keys=2"):
        limited.hit("c")
    assert limited.hit("a")
    assert limited.peek("c").remaining == 2, "looking needs no room"
    stats = store.stats()
    assert (stats["keys"], stats["untracked"], stats["refused"]) == (2, 0, 1)


def test_limiter_states_that_expired_are_evicted_first() -> None:
    store = hotcount.Memory(max_keys=10)
    short = hotcount.Limiter(store, "1000/second")
    short.hit_many([f"k{number}" for number in range(10)])
    time.sleep(0.05)  # A token is back after 1 ms: each key is as if never hit.
    lasting = limiter(store)
    decisions = lasting.hit_many([f"k{number}" for number in range(10)])
    assert [decision.reason for decision in decisions] == ["allowed"] * 10
    stats = store.stats()
    assert (stats["swept"], stats["untracked"]) == (10, 0)


def test_a_reset_makes_room() -> None:
    store = hotcount.Memory(max_keys=1, when_full="refuse")
    limited = limiter(store)
    limited.hit("a")
    limited.reset("a")
    assert limited.hit("b").reason == "allowed"


def test_counters_and_sets_are_refused_whatever_when_full_says() -> None:
    store = hotcount.Memory(max_keys=1)
    counter = hotcount.Counter(store)
    counter.add("a")
    with pytest.raises(hotcount.CapacityError):
        counter.add("b")
    with pytest.raises(hotcount.CapacityError):
        hotcount.LiveSets(store).create("k", 60, {"a": 1})
    assert hotcount.LiveSets(store).upsert("k", "a", 1) is hotcount.Upsert.ABSENT


def test_the_policy_is_an_option_of_the_url_too() -> None:
    for store in (
        hotcount.connect("memory://?max_keys=1&when_full=refuse"),
        hotcount.connect("memory://", max_keys=1, when_full="refuse"),
    ):
        assert "when_full='refuse'" in repr(store)
        limited = hotcount.Limiter(store, "1/hour")
        limited.hit("a")
        with pytest.raises(hotcount.CapacityError):
            limited.hit("b")
    for bad in ("drop", ""):
        with pytest.raises(hotcount.ConfigError, match=r"when_full.*'admit', 'refuse'"):
            hotcount.Memory(when_full=bad)  # type: ignore[arg-type]
        with pytest.raises(hotcount.ConfigError, match="when_full"):
            hotcount.connect(f"memory://?when_full={bad}")
    with pytest.raises(TypeError, match="when_full"):
        hotcount.Memory(when_full=True)  # type: ignore[arg-type]
