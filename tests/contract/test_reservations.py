"""Reservations: held until it is known how much was used, in memory and over Redis."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import hotcount
import pytest
from hotcount import Limiter, aio

from tests.support.eventually import eventually
from tests.support.limiters import CHARGING, SAFE
from tests.support.stores import Store
from tests.support.together import in_child, together

TEN = "10/300 days"
LONG = 3600.0
SOON = 0.05


@pytest.fixture(params=CHARGING)
def limiter(request: pytest.FixtureRequest, counter_store: Store) -> Limiter:
    return Limiter(counter_store, TEN, algorithm=request.param)


def remaining(limiter: Limiter) -> int:
    return limiter.peek("k").remaining


def test_what_is_reserved_is_taken_for_others_and_charged_as_it_was_used(limiter: Limiter) -> None:
    assert limiter.hit("k", 2)
    reserved = limiter.reserve("k", 5, lease=LONG)
    assert (bool(reserved), reserved.decision.remaining) == (True, 3)
    assert reserved.decision.reset_after >= LONG - 60
    assert remaining(limiter) == 3
    refused = limiter.hit("k", 4)
    assert (refused.allowed, refused.remaining, refused.reason) == (False, 3, "limited")
    assert refused.violated == (TEN,)
    assert LONG - 60 < (refused.retry_after or 0) <= LONG, "when the lease ends"
    assert limiter.hit("k", 3)
    assert limiter.at_most("k", 3) == 0
    assert limiter.peek("k").retry_after == pytest.approx(LONG, abs=60)
    assert limiter.refund("k", 1) == 1
    assert limiter.at_most("k", 3) == 1
    decision = reserved.commit(2)
    assert (decision.allowed, decision.remaining, decision.retry_after) == (True, 3, 0)
    assert remaining(limiter) == 3
    with pytest.raises(hotcount.ConfigError, match="already"):
        reserved.commit(2)
    reserved.cancel()
    assert remaining(limiter) == 3


def test_a_refused_reservation_holds_nothing(limiter: Limiter) -> None:
    first = limiter.reserve("k", 6, lease=LONG)
    refused = limiter.reserve("k", 5, lease=LONG)
    assert not refused
    assert (refused.decision.remaining, refused.decision.reason) == (4, "limited")
    with pytest.raises(hotcount.LimitExceeded), refused:
        raise AssertionError("the block must not run")
    with pytest.raises(hotcount.LimitExceeded):
        refused.commit(1)
    refused.cancel()
    assert remaining(limiter) == 4
    never = limiter.reserve("k", 11)
    assert (never.decision.retry_after, never.decision.reason) == (None, "cost_above_limit")
    first.cancel()
    assert remaining(limiter) == 10
    assert limiter.reserve("k", 10)


def test_a_block_commits_and_an_error_cancels(limiter: Limiter) -> None:
    with limiter.reserve("k", 4) as reserved:
        assert (reserved.key, reserved.n) == ("k", 4)
    assert remaining(limiter) == 6
    with pytest.raises(KeyError), limiter.reserve("k", 4):
        raise KeyError
    assert remaining(limiter) == 6
    committed = limiter.reserve("k", 4)
    committed.commit(1)
    with pytest.raises(KeyError), committed:
        raise KeyError
    assert remaining(limiter) == 5
    with limiter.reserve("k", 4) as reserved:
        reserved.cancel()
    with limiter.reserve("k", 5) as reserved:
        assert reserved.commit(0).remaining == 5
    assert remaining(limiter) == 5


def test_a_lease_that_ended_has_nothing_to_give_back(limiter: Limiter) -> None:
    assert limiter.hit("k", 2)
    reserved = limiter.reserve("k", 5, lease=SOON)
    eventually(lambda: remaining(limiter) == 8)
    assert limiter.hit("k", 8)
    reserved.cancel()
    assert remaining(limiter) == 0


def test_what_was_used_beyond_the_limit_is_charged_as_denied_hits_are(limiter: Limiter) -> None:
    late = limiter.reserve("k", 6, lease=SOON)
    eventually(lambda: remaining(limiter) == 10)
    assert limiter.hit("k", 7)
    decision = late.commit()
    assert (decision.allowed, decision.remaining, decision.reason) == (False, 0, "limited")
    assert [limiter.refund("k", 2), limiter.refund("k", 2)] == [0, 1], "13 were used"
    more = limiter.reserve("k", 1)
    assert not more.commit(10**15)
    assert [limiter.refund("k", 10), limiter.refund("k", 1)] == [0, 1], "twice the limit"
    limiter.reset("k")
    assert remaining(limiter) == 10


def test_reset_forgets_reservations_and_a_block_does_not(limiter: Limiter) -> None:
    first = limiter.reserve("k", 4)
    limiter.block("k", LONG)
    assert limiter.reserve("k", 1).decision.reason == "blocked"
    assert limiter.hit("k").reason == "blocked"
    assert first.commit(3)
    limiter.reset("k")
    assert remaining(limiter) == 10
    blocked = limiter.reserve("k", 4)
    limiter.block("k", SOON)
    eventually(lambda: limiter.peek("k").reason == "allowed")
    assert remaining(limiter) == 6
    limiter.reset("k")
    assert remaining(limiter) == 10
    blocked.cancel()


def test_random_reservations_are_counted_as_a_model_does(limiter: Limiter) -> None:
    """Nothing flows back and no lease ends meanwhile: numbers are all there is to it."""
    chance = random.Random(11)
    used = 0
    live: list[hotcount.Reservation] = []
    for _ in range(150):
        held = sum(one.n for one in live)
        n = chance.randint(1, 5)
        what = chance.choice(["hit", "reserve", "reserve", "commit", "cancel", "refund", "at_most"])
        if what == "hit":
            fits = used + held + n <= 10
            assert bool(limiter.hit("k", n)) == fits
            used += n * fits
        elif what == "reserve":
            one = limiter.reserve("k", n, lease=LONG)
            assert bool(one) == (used + held + n <= 10)
            live += [one] if one else []
        elif what == "commit" and live:
            one = live.pop(chance.randrange(len(live)))
            actual = chance.randint(0, one.n + 1)
            assert bool(one.commit(actual)) == (used + actual <= 10)
            used += actual
        elif what == "cancel" and live:
            live.pop(chance.randrange(len(live))).cancel()
        elif what == "refund":
            limiter.refund("k", n)
            used = max(used - n, 0)
        elif what == "at_most":
            room = max(min(10 - used - held, n), 0)
            assert limiter.at_most("k", n) == room
            used += room
        assert remaining(limiter) == max(10 - used - sum(one.n for one in live), 0)


@pytest.mark.parametrize("algorithm", CHARGING)
def test_denied_hits_are_charged_beside_reservations(counter_store: Store, algorithm: Any) -> None:
    limiter = Limiter(counter_store, TEN, algorithm=algorithm, charge_denied=True)
    reserved = limiter.reserve("k", 6, lease=LONG)
    assert not limiter.hit("k", 5)
    reserved.cancel()
    assert remaining(limiter) == 5


def test_several_rates_hold_together(counter_store: Store) -> None:
    limiter = Limiter(counter_store, "4/300 days; 6/360 days")
    first = limiter.reserve("k", 3, lease=LONG)
    assert limiter.reserve("k", 2).decision.violated == ("4/300 days",)
    assert limiter.hit("k", 2).violated == ("4/300 days",)
    assert first.commit(4)
    assert remaining(limiter) == 0
    assert limiter.peek("k").violated == ("4/300 days",)
    second = limiter.reserve("k", 1)
    assert not second
    limiter.reset("k")
    third = limiter.reserve("k", 4)
    assert not third.commit(7)
    assert limiter.peek("k").violated == ("4/300 days", "6/360 days")
    assert limiter.refund("k", 2) == 0
    assert limiter.peek("k").violated == ("4/300 days",), "of each rate, full or not"


def test_hit_all_and_op_ids_see_what_is_reserved(counter_store: Store) -> None:
    user = Limiter(counter_store, TEN, name="user")
    everyone = Limiter(counter_store, "20/300 days", name="all", algorithm="fixed_window")
    held = user.reserve("k", 7, lease=LONG)
    decision = hotcount.hit_all([(user, "k", 4), (everyone, "k", 4)])
    assert (decision.allowed, decision.violated, decision.remaining) == (False, ("user",), 3)
    assert decision.retry_after == pytest.approx(LONG, abs=60)
    assert everyone.peek("k").remaining == 20
    assert hotcount.hit_all([(user, "k", 2), (everyone, "k", 2)]).remaining == 1
    assert user.peek("k").remaining == 1
    assert not user.hit("k", 2, op_id="a")
    assert user.hit("k", 1, op_id="b")
    assert held.commit(7)
    assert user.peek("k").remaining == 0


def test_a_reservation_that_is_made_again_holds_once(limiter: Limiter) -> None:
    for _ in range(3):
        assert limiter._reserve("k", 6, "mine", LONG)
    assert remaining(limiter) == 4
    assert limiter._cancel("k", "mine")
    assert limiter._cancel("k", "mine")
    assert remaining(limiter) == 10


@pytest.mark.long
def test_a_commit_with_an_op_id_is_taken_once(limiter: Limiter) -> None:
    reserved = limiter.reserve("k", 5, lease=LONG)
    first = limiter._commit("k", reserved._id, 3, op_id="order:7")
    assert (first.allowed, first.remaining) == (True, 7)
    assert limiter.hit("k", 2)
    # A repeat answers what the first did, also when it comes from elsewhere, and takes nothing.
    for again in (
        reserved.commit(3, op_id="order:7"),
        limiter._commit("k", "b", 9, op_id="order:7"),
    ):
        assert (again.allowed, again.remaining) == (True, 7)
    assert remaining(limiter) == 5
    assert not limiter._commit("k", "late", 7, op_id="order:8"), "a refusal is remembered, too"
    assert not limiter._commit("k", "late", 1, op_id="order:8")
    assert [limiter.refund("k", 2), limiter.refund("k", 1)] == [0, 1], "12 were used"
    limiter.reset("k")
    assert limiter._commit("k", "a", 0, op_id="nothing").remaining == 10
    # A hit may have the same one.
    assert limiter.hit("k", op_id="order:7").remaining == 9
    for bad in ("", "x" * 1001):
        with pytest.raises(hotcount.ConfigError, match="op_id"):
            limiter.reserve("k", 1).commit(op_id=bad)


def test_work_that_is_done_anew_is_committed_once_and_holds_nothing(limiter: Limiter) -> None:
    first = limiter.reserve("k", 5, lease=LONG)
    again = limiter.reserve("k", 4, lease=LONG)
    beside = limiter.reserve("k", 1, lease=LONG)
    assert first.commit(3, op_id="order:7").remaining == 2
    # The op_id names the work, whichever reservation was made for it.
    assert again.commit(4, op_id="order:7").remaining == 2, "as it was then"
    assert remaining(limiter) == 6, "3 were used, and 1 is held"
    with pytest.raises(hotcount.ConfigError, match="already"):
        again.commit(4, op_id="order:8")
    assert beside.commit(0).remaining == 7
    late = limiter.reserve("k", 7, lease=LONG)
    limiter.reset("k")
    assert late.commit(7, op_id="order:7").remaining == 2
    assert remaining(limiter) == 10


def test_in_a_loop_a_commit_with_an_op_id_is_taken_once(counter_store: Store) -> None:
    limiter = aio.Limiter(counter_store, TEN)

    async def main() -> list[int]:
        reserved = await limiter.reserve("k", 5)
        first = await limiter._commit("k", reserved._id, 3, op_id="a")
        return [first.remaining, (await reserved.commit(3, op_id="a")).remaining]

    assert asyncio.run(main()) == [7, 7]
    assert Limiter(counter_store, TEN).peek("k").remaining == 7


def test_a_key_holds_a_thousand_reservations(counter_store: Store) -> None:
    limiter = Limiter(counter_store, "5000/300 days")
    for i in range(1000):
        assert limiter._reserve("k", 1, f"id-{i}", 10 * LONG if i else LONG)
    refused = limiter.reserve("k", 1)
    assert not refused
    assert refused.decision.retry_after == pytest.approx(LONG, abs=60)
    assert limiter.peek("k").remaining == 4000
    assert limiter._cancel("k", "id-7")
    assert limiter.reserve("k", 1)


def test_threads_and_tasks_never_hold_more_than_the_limit(counter_store: Store) -> None:
    limiter = Limiter(counter_store, "100/300 days")
    shared = aio.Limiter(counter_store, "100/300 days")

    def work(index: int) -> int:
        if index % 2:
            held = [limiter.reserve("k", 3, lease=LONG) for _ in range(10)]
            return sum(one.commit(2).allowed * 2 for one in held if one)

        async def tasks() -> int:
            async def one() -> int:
                reserved = await shared.reserve("k", 3, lease=LONG)
                return 2 if reserved and await reserved.commit(2) else 0

            return sum(await asyncio.gather(*(one() for _ in range(10))))

        return asyncio.run(tasks())

    used = sum(together(work, 8))
    assert used <= 100
    assert remaining(limiter) == 100 - used
    assert used >= 66, "none of the first 33 is refused"


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_task_leaves_nothing_held(counter_store: Store, turns: int) -> None:
    limiter = aio.Limiter(counter_store, TEN)

    async def hold() -> None:
        async with limiter.reserve("k", 3, lease=LONG):
            await asyncio.sleep(LONG)

    tasks = [asyncio.ensure_future(hold()) for _ in range(3)]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    while (await limiter.peek("k")).remaining < 10:
        await asyncio.sleep(0.001)


async def test_in_a_loop_it_is_as_elsewhere(counter_store: Store) -> None:
    limiter = aio.Limiter(counter_store, TEN)
    async with limiter.reserve("k", 4) as reserved:
        assert (await limiter.peek("k")).remaining == 6
        assert (await reserved.commit(1)).remaining == 9
    async with await limiter.reserve("k", 4):
        pass
    with pytest.raises(KeyError):
        async with limiter.reserve("k", 4):
            raise KeyError
    with pytest.raises(hotcount.LimitExceeded):
        async with limiter.reserve("k", 6):
            raise AssertionError("the block must not run")
    assert (await limiter.peek("k")).remaining == 5
    assert (await limiter.reserve("k", 3, rate="5/300 days")).decision.remaining == 2


def test_a_rate_of_the_call_is_that_of_the_commit(counter_store: Store) -> None:
    limiter = Limiter(counter_store, TEN)
    reserved = limiter.reserve("k", 4, rate="5/300 days")
    assert reserved.decision.remaining == 1
    assert reserved.commit(3).remaining == 2
    assert remaining(limiter) == 10


def test_a_forked_child_ends_no_reservation_of_its_parent(counter_store: Store) -> None:
    limiter = Limiter(counter_store, TEN)

    def child(reserved: hotcount.Reservation) -> int:
        with reserved:
            pass
        reserved.cancel()
        with pytest.raises(hotcount.ConfigError, match="another process"):
            reserved.commit()
        return remaining(limiter)

    with limiter.reserve("k", 4, lease=LONG) as reserved:
        assert in_child(lambda: child(reserved)) == 6
        reserved.commit(1)
    assert remaining(limiter) == 9


def test_what_is_not_held_is_not_charged() -> None:
    store = hotcount.Memory()
    shadow = Limiter(store, TEN, shadow=True)
    assert shadow.reserve("k", 6).commit()
    looked = shadow.reserve("k", 6)
    assert looked.decision.reason == "shadow"
    assert looked.commit().reason == "shadow"
    assert remaining(shadow) == 4
    full = hotcount.Memory(max_keys=1)
    limiter = Limiter(full, TEN)
    assert limiter.hit("k")
    with pytest.warns(RuntimeWarning, match="full"):
        untracked = limiter.reserve("other", 4)
    assert untracked.decision.reason == "untracked"
    assert untracked.commit(4).reason == "untracked", "nothing is asked"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda one: one.reserve("k", 0), "n is 0; it takes 1 or more"),
        (lambda one: one.reserve("k", 1, lease=0), "lease"),
        (lambda one: one.reserve("k", 1, lease=1e9), "lease"),
        (lambda one: one.reserve("", 1), "key"),
        (lambda one: one.reserve("k", 1).commit(-1), "actual is -1; it takes 0 or more"),
        (lambda one: one._reserve("k", 1, "a,b", 1), "id takes 1 to 100"),
        (lambda one: one._reserve("k", 1, "", 1), "id takes 1 to 100"),
        (lambda one: one._reserve("k", 1, "x" * 101, 1), "id takes 1 to 100"),
    ],
)
def test_what_does_not_fit_is_refused(
    counter_store: Store, call: Callable[[Any], object], says: str
) -> None:
    with pytest.raises(hotcount.ConfigError, match=says):
        call(Limiter(counter_store, TEN))


def test_who_takes_no_reservations_says_so(database: hotcount.Database) -> None:
    with pytest.raises(hotcount.ConfigError, match="reserve is for Memory and Redis"):
        Limiter(database, TEN).reserve("k", 1)
    for algorithm in set(SAFE) - set(CHARGING):
        options: dict[str, Any] = {"algorithm": algorithm}
        with pytest.raises(hotcount.ConfigError, match=f"reserve is for .*not for {algorithm}"):
            Limiter("memory://", "5/s", **options).reserve("k", 1)
    # Twice the limit of it would not be exact.
    with pytest.raises(hotcount.ConfigError):
        Limiter("memory://", "999983/hour").reserve("k", 1)
    assert Limiter("memory://", "999983/hour").hit("k")


def test_a_refused_commit_says_when_a_hit_fits_beside_other_reservations(limiter: Limiter) -> None:
    first = limiter.reserve("k", 4, lease=300)
    assert limiter.reserve("k", 5, lease=200 * 86_400)
    refused = first.commit(12)
    looked = limiter.peek("k")
    assert not refused.allowed
    assert refused.remaining == looked.remaining == 0
    assert refused.retry_after == pytest.approx(looked.retry_after, abs=60)


def test_a_key_with_the_most_reservations_names_the_rate_that_refuses(counter_store: Store) -> None:
    limiter = Limiter(counter_store, "100000/300 days; 200000/360 days")
    for _ in range(1000):
        assert limiter.reserve("k", 1, lease=LONG)
    refused = limiter.reserve("k", 1, lease=LONG).decision
    assert (refused.allowed, refused.violated) == (False, ("100000/300 days",))


def test_a_refund_beside_reservations_begins_no_window(counter_store: Store) -> None:
    limiter = Limiter(counter_store, "10/2 s", algorithm="fixed_window", align="first")
    limiter.reserve("k", 2, lease=LONG)
    refunded_at = time.monotonic()
    limiter.refund("k", 1)
    time.sleep(1)
    limiter.hit("k")
    hit_at = time.monotonic()
    wait = limiter.hit("k", 8).retry_after or 0
    # A window that began with the refund would end so soon.
    assert time.monotonic() + wait > refunded_at + 2.5
    assert time.monotonic() + wait <= hit_at + 2.5
