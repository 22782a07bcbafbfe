"""A limit on the concurrent holders of a key: in memory and over Redis, in threads and in loops."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import hotcount
import pytest
from hotcount import ConcurrencyLimit, aio

from tests.support.eventually import eventually
from tests.support.stores import Store
from tests.support.together import in_child, together

LONG = 3600.0
SOON = 0.05


def free(limit: ConcurrencyLimit, key: Any = "k") -> int:
    """How many places are free now, by taking them."""
    taken = []
    while place := limit.acquire(key, timeout=0):
        taken.append(place)
    for place in taken:
        assert place.release()
    return len(taken)


def test_as_many_as_the_limit_hold_a_place_and_the_next_is_refused(counter_store: Store) -> None:
    limit = ConcurrencyLimit(counter_store, 2, lease=LONG, name="export")
    first = limit.acquire("k")
    second = limit.acquire("k")
    assert (first.decision.remaining, second.decision.remaining) == (1, 0)
    assert (first.decision.retry_after, first.decision.reason) == (0, "allowed")
    refused = limit.acquire("k", timeout=0)
    decision = refused.decision
    assert not refused
    assert (decision.limit, decision.remaining, decision.reason) == (2, 0, "limited")
    assert (decision.policy, decision.violated) == ("export", ("export",))
    assert LONG - 60 < (decision.retry_after or 0) <= decision.reset_after <= LONG
    with pytest.raises(hotcount.LimitExceeded, match="export") as raised, refused:
        raise AssertionError("the block must not run")
    assert raised.value.decision is decision
    assert limit.acquire("other")
    assert first.release()
    assert limit.acquire("k", timeout=0)


def test_the_end_of_a_block_gives_the_place_back_also_when_it_raises(counter_store: Store) -> None:
    limit = ConcurrencyLimit(counter_store, 1, lease=LONG)
    with limit.acquire("k") as place:
        assert place.key == "k"
        assert free(limit) == 0
    assert free(limit) == 1
    with pytest.raises(KeyError), limit.acquire("k"):
        raise KeyError
    assert free(limit) == 1
    assert (place.release(), bool(place)) == (False, True)


def test_a_refused_place_has_nothing_to_give_back(counter_store: Store) -> None:
    limit = ConcurrencyLimit(counter_store, 1, lease=LONG)
    held = limit.acquire("k")
    refused = limit.acquire("k", timeout=0)
    assert not refused.release()
    with pytest.raises(hotcount.LeaseLostError):
        refused.renew()
    assert free(limit) == 0
    assert held.release()


def test_a_place_whose_lease_ended_is_not_the_late_holders(counter_store: Store) -> None:
    short = ConcurrencyLimit(counter_store, 1, lease=SOON)
    limit = ConcurrencyLimit(counter_store, 1, lease=timedelta(seconds=LONG))
    late = short.acquire("k")
    assert late
    now = limit.acquire("k")  # When that lease ends.
    assert now
    with pytest.raises(hotcount.LeaseLostError, match="no longer held"):
        late.renew()
    assert not late.release()
    assert free(limit) == 0
    assert now.release()


def test_a_lease_that_ended_is_not_begun_anew(counter_store: Store) -> None:
    short = ConcurrencyLimit(counter_store, 2, lease=SOON)
    limit = ConcurrencyLimit(counter_store, 2, lease=LONG)
    keeps = limit.acquire("k")  # So that the key outlives the lease.
    ended = short.acquire("k")
    eventually(lambda: free(limit) == 1)
    with pytest.raises(hotcount.LeaseLostError):
        ended.renew()
    assert not ended.release()
    assert keeps.release()


def test_a_renewed_lease_begins_anew(counter_store: Store) -> None:
    short = ConcurrencyLimit(counter_store, 1, lease=60)
    limit = ConcurrencyLimit(counter_store, 1, lease=LONG)
    place = short.acquire("k")
    assert limit._renew("k", place._id)
    assert (short.acquire("k", timeout=0).decision.retry_after or 0) > 100
    place.renew()
    assert 0 < (short.acquire("k", timeout=0).decision.retry_after or 0) <= 60
    assert place.release()
    assert free(limit) == 1


def test_a_holder_that_asks_again_has_one_place(counter_store: Store) -> None:
    limit = ConcurrencyLimit(counter_store, 2, lease=LONG)
    assert [limit._acquire("k", "me").remaining for _ in range(3)] == [1, 1, 1]
    assert free(limit) == 1
    assert limit._acquire("k", "you").remaining == 0
    assert limit._acquire("k", "me").allowed, "also while all are held"
    assert (limit._release("k", "me"), limit._release("k", "me")) == (True, False)


def test_limits_of_one_name_share_their_places(counter_store: Store) -> None:
    old = ConcurrencyLimit(counter_store, 1, lease=LONG, name="n")
    new = ConcurrencyLimit(counter_store, 3, lease=LONG, name="n")
    assert ConcurrencyLimit(counter_store, 1, name="m").acquire("k", timeout=0)
    assert old.acquire("k", timeout=0)
    assert free(new) == 2
    places = [new.acquire("k", timeout=0) for _ in range(2)]
    refused = old.acquire("k", timeout=0)
    assert (bool(refused), refused.decision.remaining) == (False, 0)
    assert all(place.release() for place in places)
    assert free(new) == 2


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_lowered_limit_says_when_leases_have_ended(counter_store: Store, limit: int) -> None:
    leases = [300, 100, 500, 200, 400]
    for lease in leases:
        assert ConcurrencyLimit(counter_store, 5, lease=lease).acquire("k", timeout=0)
    refused = ConcurrencyLimit(counter_store, limit).acquire("k", timeout=0).decision
    due = sorted(leases)[5 - limit]
    assert due - 60 < (refused.retry_after or 0) <= due
    assert 440 < refused.reset_after <= 500


def test_keys_are_those_of_limiters(counter_store: Store) -> None:
    limit = ConcurrencyLimit(counter_store, 1, lease=LONG)
    keys: list[Any] = ["a:b", ("a", "b"), ("a:b",), "%:a:b", b"\0\xff {}"]
    for key in keys:
        assert limit.acquire(key, timeout=0), key
    assert not any(limit.acquire(key, timeout=0) for key in [*keys, b"a:b"])


def test_threads_and_loops_are_never_more_than_the_limit(counter_store: Store) -> None:
    limit = ConcurrencyLimit(counter_store, 3, lease=LONG)
    shared = aio.ConcurrencyLimit(counter_store, 3, lease=LONG)
    lock = threading.Lock()
    inside: list[int] = []
    most = 0

    def enter() -> None:
        nonlocal most
        with lock:
            inside.append(1)
            most = max(most, len(inside))

    def leave() -> None:
        with lock:
            inside.pop()

    async def task() -> None:
        async with shared.acquire("k"):
            enter()
            await asyncio.sleep(0)
            leave()

    async def tasks() -> None:
        await asyncio.gather(*(task() for _ in range(4)))

    def work(index: int) -> None:
        if index == 0:
            # Only when all places are held: then the limit was reached.
            with limit.acquire("k"), limit.acquire("k"), limit.acquire("k"):
                for _ in range(3):
                    enter()
                assert not limit.acquire("k", timeout=0)
                for _ in range(3):
                    leave()
        elif index % 2:
            asyncio.run(tasks())
        else:
            for _ in range(4):
                with limit.acquire("k"):
                    enter()
                    leave()

    together(work, 8)
    assert most == 3
    assert free(limit) == 3


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_task_leaves_no_place_behind(counter_store: Store, turns: int) -> None:
    limit = aio.ConcurrencyLimit(counter_store, 1, lease=LONG)

    async def hold() -> None:
        async with limit.acquire("k"):
            await asyncio.sleep(LONG)

    for held in (False, True):
        place = await limit.acquire("k") if held else None
        tasks = [asyncio.ensure_future(hold()) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError)
        if place is not None:
            assert await place.release()
        # None waits for an hour: it comes at once, or never.
        async with await asyncio.wait_for(limit.acquire("k"), 30) as last:
            assert last


async def test_a_release_that_is_cancelled_is_made_all_the_same(counter_store: Store) -> None:
    limit = aio.ConcurrencyLimit(counter_store, 1, lease=LONG)
    entered = asyncio.Event()
    leave = asyncio.Event()

    async def hold() -> None:
        async with limit.acquire("k"):
            entered.set()
            await leave.wait()

    task = asyncio.ensure_future(hold())
    await entered.wait()
    leave.set()
    await asyncio.sleep(0)  # It makes its release, which is not sent before this turn ends.
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.wait_for(limit.acquire("k"), 30)


def test_a_waiting_task_does_not_stop_its_loop(counter_store: Store) -> None:
    limit = aio.ConcurrencyLimit(counter_store, 1, lease=LONG)

    async def main() -> bool:
        place = await limit.acquire("k")
        waiter = asyncio.ensure_future(limit._wait_for_place("k", None))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not waiter.done()
        assert await place.release()
        return bool(await waiter)

    assert asyncio.run(main())


async def test_a_refusal_in_a_loop_raises_in_place_of_the_block(counter_store: Store) -> None:
    limit = aio.ConcurrencyLimit(counter_store, 1, lease=LONG)
    place = await limit.acquire("k")
    await place.renew()
    with pytest.raises(hotcount.LimitExceeded):
        async with limit.acquire("k", timeout=0):
            raise AssertionError("the block must not run")
    assert (await place.release(), await place.release()) == (True, False)
    with pytest.raises(hotcount.LeaseLostError):
        await place.renew()


def test_a_forked_child_leaves_its_parents_place_alone(counter_store: Store) -> None:
    limit = ConcurrencyLimit(counter_store, 1, lease=LONG)

    def child(place: hotcount.Place) -> tuple[bool, bool]:
        with place:  # Its end gives nothing back.
            pass
        with pytest.raises(hotcount.LeaseLostError):
            place.renew()
        return place.release(), bool(limit.acquire("k", timeout=0))

    with limit.acquire("k") as place:
        assert in_child(lambda: child(place)) == (False, False)
        assert free(limit) == 0
        place.renew()
    assert free(limit) == 1


def test_a_full_memory_store_admits_untracked() -> None:
    store = hotcount.Memory(max_keys=1)
    limit = ConcurrencyLimit(store, 1, lease=LONG)
    with limit.acquire("k"):
        for _ in range(2):
            with limit.acquire("other") as place:
                assert place.decision.reason == "untracked"
                place.renew()
        assert free(limit) == 0
    refusing = ConcurrencyLimit(hotcount.Memory(max_keys=1, when_full="refuse"), 1)
    with refusing.acquire("k"), pytest.raises(hotcount.CapacityError):
        refusing.acquire("other")
    assert refusing.acquire("other"), "a place that was given back leaves no key"


@pytest.mark.parametrize(
    ("call", "bad", "says"),
    [
        ("limit", 0, "limit is 0; it takes 1 to 10000"),
        ("limit", 10_001, "limit is 10001"),
        *(("lease", bad, "lease") for bad in (0, float("nan"), 1e9, "1")),
        ("name", '"', "name"),
        ("store", "sqlite:///:memory:", "works on Memory or Redis"),
        ("key", "", "key"),
        ("timeout", -1, "timeout is -1"),
        ("timeout", "1", "timeout"),
        ("holder", "", "holder takes 1"),
        ("limit", "1", "limit"),
    ],
)
def test_what_does_not_fit_is_refused(call: str, bad: Any, says: str) -> None:
    one = ConcurrencyLimit("memory://", 1)
    calls: dict[str, Callable[[], object]] = {
        "limit": lambda: ConcurrencyLimit("memory://", bad),
        "lease": lambda: ConcurrencyLimit("memory://", 1, lease=bad),
        "name": lambda: ConcurrencyLimit("memory://", 1, name=bad),
        "store": lambda: ConcurrencyLimit(bad, 1),
        "key": lambda: one.acquire(bad),
        "timeout": lambda: one.acquire("k", bad),
        "holder": lambda: one._acquire("k", bad),
    }
    error = TypeError if bad == "1" else hotcount.ConfigError
    with pytest.raises(error, match=says):
        calls[call]()


def test_options_are_attributes_and_stand_in_the_repr() -> None:
    limit = ConcurrencyLimit("memory://", 5, lease=7, name="n")
    assert (limit.limit, limit.lease, limit.name) == (5, 7.0, "n")
    assert repr(limit).startswith("hotcount.ConcurrencyLimit(")
    assert "limit=5" in repr(limit)
    assert repr(limit.acquire("k")) == "<Place of 'k': allowed>"
