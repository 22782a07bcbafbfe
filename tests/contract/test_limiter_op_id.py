"""A hit with an op_id is taken once, however often and by whomever it is repeated."""

import asyncio
import time
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.limiters import made_at
from tests.support.stores import Store
from tests.support.together import together

TEN = "10/300 days"


def test_a_repeat_answers_the_same(counter_store: Store, options: dict[str, Any]) -> None:
    limiter = hotcount.Limiter(counter_store, TEN, **options)
    first = limiter.hit("k", 4, op_id="a")
    assert (first.allowed, first.remaining) == (True, 6)
    assert limiter.hit("k", 3).remaining == 3
    assert limiter.hit("k", 4, op_id=b"a") == first, "a str and its bytes are one op_id"
    refused = limiter.hit("k", 4, op_id="b")
    assert not refused.allowed
    limiter.reset("k")
    assert limiter.hit("k", 4, op_id="b") == refused, "a refusal is remembered, after reset too"
    assert limiter.hit("k", 4, op_id="a") == first
    assert limiter.peek("k").remaining == 10
    never = limiter.hit("k", 11, op_id="c")
    assert never.reason == "cost_above_limit"
    assert limiter.hit("k", 11, op_id="c") == never


def test_op_ids_belong_to_a_key_at_a_rate(counter_store: Store) -> None:
    limiter = hotcount.Limiter(counter_store, TEN)
    for key in ("k", "other", "{k}", ("k",), "%25k"):
        assert limiter.hit(key, op_id="a").remaining == 9
        assert limiter.hit(key, op_id="a").remaining == 9
        assert limiter.hit(key, op_id="a", rate="5/300 days").remaining == 4
        assert limiter.peek(key).remaining == 9


def test_several_rates_are_remembered_together(counter_store: Store) -> None:
    limiter = hotcount.Limiter(counter_store, "4/300 days; 6/360 days")
    first = limiter.hit("k", 4, op_id="a")
    refused = limiter.hit("k", 1, op_id="b")
    assert refused.violated == ("4/300 days",)
    assert (limiter.hit("k", 4, op_id="a"), limiter.hit("k", op_id="b")) == (first, refused)


def test_an_op_id_of_threads_is_taken_once(counter_store: Store, options: dict[str, Any]) -> None:
    limiter = hotcount.Limiter(counter_store, TEN, **options)
    assert len(set(together(lambda _: limiter.hit("k", 3, op_id="same")))) == 1
    assert limiter.peek("k").remaining == 7


def test_threads_and_tasks_that_repeat_never_over_admit(counter_store: Store) -> None:
    limit = "40/300 days"
    limiter = hotcount.Limiter(counter_store, limit)
    ids = [hotcount.new_op_id() for _ in range(60)]

    def work(index: int) -> set[str]:
        mine = ids[index:] + ids[:index]
        if index % 2:
            return {op_id for op_id in mine if limiter.hit("k", op_id=op_id)}

        async def tasks() -> set[str]:
            shared = aio.Limiter(counter_store, limit)
            hits = await asyncio.gather(*(shared.hit("k", op_id=op_id) for op_id in mine))
            return {op_id for op_id, hit in zip(mine, hits, strict=True) if hit}

        return asyncio.run(tasks())

    admitted = together(work, 16)
    assert all(each == admitted[0] for each in admitted), "all were told the same"
    assert len(admitted[0]) == 40


def test_an_op_id_that_is_too_old_or_ahead_takes_nothing(counter_store: Store) -> None:
    limiter = hotcount.Limiter(counter_store, TEN, op_keep=60)
    for seconds, words in ((-120, "longer than op_keep ago"), (120, "further ahead")):
        with pytest.raises(hotcount.ConfigError, match=words):
            limiter.hit("k", op_id=made_at(time.time() + seconds))
    assert limiter.peek("k").remaining == 10
    near = made_at(time.time() + 30)
    assert limiter.hit("k", op_id=near) == limiter.hit("k", op_id=near)
    assert limiter.op_keep == 60


def test_an_op_id_is_forgotten_after_op_keep(counter_store: Store) -> None:
    limiter = hotcount.Limiter(counter_store, TEN, op_keep=1)
    assert limiter.hit("k", op_id="a").remaining == 9
    deadline = time.monotonic() + 20
    while limiter.hit("k", op_id="a").remaining == 9:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert limiter.peek("k").remaining == 8


def test_what_is_remembered_has_an_expiry(counter_store: Store) -> None:
    if isinstance(counter_store, hotcount.Memory):
        assert hotcount.Limiter(counter_store, TEN).hit("k", op_id="a")
        return
    limiter = hotcount.Limiter(counter_store, TEN, op_keep=50, name="expiry")
    for key in ("k", "{tag}k"):
        limiter.hit(key, op_id=b"\0 {}\xff")
    keys = [key for key in counter_store.execute("KEYS", "*") if b"op." in key and b"expiry" in key]
    assert len(keys) == 2
    for key in keys:
        assert 0 < counter_store.execute("PTTL", key) <= 50_000


def test_a_full_memory_store_remembers_no_op_id() -> None:
    store = hotcount.Memory(max_keys=2)
    limiter = hotcount.Limiter(store, TEN)
    assert limiter.hit("k", op_id="a").reason == "allowed"
    assert [limiter.hit("k", op_id="b").remaining for _ in range(2)] == [8, 7]
    assert limiter.hit("k", op_id="a").remaining == 9
    with pytest.warns(RuntimeWarning, match="full"):
        assert limiter.hit("new", op_id="c").reason == "untracked"
    refusing = hotcount.Limiter(hotcount.Memory(max_keys=1, when_full="refuse"), TEN)
    with pytest.raises(hotcount.CapacityError):
        refusing.hit("k", op_id="a")
    assert refusing.hit("other"), "what was begun is taken back"


@pytest.mark.parametrize("op_id", ["", b"", "x" * 1001])
def test_an_op_id_of_no_or_too_many_bytes_is_refused(counter_store: Store, op_id: Any) -> None:
    limiter = hotcount.Limiter(counter_store, TEN)
    with pytest.raises(hotcount.ConfigError, match="op_id takes 1 to 1000 bytes"):
        limiter.hit("k", op_id=op_id)
    assert limiter.hit("k", op_id="x" * 1000)


def test_who_remembers_no_op_id_says_so(database: hotcount.Database) -> None:
    limiter = hotcount.Limiter(database, TEN)
    with pytest.raises(hotcount.ConfigError, match="op_id is for Memory and Redis"):
        limiter.hit("k", op_id="a")
    with pytest.raises(hotcount.ConfigError, match="op_keep must be 1 second or more"):
        hotcount.Limiter("memory://", TEN, op_keep=0.5)
    with pytest.raises(TypeError, match="op_id must be"):
        hotcount.Limiter("memory://", TEN).hit("k", op_id=7)  # type: ignore[arg-type]


def test_a_full_memory_store_decides_hits_with_op_ids_by_their_key() -> None:
    with hotcount.Memory(max_keys=64) as store:
        limiter = hotcount.Limiter(store, TEN)
        limiter.hit("used up", 10)
        limiter.block("blocked", 600)
        held = limiter.reserve("reserved", 4, lease=3600)
        with pytest.warns(RuntimeWarning, match="is full"):
            limiter.hit_many([f"other {i}" for i in range(100)])
        for key, cost in (("used up", 1), ("blocked", 1), ("new", 11), ("used up", 11)):
            plain = limiter.hit(key, cost)
            once = limiter.hit(key, cost, op_id=f"{key}{cost}")
            assert (once.allowed, once.reason) == (plain.allowed, plain.reason), key
        assert limiter.hit("new", 1, op_id="a").reason == "untracked"
        assert held.commit(3, op_id="b").remaining == 7
        assert limiter.peek("reserved").remaining == 7


@pytest.mark.parametrize("rates", [TEN, "10/300 days; 20/360 days"])
def test_op_ids_are_never_taken_for_a_limit(counter_store: Store, rates: str) -> None:
    limiter = hotcount.Limiter(counter_store, rates)
    # Keys that callers choose may look like what stands beside another key.
    limiter.hit("{anna}:op.at")
    with pytest.raises(hotcount.WrongTypeError):
        limiter.hit("{anna}", op_id="a")
    limiter.hit("{ben}", op_id="a")
    with pytest.raises(hotcount.WrongTypeError):
        limiter.hit("{ben}:op.at")
    assert limiter.peek("{ben}").remaining == 9
