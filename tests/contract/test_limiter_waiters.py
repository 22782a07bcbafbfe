"""Limiter.acquire of many at once: a queue for each object, key and rate, in threads and loops."""

import asyncio
import functools
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import hotcount
import pytest
from hotcount import aio
from hotcount._limit import Patience
from hotcount._line import Line, Lines

from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.stores import AnyStore
from tests.support.together import in_child

# Nobody is admitted before all have come; then there is room for all.
BLOCKED = 0.7


def waiting(limiter: Any) -> int:
    """How many wait, of all keys."""
    return sum(len(line._waiters) for line in Lines.of(limiter).by_name.values())


async def queued(limiter: Any, number: int) -> None:
    while waiting(limiter) != number:
        await asyncio.sleep(0.001)


def test_threads_are_served_in_the_order_in_which_they_came(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, "50/300 days")
    limiter.block("k", BLOCKED)
    served: dict[int, int] = {}

    def wait(number: int) -> None:
        served[number] = limiter.acquire("k").remaining

    threads = [threading.Thread(target=wait, args=[number]) for number in range(5)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        eventually(lambda number=number: waiting(limiter) == number)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert served == {number: 49 - number for number in range(5)}
    assert waiting(limiter) == 0


def test_tasks_are_served_in_order_also_when_some_are_cancelled(limit_store: AnyStore) -> None:
    async def program() -> list[int]:
        limiter = aio.Limiter(limit_store, "50/second")
        await limiter.block("k", BLOCKED)
        served: list[int] = []

        async def wait(number: int) -> None:
            assert await limiter.acquire("k")
            served.append(number)

        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(wait(number)))
            await queued(limiter, number + 1)
        for number in (0, 2, 3):  # The head, and two behind it.
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert waiting(limiter) == 0
        return served

    assert asyncio.run(program()) == [1, 4, 5]


def test_many_waiters_ask_the_store_as_often_as_one(redis_server: RedisServer) -> None:
    async def calls(waiters: int) -> int:
        """The number of calls of `waiters` waiters until ten were admitted."""
        async with aio.Redis(redis_server.url, timeout=20, prefix=f"waiters{waiters}:") as redis:
            limiter = aio.Limiter(redis, "1/20 ms")
            await limiter.block("k", BLOCKED)
            tasks = [asyncio.create_task(limiter.acquire("k")) for _ in range(waiters)]
            await queued(limiter, waiters)
            # Those that came before the first refusal have asked.
            while (before := redis.stats()["commands"]) < waiters:
                await asyncio.sleep(0.005)
            while waiting(limiter) > waiters - 10:
                await asyncio.sleep(0.005)
            for task in tasks:
                task.cancel()
            return int(redis.stats()["commands"] - before)

    # Each admission takes a hit that is refused and one that is not, and a busy machine some more.
    assert asyncio.run(calls(300)) < 60


async def test_a_waiter_whose_time_passes_before_its_turn_is_refused(limit_store: AnyStore) -> None:
    limiter = aio.Limiter(limit_store, "1/400 ms")
    assert await limiter.hit("k")
    patient = [asyncio.create_task(limiter.acquire("k")) for _ in range(2)]
    await queued(limiter, 2)
    late = await limiter.acquire("k", timeout=0.45)
    assert (late.allowed, late.reason, late.limit) == (False, "limited", 1)
    assert 0 < (late.retry_after or 0) <= 0.4
    # Not even the head will ask in time; a cost that never fits is told so.
    for timeout, cost in ((0, 1), (0.001, 1), (None, 2)):
        refused = await limiter.acquire("k", cost, timeout=timeout)
        assert not refused.allowed
    assert refused.reason == "cost_above_limit"
    with pytest.raises(hotcount.ConfigError, match="cost"):
        await limiter.acquire("k", 0)
    assert all(one.allowed for one in await asyncio.gather(*patient))
    assert waiting(limiter) == 0


async def test_waiters_whose_time_passes_do_not_ask_the_store(limit_store: AnyStore) -> None:
    limiter = Failing(limit_store, "50/second")
    await limiter.block("k", 0.2)
    patient = asyncio.create_task(limiter.acquire("k"))
    await queued(limiter, 1)
    late = asyncio.create_task(limiter.acquire("k", timeout=1))
    await queued(limiter, 2)
    await limiter.block("k", 60)
    asked = limiter.asked
    while limiter.asked == asked:  # Its head does, when the first block ends.
        await asyncio.sleep(0.001)
    asked = limiter.asked
    refused = [await late, await limiter.acquire("k", timeout=1)]
    assert limiter.asked == asked
    for one in refused:
        assert (one.allowed, one.reason) == (False, "blocked")
        assert 50 < (one.retry_after or 0) <= 60
    patient.cancel()


class Told(aio.Limiter):
    """Writes down until when each hit of acquire that was admitted ahead has to wait."""

    def __init__(self, store: AnyStore, rate: str) -> None:
        super().__init__(store, rate)
        self.due: list[float] = []
        self.when_ahead: Callable[[], object] = lambda: None

    async def _hit_ahead(self, *args: Any, **options: Any) -> hotcount.Decision:
        sent = time.monotonic()
        decision = await super()._hit_ahead(*args, **options)
        if decision.allowed and decision.retry_after:
            self.due.append(sent + decision.retry_after)
            self.when_ahead()
        return decision


async def test_without_a_burst_hits_are_admitted_ahead(limit_store: AnyStore) -> None:
    limiter = Told(limit_store, "1/60 ms")
    taken = 0
    while len(limiter.due) < 5:  # Where the machine is busy some are not sent in time.
        decision = await limiter.acquire("k")
        taken += 1
        assert decision.allowed
        assert decision.retry_after == 0
        assert decision.reset_after < 0.0601
        assert not limiter.due or time.monotonic() >= limiter.due[-1]
    assert limiter.stats()["admitted"] == taken


async def test_a_hit_ahead_of_a_cancelled_task_goes_to_the_next(limit_store: AnyStore) -> None:
    limiter = Told(limit_store, "1/200 ms")
    assert await limiter.hit("k")
    first: object = None
    while not isinstance(first, asyncio.CancelledError):  # It was late: it was admitted at once.
        limiter.due.clear()
        tasks = [asyncio.create_task(limiter.acquire("k")) for _ in range(2)]
        limiter.when_ahead = tasks[0].cancel
        first, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(second, hotcount.Decision)
    assert second.allowed
    assert len(limiter.due) == 1
    assert time.monotonic() >= limiter.due[0]


async def test_a_hit_ahead_of_the_only_task_is_kept(limit_store: AnyStore) -> None:
    limiter = Told(limit_store, "1/200 ms")
    left = 0.0
    while left < 0.004:  # The machine is busy: the hit's time has come already.
        limiter.due.clear()
        task = asyncio.create_task(limiter.acquire("k"))
        limiter.when_ahead = task.cancel
        await asyncio.wait([task])
        left = limiter.due[0] - time.monotonic() if task.cancelled() else 0.0
    assert not await limiter.acquire("k", timeout=0)
    assert await limiter.acquire("k")
    assert len(limiter.due) == 1
    assert time.monotonic() >= limiter.due[0]


def test_a_refusal_does_not_hide_a_hit_that_was_admitted_ahead() -> None:
    limiter = hotcount.Limiter("memory://", "1/hour")
    assert limiter.hit("k")
    refused = limiter.hit("k")
    line = Line(Lines(), "k")
    ahead = replace(refused, allowed=True, reason="allowed", retry_after=5.0)
    assert line.pause(Patience(None), ahead) == 5
    line.note(refused)
    assert not line.is_in_vain(Patience(60))
    assert line.is_in_vain(Patience(1))


async def test_hits_that_nobody_fetched_are_forgotten(limit_store: AnyStore) -> None:
    limiter = Told(limit_store, "1/20 ms")
    for key in range(20):
        while True:
            limiter.due.clear()
            task = asyncio.create_task(limiter.acquire(f"{key}"))
            limiter.when_ahead = task.cancel
            await asyncio.wait([task])
            if task.cancelled():
                break
    await asyncio.sleep(0.01)
    # Its time has passed: it waits for one of its own.
    taken = limiter.due[0]
    limiter.when_ahead = lambda: None
    assert await limiter.acquire("19")
    assert time.monotonic() >= taken + 0.02
    assert len(Lines.of(limiter).by_name) == 0


async def test_queues_of_two_objects_share_a_limit_without_a_burst(limit_store: AnyStore) -> None:
    served = [0, 0]

    async def acquire(index: int, limiter: aio.Limiter) -> None:
        while sum(served) < 40:
            await limiter.acquire("k")
            served[index] += 1

    limiters = [aio.Limiter(limit_store, "1/20 ms") for _ in served]
    await asyncio.gather(*(acquire(i % 2, limiters[i % 2]) for i in range(8)))
    assert min(served) >= 4, served


def test_keys_and_rates_have_queues_of_their_own(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, "50/second")
    limiter.block("k", BLOCKED)
    waiter = threading.Thread(target=limiter.acquire, args=["k"])
    waiter.start()
    eventually(lambda: waiting(limiter) == 1)
    assert limiter.acquire("other", timeout=0)
    assert limiter.acquire("k", timeout=0, rate="9/second")
    assert not limiter.acquire("k", timeout=0)
    waiter.join()


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_a_store_that_is_away_fails_waiters(own_redis: RedisServer, is_awaited: bool) -> None:
    many = 60
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(many))
    store = own_redis.redis(timeout=0.3)
    limiter = hotcount.Limiter(store, "1/second")
    awaited = aio.Limiter(store, "1/second")
    assert limiter.hit("k")

    async def acquire() -> hotcount.Decision:
        if is_awaited:
            return await awaited.acquire("k")
        return await asyncio.to_thread(limiter.acquire, "k")

    tasks = [asyncio.create_task(acquire()) for _ in range(many)]
    await queued(awaited if is_awaited else limiter, many)
    own_redis.send_signal(signal.SIGSTOP)
    done, _ = await asyncio.wait(tasks, timeout=10)
    own_redis.send_signal(signal.SIGCONT)
    assert len(done) == many
    errors = [task.exception() for task in done]
    unsent = [one for one in errors if str(one).startswith("not sent: ")]
    assert len(unsent) == many - 2, errors
    # Each error says that its own hit took nothing, whatever became of the heads' hits.
    for one in unsent:
        assert isinstance(one, (hotcount.UnavailableError, hotcount.DeadlineError))
        assert one.timeout == 0.3


class Failing(aio.Limiter):
    """Fails its hits with these errors, one after another."""

    def __init__(self, store: AnyStore, rate: str) -> None:
        super().__init__(store, rate)
        self.asked = 0
        self.errors: list[type[hotcount.HotcountError]] = []

    async def hit(self, *args: Any, **options: Any) -> hotcount.Decision:
        self.asked += 1
        if self.errors:
            await asyncio.sleep(0)
            raise self.errors.pop()("of this hit")
        return await super().hit(*args, **options)


async def gathered(limiter: Failing, many: int) -> list[str]:
    """The error of each of `many` waiters that come together; empty: none."""
    tasks = [limiter.acquire("k") for _ in range(many)]
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return [f"{one!r}" if isinstance(one, Exception) else "" for one in ended]


@pytest.mark.parametrize(
    ("errors", "failed"),
    [
        ([hotcount.OutcomeUnknownError], 1),
        ([hotcount.DeadlineError], 1),
        ([hotcount.ConfigError] * 3, 3),  # Of the heads' own arguments.
    ],
)
async def test_an_error_is_the_heads_alone(
    limit_store: AnyStore, errors: list[type[hotcount.HotcountError]], failed: int
) -> None:
    limiter = Failing(limit_store, "50/second")
    await limiter.block("k", 0.1)
    waiting_first = asyncio.create_task(limiter.acquire("k", timeout=60))
    await queued(limiter, 1)
    limiter.errors += errors
    ended = await gathered(limiter, 9)
    outcomes = await asyncio.gather(waiting_first, return_exceptions=True)
    ended.append(f"{outcomes[0]!r}" if isinstance(outcomes[0], Exception) else "")
    assert [one for one in ended if one] == [f"{errors[0].__name__}('of this hit')"] * failed


async def test_waiters_that_come_again_after_a_failure_are_a_queue(limit_store: AnyStore) -> None:
    limiter = Failing(limit_store, "50/second")
    await limiter.block("k", 0.1)
    first = asyncio.create_task(limiter.acquire("k"))
    await queued(limiter, 1)
    limiter.errors += [hotcount.OutcomeUnknownError] * 4
    before = limiter.asked
    for asked in (1, 2, 3):  # Of the first wave two: its head is `first`.
        ended = await gathered(limiter, 20)
        assert sum("not sent" in one for one in ended) == 19, ended
        assert sum("Unavailable" in one for one in ended) == 19, ended
        assert limiter.asked == before + asked + 1
    assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], Exception)
    assert await gathered(limiter, 20) == [""] * 20
    assert len(Lines.of(limiter).by_name) == 0


def test_the_waiters_of_a_closed_loop_leave_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: ignored.append(f"{told.exc_value!r}"))
    limiter = aio.Limiter("memory://", "1/300 days")

    async def wait() -> None:
        assert await limiter.hit("k")
        tasks = [asyncio.ensure_future(limiter.acquire("k")) for _ in range(3)]
        await queued(limiter, len(tasks))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait())
    loop.close()
    assert waiting(limiter) == 3
    del loop
    with Lines.of(limiter).lock:  # A collection may begin while a thread has it.
        gc.collect()
    assert waiting(limiter) == 0
    assert len(Lines.of(limiter).by_name) == 0
    assert ignored == []


def test_threads_that_make_their_first_call_at_once_share_a_queue() -> None:
    class Owner:
        pass

    def first_call(owner: Owner, start: threading.Barrier) -> Lines:
        start.wait()
        return Lines.of(owner)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(3000):
                call = functools.partial(first_call, Owner(), threading.Barrier(4))
                made = [threads.submit(call) for _ in range(4)]
                assert len({id(one.result()) for one in made}) == 1
    finally:
        sys.setswitchinterval(before)


def test_a_forked_child_waits_for_nobody_of_its_parent() -> None:
    limiter = hotcount.Limiter("memory://", "1/100 ms")
    assert limiter.hit("k")
    waiters = [threading.Thread(target=limiter.acquire, args=["k"]) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    eventually(lambda: waiting(limiter) >= 2)
    assert in_child(lambda: bool(limiter.acquire("k"))) is True
    for waiter in waiters:
        waiter.join()
