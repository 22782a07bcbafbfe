"""What LiveSets promise on every store, with every method."""

import pickle
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import hotcount
import pytest
from hotcount import LiveSets, Upsert

from tests.support.errors import kinds
from tests.support.stores import Store
from tests.support.together import together

METHODS = ["script", "ttl_gate"]


def leak(redis: hotcount.Redis, *keys: str) -> None:
    """Makes sets without a TTL."""
    for key in keys:
        redis.execute("ZADD", key, 1, "a")


def with_method(store: Store, method: Any) -> LiveSets:
    return LiveSets(store, method=method)


def leaks(sets: LiveSets) -> list[str | bytes]:
    return sorted(sets.sweep("*", dry_run=True).keys, key=repr)


@pytest.mark.parametrize("method", METHODS)
def test_an_upsert_applies_where_the_set_lives(counter_store: Store, method: str) -> None:
    sets = with_method(counter_store, method)
    sets.create("k", 60, {"a": 1})
    assert sets.upsert("k", "b", 2.5) is Upsert.APPLIED
    assert sets.upsert("k", "a", 3) is Upsert.APPLIED
    assert sets.top("k", 10) == [("a", 3.0), ("b", 2.5)]


@pytest.mark.parametrize("method", METHODS)
def test_an_absent_key_is_never_made(counter_store: Store, method: str) -> None:
    sets = with_method(counter_store, method)
    assert sets.upsert("never", "a", 1) is Upsert.ABSENT
    assert sets.upsert_many([("never", "a", 1), ("ever", "b", 2)]) == [Upsert.ABSENT] * 2
    assert sets.top("never", 1) == []
    assert sets.sweep("*", dry_run=True).scanned == 0


@pytest.mark.parametrize("method", METHODS)
def test_an_expired_set_stays_expired(counter_store: Store, method: str) -> None:
    sets = with_method(counter_store, method)
    sets.create("k", 0.05, {"a": 1})
    time.sleep(0.08)
    assert sets.upsert("k", "b", 2) is Upsert.ABSENT
    assert leaks(sets) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_set_without_a_ttl_is_left_alone(direct: hotcount.Redis, method: str) -> None:
    leak(direct, "leak")
    sets = with_method(direct, method)
    assert sets.upsert("leak", "b", 2) is Upsert.NO_TTL
    assert sets.top("leak", 10) == [("a", 1.0)]
    assert leaks(sets) == ["leak"]


@pytest.mark.parametrize("method", METHODS)
def test_inside_the_gate_nothing_is_added(counter_store: Store, method: Any) -> None:
    sets = LiveSets(counter_store, method=method, gate=timedelta(seconds=30))
    sets.create("short", 29, {"a": 1})
    sets.create("long", 60, {"a": 1})
    assert sets.upsert_many([("short", "b", 2), ("long", "b", 2)]) == [
        Upsert.EXPIRING,
        Upsert.APPLIED,
    ]
    assert sets.top("short", 10) == [("a", 1.0)]


def test_the_gate_is_ten_seconds_for_ttl_gate_and_none_for_script(counter_store: Store) -> None:
    with_method(counter_store, "script").create("k", 9, {"a": 1})
    assert with_method(counter_store, "ttl_gate").upsert("k", "b", 2) is Upsert.EXPIRING
    assert with_method(counter_store, "script").upsert("k", "b", 2) is Upsert.APPLIED


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_type_hurts_only_its_own_element(counter_store: Store, method: Any) -> None:
    hotcount.Counter(counter_store, prefix="p", ttl=60).add("counter")
    sets = LiveSets(counter_store, prefix="p", method=method)
    sets.create("k", 60, {"a": 1})
    rows = [("k", "b", 2), ("counter", "x", 1), ("k", "c", 3), ("counter", "y", 1)]
    with pytest.raises(hotcount.BatchError) as caught:
        sets.upsert_many(rows)
    assert kinds(caught.value.errors) == {1: "WrongTypeError", 3: "WrongTypeError"}
    assert caught.value.result == [Upsert.APPLIED, Upsert.FAILED, Upsert.APPLIED, Upsert.FAILED]
    assert "counter" in str(caught.value.errors[1])
    assert sets.top("k", 1) == [("c", 3.0)]
    assert hotcount.Counter(counter_store, prefix="p").get("counter") == 1


def test_every_other_call_names_a_wrong_type_too(counter_store: Store) -> None:
    counter = hotcount.Counter(counter_store, prefix="p")
    counter.add("k", 7)
    sets = LiveSets(counter_store, prefix="p")
    calls: list[Callable[[], object]] = [
        lambda: sets.upsert("k", "a", 1),
        lambda: sets.upsert("k", "a", 1, version=1),
        lambda: sets.remove("k", "a"),
        lambda: sets.remove("k", "a", version=1),
        lambda: sets.top("k", 1),
        lambda: sets.rank("k", "a"),
        lambda: sets.create("k", 60, {"a": 1}),
    ]
    for call in calls:
        with pytest.raises(hotcount.WrongTypeError, match="k"):
            call()
    assert counter.get("k") == 7


def test_upserts_from_many_threads_all_arrive(sets: LiveSets) -> None:
    sets.create("k", 60, {"first": -1})
    together(lambda index: [sets.upsert("k", f"m{index}-{i}", index * 20 + i) for i in range(20)])
    members = sets.range("k", 0, -1)
    assert [score for _, score in members] == list(range(639, -2, -1))


def test_a_version_never_falls(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 0})
    answers = [sets.upsert("k", "a", score, version=score) for score in (5, 3, 5, 6, -1)]
    assert answers == [Upsert.APPLIED, Upsert.STALE, Upsert.STALE, Upsert.APPLIED, Upsert.STALE]
    assert sets.top("k", 1) == [("a", 6.0)]


def test_versions_are_exact_beyond_a_double_and_below_zero(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 0})
    order = [-(2**63), -(2**53) - 2, -(2**53) - 1, -10, -9, 0, 9, 10, 2**53, 2**53 + 1, 2**63 - 1]
    for higher, lower in zip(order[1:], order):
        sets.create(f"k{higher}", 60, {"first": 0})
        assert sets.upsert(f"k{higher}", "a", 1, version=lower) is Upsert.APPLIED
        assert sets.upsert(f"k{higher}", "a", 2, version=lower) is Upsert.STALE
        assert sets.upsert(f"k{higher}", "a", 3, version=higher) is Upsert.APPLIED
        assert sets.upsert(f"k{higher}", "a", 4, version=lower) is Upsert.STALE


def test_a_removed_member_is_not_revived_by_a_late_upsert(sets: LiveSets) -> None:
    sets.create("k", 60, {"first": 0})
    sets.upsert("k", "a", 1, version=1)
    assert sets.remove("k", "a", version=3) is Upsert.APPLIED
    assert sets.upsert("k", "a", 2, version=2) is Upsert.STALE
    assert sets.remove("k", "a", version=2) is Upsert.STALE
    assert sets.rank("k", "a") is None
    assert sets.upsert("k", "a", 4, version=4) is Upsert.APPLIED
    assert sets.top("k", 1) == [("a", 4.0)]
    sets.create("j", 60, {"first": 0})
    assert sets.remove("j", "a", version=2) is Upsert.APPLIED
    assert sets.upsert("j", "a", 1, version=1) is Upsert.STALE


def test_versions_survive_a_set_that_dies_and_is_made_again(sets: LiveSets) -> None:
    sets.create("k", 0.05, {"first": 0})
    sets.upsert("k", "a", 5, version=5)
    time.sleep(0.08)
    assert sets.upsert("k", "a", 6, version=6) is Upsert.ABSENT
    sets.create("k", 60, {"first": 0})
    assert sets.upsert("k", "a", 4, version=4) is Upsert.STALE
    assert sets.upsert("k", "a", 6, version=6) is Upsert.APPLIED


def test_versions_from_many_threads_end_with_the_highest(sets: LiveSets) -> None:
    sets.create("k", 60, {"first": -1})

    def work(index: int) -> None:
        for i in range(20):
            version = (i * 32 + index) * 7919 % 643
            sets.upsert("k", "a", version, version=version)

    together(work)
    expected = max((number * 7919) % 643 for number in range(640))
    assert sets.top("k", 1) == [("a", float(expected))]


def test_a_batch_takes_versions_in_order(sets: LiveSets) -> None:
    sets.create("k", 60, {"first": 0})
    rows = [("k", "a", 2, 2), ("k", "a", 1, 1), ("k", "b", 7, None), ("k", "a", 3, 3)]
    assert sets.upsert_many(rows) == [Upsert.APPLIED, Upsert.STALE, Upsert.APPLIED, Upsert.APPLIED]
    columns = sets.upsert_many(
        keys=["k", "k"], members=["a", "b"], scores=[9, 9], versions=[3, None]
    )
    assert columns == [Upsert.STALE, Upsert.APPLIED]


def test_ttl_gate_refuses_versions_and_does_nothing(counter_store: Store) -> None:
    sets = with_method(counter_store, "ttl_gate")
    sets.create("k", 60, {"a": 1})
    for call in (
        lambda: sets.upsert("k", "a", 2, version=1),
        lambda: sets.upsert_many([("k", "b", 1), ("k", "a", 2, 1)]),
        lambda: sets.remove("k", "a", version=1),
    ):
        with pytest.raises(hotcount.ConfigError, match="version needs method 'script'"):
            call()
    assert sets.top("k", 10) == [("a", 1.0)]


@pytest.mark.parametrize("store_prefix", ["", "{t}:"])
def test_a_key_that_can_have_no_companion_is_refused_only_with_a_version(
    request: pytest.FixtureRequest, counter_store: Store, store_prefix: str
) -> None:
    if isinstance(counter_store, hotcount.Redis):
        url = request.getfixturevalue("own_redis").url
        store: Store = hotcount.Redis(url, prefix=store_prefix, timeout=20)
    else:
        store = hotcount.Memory(prefix=store_prefix)
    with store:
        sets = LiveSets(store)
        for key in ("plain", "{tag}x", "a}b", "{}"):
            sets.create(key, 60, {"a": 1})
            assert sets.upsert(key, "a", 2) is Upsert.APPLIED
            if store_prefix or key in ("plain", "{tag}x"):
                assert sets.upsert(key, "a", 3, version=1) is Upsert.APPLIED
                assert sets.upsert(key, "a", 3, version=1) is Upsert.STALE
            else:
                with pytest.raises(hotcount.ConfigError, match="hash tag"):
                    sets.upsert(key, "a", 3, version=1)


def test_top_is_highest_first_and_equal_scores_by_member(sets: LiveSets) -> None:
    sets.create("k", 60, [("b", 1), ("a", 1), ("c", 1), ("low", -5.5), ("high", 2)])
    everything = [("high", 2.0), ("c", 1.0), ("b", 1.0), ("a", 1.0), ("low", -5.5)]
    assert sets.top("k", 10) == everything
    assert sets.top("k", 2) == everything[:2]
    assert sets.top("k", 0) == []
    assert [sets.rank("k", member) for member, _ in everything] == [0, 1, 2, 3, 4]
    assert sets.rank("k", "nobody") is None
    assert sets.rank("absent", "a") is None


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, -1), (1, 2), (-2, -1), (0, 100), (-100, 1), (3, 1), (5, 9), (0, -9), (2**62, 2**62)],
)
def test_range_counts_as_redis_does(sets: LiveSets, start: int, stop: int) -> None:
    names = ["e", "d", "c", "b", "a"]
    sets.create("k", 60, [(name, 1) for name in names])
    first = max(start + 5 if start < 0 else start, 0)
    last = stop + 5 if stop < 0 else stop
    assert [name for name, _ in sets.range("k", start, stop)] == names[first : max(last + 1, 0)]


@pytest.mark.parametrize(
    "score", [0.1, 1 / 3, -2.5e-300, 1.7976931348623157e308, 5e-324, 2.0**53, -0.0, 123456789]
)
def test_a_score_comes_back_as_it_was(sets: LiveSets, score: float) -> None:
    sets.create("k", 60, {"first": 1})
    sets.upsert("k", "a", score)
    assert dict(sets.top("k", 2))["a"] == score


def test_members_come_back_as_text_or_bytes(counter_store: Store) -> None:
    as_text = LiveSets(counter_store)
    as_bytes = LiveSets(counter_store, member_type=bytes)
    as_text.create("k", 60, [("größe", 3), (b"\xff\0", 2), (b"plain", 1)])
    assert as_text.top("k", 3) == [("größe", 3.0), (b"\xff\0", 2.0), ("plain", 1.0)]
    assert as_bytes.top("k", 3) == [("größe".encode(), 3.0), (b"\xff\0", 2.0), (b"plain", 1.0)]
    for member, score in as_text.top("k", 3):
        assert as_text.rank("k", member) == 3 - score


def test_remove_says_whether_the_member_was_there(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 1, "b": 2})
    assert sets.remove("k", "a") is Upsert.APPLIED
    assert sets.remove("k", "a") is Upsert.ABSENT
    assert sets.remove("absent", "a") is Upsert.ABSENT
    assert sets.remove("absent", "a", version=1) is Upsert.ABSENT
    assert sets.top("k", 10) == [("b", 2.0)]


def test_create_replaces_all_members_and_the_ttl(sets: LiveSets) -> None:
    sets.create("k", 0.1, {"old": 1})
    sets.create("k", 60, [("new", 2), (b"newer", 3)])
    time.sleep(0.13)
    assert sets.top("k", 10) == [("newer", 3.0), ("new", 2.0)]


def test_create_takes_many_members_and_the_last_of_equal_ones(sets: LiveSets) -> None:
    sets.create("k", 60, [(f"m{i % 9999}", i) for i in range(10_000)])
    assert sets.top("k", 2) == [("m0", 9999.0), ("m9998", 9998.0)]
    assert len(sets.range("k", 0, -1)) == 9999
    for members in ([], [("a", 1)] * 10_001):
        with pytest.raises(hotcount.ConfigError, match="members has"):
            sets.create("k", 60, members)


def test_a_sweep_deletes_sorted_sets_without_a_ttl_and_nothing_else(direct: hotcount.Redis) -> None:
    sets = LiveSets(direct)
    sets.create("feed:good", 60, {"a": 1})
    sets.upsert("feed:good", "b", 1, version=1)
    leak(direct, *(f"feed:{number}" for number in range(600)), "other:leak")
    counter = hotcount.Counter(direct, prefix="feed")
    counter.add("counter")

    report = sets.sweep("feed:*", dry_run=True)
    assert (report.scanned, report.found, report.deleted) == (601, 600, 0)
    report = sets.sweep(match="feed:*")
    assert (report.scanned, report.found, report.deleted) == (601, 600, 600)
    assert sorted(report.keys) == sorted(f"feed:{number}" for number in range(600))
    assert sets.sweep("feed:*") == hotcount.SweepReport(1, 0, 0, ())
    assert sets.top("feed:good", 1) == [("b", 1.0)]
    assert sets.upsert("feed:good", "b", 1, version=1) is Upsert.STALE
    assert counter.get("counter") == 1
    assert leaks(sets) == ["other:leak"]


def test_a_sweep_needs_a_pattern(sets: LiveSets) -> None:
    with pytest.raises(TypeError, match="match"):
        sets.sweep()  # type: ignore[call-arg]
    with pytest.raises(hotcount.ConfigError, match="match"):
        sets.sweep("")


def test_a_sweep_stays_inside_the_prefix(direct: hotcount.Redis) -> None:
    leak(direct, "a*:k", "ab:k")
    assert LiveSets(direct, prefix="a*").sweep("*").keys == ("k",)
    assert LiveSets(direct, prefix="ab").top("k", 1) == [("a", 1.0)]


def test_an_answer_is_true_where_it_is_applied_and_prints_its_name() -> None:
    assert [answer for answer in Upsert if answer] == [Upsert.APPLIED]
    assert str(Upsert.NO_TTL) == f"{Upsert.NO_TTL}" == Upsert.NO_TTL.name == "NO_TTL"
    assert pickle.loads(pickle.dumps(Upsert.STALE)) is Upsert.STALE


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_a_gate_that_is_no_time_is_refused(counter_store: Store, bad: float) -> None:
    with pytest.raises(hotcount.ConfigError, match="gate"):
        LiveSets(counter_store, gate=bad)


@pytest.mark.parametrize("method", ["watch", "exists_then_add", "unguarded_pipeline"])
def test_the_refusal_of_an_unsafe_method_says_where_it_is(
    counter_store: Store, method: str
) -> None:
    with pytest.raises(hotcount.ConfigError, match=rf"{method}.*hotcount-load.*ways\.py"):
        with_method(counter_store, method)


def test_an_unknown_method_is_named(counter_store: Store) -> None:
    with pytest.raises(hotcount.ConfigError, match=r"'lua'.*'script'"):
        with_method(counter_store, "lua")


def test_a_call_on_a_closed_object_says_that_it_is_closed(counter_store: Store) -> None:
    with LiveSets(counter_store) as sets:
        pass
    for call in (lambda: sets.upsert("k", "a", 1), lambda: sets.sweep("*")):
        with pytest.raises(hotcount.ClosedError):
            call()
