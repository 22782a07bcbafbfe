"""What a rebuild of a set promises on every store."""

import time
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import hotcount
import pytest
from hotcount import LiveSets, Upsert

from tests.support.errors import kinds
from tests.support.eventually import eventually
from tests.support.stores import Store
from tests.support.together import together


def members(sets: LiveSets, key: str = "k") -> dict[Any, float]:
    return dict(sets.range(key, 0, -1))


def test_a_rebuild_replaces_the_set_at_once_at_its_end(sets: LiveSets) -> None:
    sets.create("k", 60, {"old": 1, "both": 1})
    with sets.rebuild("k", ttl=60) as build:
        build.add("both", 2)
        build.add_many([("new", 3), ("more", 4, None)])
        assert members(sets) == {"old": 1.0, "both": 1.0}
    assert members(sets) == {"both": 2.0, "new": 3.0, "more": 4.0}
    assert sets.upsert("k", "later", 5) is Upsert.APPLIED


def test_a_rebuild_of_many_chunks_has_every_member(sets: LiveSets) -> None:
    expected = {f"m{n}": float(n) for n in range(1000)}
    with sets.rebuild("k", ttl=60) as build:
        for name, score in expected.items():
            build.add(name, score)
    assert members(sets) == expected


def test_an_empty_rebuild_publishes_a_set_that_lives_and_is_empty(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 1})
    with sets.rebuild("k", ttl=60):
        pass
    assert members(sets) == {}
    assert sets.upsert("k", "b", 2) is Upsert.APPLIED
    assert members(sets) == {"b": 2.0}


def test_a_published_set_expires_with_its_ttl(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=0.2) as build:
        build.add("a", 1)
    eventually(lambda: members(sets) == {}, seconds=5)
    assert sets.upsert("k", "b", 1) is Upsert.ABSENT


def test_a_block_that_raises_leaves_the_set_as_it_was(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 1})

    def fail() -> None:
        with sets.rebuild("k", ttl=60) as build:
            build.add_many((f"m{n}", n) for n in range(400))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert members(sets) == {"a": 1.0}
    with sets.rebuild("k", ttl=60) as again:  # The lease is free at once.
        again.add("b", 2)
    assert members(sets) == {"b": 2.0}


def test_publish_and_abandon_in_the_block_are_its_end(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=60) as build:
        build.add("a", 1)
        build.publish(timeout=20)
        assert members(sets) == {"a": 1.0}
        with pytest.raises(hotcount.ConfigError, match="published"):
            build.add("b", 1)
    with sets.rebuild("k", ttl=60) as build:
        build.add("b", 2)
        build.abandon()
        with pytest.raises(hotcount.ConfigError, match="given up"):
            build.renew()
    assert members(sets) == {"a": 1.0}


def test_writes_made_meanwhile_win_over_adds_before_and_after_them(sets: LiveSets) -> None:
    sets.create("k", 60, dict.fromkeys(("before", "after", "gone", "kept"), 0))
    with sets.rebuild("k", ttl=60) as build:
        build.add_many({"before": 1, "gone": 1})
        build.renew()  # They are sent.
        assert sets.upsert("k", "before", 2) is Upsert.APPLIED
        assert sets.upsert_many([("k", "after", 2), ("k", "fresh", 2)]).applied
        assert sets.remove("k", "gone") is Upsert.APPLIED
        assert sets.remove("k", "never") is Upsert.ABSENT
        build.add_many({"after": 1, "never": 1, "kept": 1})
    assert members(sets) == {"before": 2.0, "after": 2.0, "fresh": 2.0, "kept": 1.0}


def test_writes_to_an_absent_set_are_answered_absent_and_published(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=60) as build:
        assert sets.upsert("k", "a", 2) is Upsert.ABSENT
        assert sets.upsert("k", "b", 2, version=5) is Upsert.ABSENT
        assert sets.remove("k", "c") is Upsert.ABSENT
        assert sets.range("k", 0, -1) == []
        build.add_many([("a", 1), ("b", 1, 4), ("c", 1)])
    assert members(sets) == {"a": 2.0, "b": 2.0}
    assert sets.upsert("k", "b", 3, version=5) is Upsert.STALE


def test_a_version_decides_between_an_add_and_a_write_made_meanwhile(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 0})
    with sets.rebuild("k", ttl=60) as build:
        for name in ("low", "high", "same"):
            sets.upsert("k", name, 1, version=10)
        sets.remove("k", "removed", version=10)
        sets.upsert("k", "plain", 1)
        build.add_many(
            [("low", 2, 9), ("high", 2, 11), ("same", 2, 10), ("removed", 2, 9), ("plain", 2, 99)]
        )
    assert members(sets) == {"low": 1.0, "high": 2.0, "same": 1.0, "plain": 1.0}
    states = sets.upsert_many([("k", "high", 3, 11), ("k", "low", 3, 10), ("k", "low", 3, 11)])
    assert [str(state) for state in states] == ["STALE", "STALE", "APPLIED"]
    assert sets.upsert("k", "removed", 3, version=10) is Upsert.STALE


def test_versions_from_before_the_build_are_kept_and_win_over_lower_adds(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 0})
    sets.upsert("k", "newer", 5, version=-3)
    sets.remove("k", "removed", version=2**53 + 1)
    sets.upsert("k", "not in the source", 5, version=7)
    with sets.rebuild("k", ttl=60) as build:
        build.add_many([("newer", 1, -4), ("removed", 1, 2**53), ("a", 1, 1)])
    assert members(sets) == {"newer": 5.0, "a": 1.0}
    assert sets.upsert("k", "newer", 6, version=-3) is Upsert.STALE
    assert sets.upsert("k", "removed", 6, version=2**53 + 1) is Upsert.STALE
    assert sets.upsert("k", "not in the source", 6, version=7) is Upsert.STALE
    assert sets.upsert("k", "not in the source", 6, version=8) is Upsert.APPLIED


def test_of_two_adds_of_a_member_the_later_or_higher_counts(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=60) as build:
        build.add_many([("a", 1), ("a", 2), ("b", 5, 5), ("b", 4, 4)])
        build.renew()
        build.add_many([("a", 3), ("b", 3, 3)])
    assert members(sets) == {"a": 3.0, "b": 5.0}


def test_a_second_rebuild_forgets_what_was_written_during_the_first(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=60) as build:
        sets.upsert("k", "a", 1)
        sets.upsert("k", "b", 1, version=3)
        build.add("c", 1)
    with sets.rebuild("k", ttl=60) as build:
        build.add_many([("a", 2), ("b", 2, 3)])
    assert members(sets) == {"a": 2.0, "b": 2.0}


def test_one_builder_at_a_time_has_the_lease(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=60) as build:
        with pytest.raises(hotcount.LeaseLostError, match="another builder"):
            sets.rebuild("k", ttl=60).__enter__()
        with sets.rebuild("other", ttl=60):
            pass
        build.add("a", 1)
    assert members(sets) == {"a": 1.0}


def test_a_builder_whose_lease_has_passed_is_told_and_publishes_nothing(sets: LiveSets) -> None:
    sets.create("k", 60, {"old": 1})
    late = sets.rebuild("k", ttl=60, lease=0.1).__enter__()
    late.add("late", 1)
    second = eventually_begun(sets)
    second.add("second", 2)
    calls: list[Callable[[], object]] = [
        late.renew,
        lambda: late.add("more", 1),
        lambda: late.__exit__(None, None, None),
    ]
    for call in calls:
        with pytest.raises(hotcount.LeaseLostError) as raised:
            call()
        assert raised.value.key is not None
    second.publish()
    assert members(sets) == {"second": 2.0}


def eventually_begun(sets: LiveSets) -> hotcount.Rebuild:
    """A builder that takes over once the lease before it has passed."""
    build: list[hotcount.Rebuild] = []

    def begun() -> bool:
        build[:] = [sets.rebuild("k", ttl=60)]
        try:
            build[0]._begin()
        except hotcount.LeaseLostError:
            return False
        return True

    eventually(begun, seconds=5)
    return build[0]


def test_adding_slowly_renews_the_lease(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=60, lease=0.3) as build:
        until = time.monotonic() + 0.7
        while time.monotonic() < until:
            build.add("a", 1)
            time.sleep(0.01)
    assert members(sets) == {"a": 1.0}


def test_threads_may_add_to_one_build(sets: LiveSets) -> None:
    with sets.rebuild("k", ttl=60) as build:

        def work(index: int) -> None:
            for number in range(400):
                build.add(f"{index}:{number}", number)

        together(work, 8)
    assert len(members(sets)) == 8 * 400


def test_ttl_gate_cannot_rebuild(counter_store: Store) -> None:
    sets = LiveSets(counter_store, method="ttl_gate")
    with pytest.raises(hotcount.ConfigError, match="method 'script'"):
        sets.rebuild("k", ttl=60)
    with pytest.raises(hotcount.ConfigError, match="method 'script'"):
        sets.rebuild_many([], ttl=60)


def test_bad_arguments_are_refused_before_anything_is_sent(sets: LiveSets) -> None:
    for wrong in ({"ttl": 0}, {"ttl": 60, "lease": 0.05}, {"ttl": 60, "lease": 3601}):
        with pytest.raises(hotcount.ConfigError):
            sets.rebuild("k", **wrong)
    with pytest.raises(hotcount.ConfigError):
        sets.rebuild("", ttl=60)
    with sets.rebuild("k", ttl=60) as build:
        build.add("good", 1)
        for bad in (("", 1), ("m", float("nan")), ("m" * 1001, 1)):
            with pytest.raises(hotcount.ConfigError):
                build.add(*bad)
        with pytest.raises(TypeError, match=r"members\[1\]"):
            build.add_many([("a", 1), ("b",)])  # type: ignore[list-item]
    assert members(sets) == {"good": 1.0}
    with pytest.raises(hotcount.ConfigError, match="begun"):
        sets.rebuild("k", ttl=60).add("a", 1)


def test_a_key_of_another_type_is_left_alone(counter_store: Store) -> None:
    hotcount.Counter(counter_store, prefix="c").add("k")
    sets = LiveSets(counter_store, prefix="c")
    with pytest.raises(hotcount.WrongTypeError):
        sets.rebuild("k", ttl=60).__enter__()
    assert hotcount.Counter(counter_store, prefix="c").get("k") == 1


def test_rebuild_many_builds_every_set_and_reports_those_that_failed(sets: LiveSets) -> None:
    with sets.rebuild("s7", ttl=60):
        report = sets.rebuild_many(
            ((f"s{n}", {f"m{i}": float(i) for i in range(n)}) for n in range(20)), ttl=60
        )
    assert report.published == 19
    assert kinds(report.failed) == {"s7": "LeaseLostError"}
    assert [len(members(sets, f"s{n}")) for n in range(20)] == [
        0 if n == 7 else n for n in range(20)
    ]


def test_rebuild_many_takes_groups_whose_rows_come_from_one_iterator(sets: LiveSets) -> None:
    rows = [("a", "x", 1.0, 3), ("a", "y", 2.0, None), ("b", "x", 3.0, 4)]
    report = sets.rebuild_many(
        ((key, (row[1:] for row in group)) for key, group in groupby(rows, key=itemgetter(0))),
        ttl=60,
    )
    assert (report.published, report.failed) == (2, {})
    assert (members(sets, "a"), members(sets, "b")) == ({"x": 1.0, "y": 2.0}, {"x": 3.0})
    assert sets.upsert("b", "x", 9, version=4) is Upsert.STALE


def test_rebuild_many_asks_for_members_once_the_lease_is_taken(sets: LiveSets) -> None:
    def source(key: str) -> Iterator[tuple[str, float]]:
        sets.upsert(key, "meanwhile", 9)
        yield "member", 1

    assert sets.rebuild_many(((key, source(key)) for key in "ab"), ttl=60).published == 2
    assert members(sets, "a") == members(sets, "b") == {"meanwhile": 9.0, "member": 1.0}


def slow_members(seconds: float) -> Iterator[tuple[str, float]]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)
        yield "a", 1


def test_rebuild_many_publishes_complete_sets_while_a_slow_one_is_read(sets: LiveSets) -> None:
    report = sets.rebuild_many(
        [("quick", {"a": 1}), ("slow", slow_members(0.8))], ttl=60, lease=0.5
    )
    assert report == hotcount.RebuildReport(published=2, failed={})
    assert members(sets, "slow") == {"a": 1.0}


def test_what_the_source_raises_ends_rebuild_many(sets: LiveSets) -> None:
    def source() -> Iterator[tuple[str, Any]]:
        yield "a", {"x": 1}
        yield "b", (1 / 0 for _ in range(1))

    with pytest.raises(ZeroDivisionError):
        sets.rebuild_many(source(), ttl=60)
    assert (members(sets, "a"), members(sets, "b")) == ({"x": 1.0}, {})
    with sets.rebuild("b", ttl=60):
        pass


def test_a_key_that_comes_twice_is_built_twice(sets: LiveSets) -> None:
    report = sets.rebuild_many([("a", {"x": 1}), ("a", {"y": 2})], ttl=60)
    assert (report.published, members(sets, "a")) == (2, {"y": 2.0})
