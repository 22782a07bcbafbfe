"""What Counter's methods have in common on every store; their holes are in tests/races."""

from __future__ import annotations

import time
from typing import Any, Union

import hotcount
import pytest

Store = Union[hotcount.Memory, hotcount.Redis]

INT64_MAX = 2**63 - 1
METHODS = [
    pytest.param({}, id="default"),
    pytest.param({"method": "script"}, id="script"),
    pytest.param({"method": "incr"}, id="incr"),
    pytest.param({"method": "set_nx_incr"}, id="set_nx_incr"),
    *(
        pytest.param({"method": "set_nx_incr", "compensation": which}, id=f"set_nx_incr-{which}")
        for which in ("none", "first", "ttl", "both")
    ),
]


@pytest.fixture(params=METHODS)
def options(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def counter(counter_store: Store, options: Any) -> hotcount.Counter:
    return hotcount.Counter(counter_store, ttl=60, **options)


def test_every_method_adds_and_gives_a_caller_alone_a_life(counter: hotcount.Counter) -> None:
    assert [counter.add("k"), counter.add("k", 4), counter.add("k", -2)] == [1, 5, 3]
    assert counter.get("k") == 3
    left = counter.ttl("k")
    assert left is not None
    assert 50 < left <= 60
    assert counter.reset("k") == 3
    assert counter.add("k", INT64_MAX) == INT64_MAX
    with pytest.raises(hotcount.CounterOverflowError):
        counter.add("k")
    assert counter.get("k") == INT64_MAX


def test_no_method_extends_a_life_by_later_adds(counter_store: Store, options: Any) -> None:
    counter = hotcount.Counter(counter_store, ttl=0.5, **options)
    counter.add("k", 7)
    deadline = time.monotonic() + 0.6
    while counter.get("k") != 0:
        # A later add that arrives just after the end begins a new life: stop before.
        left = counter.ttl("k")
        if left is not None and left > 0.2:
            assert counter.add("k", 0) in (7, 0)
        assert time.monotonic() < deadline + 5, "it does not end"
        time.sleep(0.02)


def test_every_method_takes_batches_in_order_and_reports_what_failed(
    counter: hotcount.Counter,
) -> None:
    assert counter.add_many(["a", "b", "a"], [1, 10, 2]) == [1, 10, 3]
    result = counter.add_many(["a", "", "b"], [1, 1, INT64_MAX], errors="return")
    assert result == [4, 0, 0]
    assert {index: type(error) for index, error in result.errors.items()} == {
        1: hotcount.ConfigError,
        2: hotcount.CounterOverflowError,
    }
    assert counter.get_many(["a", "b"]) == [4, 10]
    assert all(counter.ttl(key) is not None for key in ("a", "b"))


def test_every_method_leaves_what_is_no_counter_alone(counter_store: Store, options: Any) -> None:
    limiter = hotcount.Limiter(counter_store, "5/day", algorithm="list")
    limiter.hit("k", who="caller")
    counter = hotcount.Counter(counter_store, prefix="limit:default:list:5/day", ttl=60, **options)
    before = counter.ttl("k")
    with pytest.raises(hotcount.WrongTypeError, match="k"):
        counter.add("k")
    after = counter.ttl("k")
    assert before is not None
    assert after is not None
    assert before - 60 < after <= before
    assert limiter.entries("k") == ["caller"]


def test_without_a_ttl_incr_is_all_that_there_is_to_do(counter_store: Store) -> None:
    counter = hotcount.Counter(counter_store, method="incr")
    assert [counter.add("k"), counter.add("k")] == [1, 2]
    assert counter.ttl("k") is None


def test_what_a_method_cannot_do_is_refused_by_name(counter_store: Store) -> None:
    make: Any = hotcount.Counter
    with pytest.raises(hotcount.ConfigError, match=r"method is 'racy'.*'set_nx_incr'"):
        make(counter_store, ttl=1, method="racy")
    with pytest.raises(hotcount.ConfigError, match=r"compensation is 'retry'.*'both'"):
        make(counter_store, ttl=1, method="set_nx_incr", compensation="retry")
    with pytest.raises(hotcount.ConfigError, match="'set_nx_incr' needs a ttl"):
        make(counter_store, method="set_nx_incr")
    for method in ("script", "incr"):
        with pytest.raises(hotcount.ConfigError, match="compensation is for"):
            make(counter_store, ttl=1, method=method, compensation="ttl")
    for name in ("method", "compensation"):
        with pytest.raises(TypeError, match=f"^{name} must be str, not int"):
            make(counter_store, ttl=1, **{name: 5})
    for method in ("incr", "set_nx_incr"):
        counter = make(counter_store, ttl=60, method=method)
        with pytest.raises(hotcount.ConfigError, match=f"try_add is for.*not '{method}'"):
            counter.try_add("k", max=5)
        with pytest.raises(hotcount.ConfigError, match=f"op_id is for.*not '{method}'"):
            counter.add("k", op_id="a")
        assert counter.get("k") == 0
