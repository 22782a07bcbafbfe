"""The waiters of a limiter's key: a queue, first come first served, of one object in one process.

Until the first refusal the first MOST_ASKING waiters ask the store at once and the others sleep.
After a refusal or a failure only the head of the queue asks, until the queue is empty: any number
of waiters costs the store as much as one. If the store fails two heads in a row, the sleeping
waiters get that error and do not ask. Each object, process and loop has a queue of its own; between
queues the first request is served first. Threads and tasks run the same function, acquire_soon().
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Union
from weakref import WeakKeyDictionary

from hotcount._limit import Patience
from hotcount.errors import (
    ConfigError,
    DeadlineError,
    HotcountError,
    OutcomeUnknownError,
    UnavailableError,
)

if TYPE_CHECKING:
    from hotcount.results import Decision

# Why a waiter is woken: its turn has come; the first refusal is known and its time has passed; or
# the error with which the store failed two heads.
HEAD = "head"
TOLD = "told"
Woken = Union[str, HotcountError, None]
# The most hits of one queue that are in flight.
MOST_ASKING = 256
# After so many failures in a row all sleeping waiters fail. For so many seconds after that, callers
# that come form a queue at once, and its head asks for them.
_MOST_FAILURES = 2
_REMEMBERS_FAILURES = 1.0
# How many seconds after the end of its timeout a waiter waits for its first hit, or for the first
# refusal of the others' hits.
_GRACE = 1.0


class Line:
    """The waiters of a key, in their order: the heads, which hit or may, then the queue."""

    # Most lines are of one call that is admitted at once: what they do not change costs nothing.
    # How many heads may be active: one after the first refusal or failure.
    _width = MOST_ASKING
    _refusal: Decision | None = None
    _due = 0.0
    # Hits that were admitted ahead, and the monotonic times from which they may be used.
    _ahead: tuple[tuple[Decision, float], ...] = ()
    # Waiters whose time has passed before any answer was known.
    _late: tuple[Any, ...] = ()
    # Of heads in a row; the one that is everyone's, and until when it is remembered.
    _failures = 0
    _failure: HotcountError | None = None
    _failed_until = 0.0

    def __init__(self, lines: Lines, name: Hashable) -> None:
        self._lines, self._name = lines, name
        # The heads, and whether each of them is active: it hits, or sleeps between its hits. A
        # head that was refused while others were active is not, until its turn comes again.
        self._heads: dict[Any, bool] = {}
        self._active = 0
        self._queue: OrderedDict[Any, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heads) + len(self._queue)

    def refusal(self) -> Decision | None:
        """The decision for a waiter that times out before its turn; None: no refusal is known."""
        if self._failure is not None:
            raise _not_sent(self._failure)
        left = self._due - time.monotonic()
        if self._refusal is None or left <= 0:
            return self._refusal
        return dataclasses.replace(self._refusal, retry_after=left)

    def is_in_vain(self, patience: Patience) -> bool:
        """Whether the head's next hit comes after this patience ends."""
        return self._refusal is not None and patience.ends_before(self._due)

    def pause(self, patience: Patience, decision: Decision) -> float | None:
        """Seconds that a head sleeps after this answer; None: the answer is final."""
        pause = patience.pause(decision, has_followers=len(self._heads) + len(self._queue) > 1)
        if pause is None and (decision.allowed or decision.retry_after is None):
            return None
        with self._lines.lock:
            self._width = 1
            self._due = time.monotonic() + (decision.retry_after or 0.0)
            if decision.allowed:
                self._ahead += ((decision, self._due),)
            else:
                self._refusal = decision
                for waiter in self._late:
                    waiter.wake(TOLD)
                self._late = ()
        return pause

    def taken(self, cost: int, patience: Patience) -> Decision | None:
        """The hit that was admitted ahead for this head, or for an earlier, cancelled head."""
        if not self._ahead:
            return None
        with self._lines.lock:
            if not self._ahead:
                return None
            decision, due = self._ahead[0]
            left = due - time.monotonic()
            if cost > decision.limit or (left > 0 and patience.ends_before(due)):
                return None
            self._ahead = self._ahead[1:]
        return _after(decision, left)

    def takes(self, cost: Any) -> bool:
        """Whether this cost can ever be admitted. False for a bad cost: hit() raises the error."""
        most = cost if self._refusal is None else self._refusal.limit
        return isinstance(cost, int) and 1 <= cost <= most

    def join(self, waiter: Any) -> bool:
        """Appends the waiter; returns whether it may hit. The caller holds the lines' lock."""
        if self._active < self._width and len(self) == self._active:
            self._heads[waiter] = True
            self._active += 1
            return True
        self._queue[waiter] = None
        return False

    async def turn(self, waiter: Any, patience: Patience) -> Decision | None:
        """Sleeps until the waiter may hit: None. Else its time has passed: the refusal."""
        why = await waiter.sleep(patience.left())
        if why is None and self._is_late(waiter):
            why = await waiter.sleep(_GRACE)
            if why is None:
                raise DeadlineError(
                    "not sent: the wait ended before the hits of earlier waiters were answered"
                )
        if isinstance(why, HotcountError):
            raise _not_sent(why)
        return None if why == HEAD else self.refusal()

    def yields(self, waiter: Any) -> bool:
        """Gives the turn to the first waiter; returns whether that is this one, or none is."""
        with self._lines.lock:
            self._heads[waiter] = False
            self._active -= 1
            return self._wake_heads(waiter)

    def leave(self, waiter: Any) -> None:
        """Removes a waiter that was served, gave up or was cancelled; wakes new heads."""
        with self._lines.lock:
            is_active = self._heads.pop(waiter, None)
            if is_active is not None:
                self._active -= is_active
            elif self._queue.pop(waiter, waiter) is waiter:  # The store has failed it.
                return
            if waiter in self._late:
                self._late = tuple(one for one in self._late if one is not waiter)
            if self._heads or self._queue:
                self._wake_heads()
            else:
                ahead = self._ahead[-1][1] if self._ahead else 0.0
                self._lines.end(self._name, max(ahead, self._failed_until))

    async def asked(self, ask: Callable[[], Awaitable[Decision]]) -> Decision:
        """The answer to a head. One failure may be the head's alone; after the second in a row
        the sleeping waiters fail too, and send nothing. A store that is away thus costs each of
        them two timeouts, and one that is late is not asked by all of them at once."""
        try:
            decision = await ask()
        except ConfigError:  # Of the head's own arguments.
            raise
        except HotcountError as error:
            self._fail(error)
            raise
        if self._failures:
            self._failures, self._failure, self._failed_until = 0, None, 0.0
        return decision

    def _is_late(self, waiter: Any) -> bool:
        """Notes a waiter whose time has passed; False: it can be answered."""
        with self._lines.lock:
            if self._refusal is not None or self._failure is not None:
                return False
            self._late += (waiter,)
            return True

    # The callers of these hold the lock.
    def _wake_heads(self, but: Any = None) -> bool:
        """Makes the first waiters active, as many as may be; whether `but` is one, not woken."""
        found = False
        while self._active < self._width:
            if len(self._heads) > self._active:
                waiter = next(one for one, is_active in self._heads.items() if not is_active)
            elif self._queue:
                waiter, _ = self._queue.popitem(last=False)
            else:
                break
            self._heads[waiter] = True
            self._active += 1
            if waiter is but:
                found = True
            else:
                waiter.wake(HEAD)
        return found

    def _fail(self, error: HotcountError) -> None:
        with self._lines.lock:
            self._width = 1
            self._failures += 1
            if self._failures < _MOST_FAILURES:
                return
            self._failure, self._refusal = error, None
            self._failed_until = time.monotonic() + _REMEMBERS_FAILURES
            sleeping = [one for one, is_active in self._heads.items() if not is_active]
            for waiter in sleeping:
                del self._heads[waiter]
            sleeping += self._queue
            self._queue.clear()
            self._late = ()
            for waiter in sleeping:
                waiter.wake(error)


class Lines:
    """The queues of an object in this process, by (loop, key, rate); see name_of()."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.by_name: dict[Hashable, Line] = {}
        # Queues without waiters that keep the hit of a cancelled waiter for the next one, or that
        # remember a failure of the store, and until when.
        self._keeping: dict[Hashable, float] = {}

    @staticmethod
    def of(owner: Any) -> Lines:
        """The lines of this object; a forked child begins with none."""
        lines = _of_objects.get(owner)
        if lines is None or lines.process != os.getpid():
            lines = _of_objects[owner] = Lines()
        return lines

    def join(self, name: Hashable, waiter: Any) -> tuple[Line, bool]:
        """The line, and whether the waiter may hit now."""
        with self.lock:
            line = self.by_name.get(name)
            # A kept hit must not be used after its time: it would be one hit too many.
            if line is None or self._keeping.pop(name, math.inf) <= time.monotonic():
                line = self.by_name[name] = Line(self, name)
            return line, line.join(waiter)

    def end(self, name: Hashable, until: float) -> None:
        """The last waiter has left. until: when the queue ends. The caller holds the lock."""
        if not until and not self._keeping:
            del self.by_name[name]
            return
        now = time.monotonic()
        if until > now:
            self._keeping[name] = until
        else:
            self.by_name.pop(name, None)
        while self._keeping:
            oldest = next(iter(self._keeping))
            if self._keeping[oldest] > now:
                break
            del self._keeping[oldest]
            self.by_name.pop(oldest, None)


def _after(decision: Decision, left: float = 0.0) -> Decision:
    """A decision that was admitted ahead, `left` seconds before the hit may be used."""
    left = max(left, 0.0)
    reset_after = decision.reset_after - ((decision.retry_after or 0.0) - left)
    return dataclasses.replace(decision, retry_after=left, reset_after=reset_after)


def _not_sent(failure: HotcountError) -> HotcountError:
    """The error of one whose hit was not sent, because the store failed the heads before it."""
    is_unknown = isinstance(failure, OutcomeUnknownError)
    told = UnavailableError() if is_unknown else copy.copy(failure)
    told.__dict__.update(failure.__dict__)
    told.args = (f"not sent: hits before it in its queue failed, the last one with: {failure}",)
    return told


# No attribute of the objects: one whose __init__ never ran would lack it.
_of_objects: WeakKeyDictionary[Any, Lines] = WeakKeyDictionary()


class SleepingThread:
    """A waiter that is a thread. Its coroutines block, so they never suspend."""

    __slots__ = ("_why", "_woken")

    def __init__(self) -> None:
        self._woken = threading.Lock()
        self._woken.acquire()
        self._why: Woken = None

    def wake(self, why: Woken) -> None:
        is_first, self._why = self._why is None, why
        if is_first:
            self._woken.release()

    async def sleep(self, seconds: float | None) -> Woken:
        """Why it was woken; None: the time has passed."""
        longest = threading.TIMEOUT_MAX
        is_woken = self._woken.acquire(
            timeout=longest if seconds is None else min(seconds, longest)
        )
        why = self._why
        if why is not None and not is_woken:  # wake() is between its two lines.
            self._woken.acquire()
        self._why = None
        return why

    async def pause(self, seconds: float) -> None:
        """Sleeps, whatever happens to the queue."""
        time.sleep(seconds)


class SleepingTask:
    """A waiter that is a task of a loop, which also wakes it."""

    __slots__ = ("_why", "_woken")

    def __init__(self) -> None:
        self._woken: Any = None
        self._why: Woken = None

    def wake(self, why: Woken) -> None:
        self._why = why
        self._end_sleep()

    def _end_sleep(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def sleep(self, seconds: float | None) -> Woken:
        """Why it was woken; None: the time has passed."""
        loop = _running_loop()
        self._woken = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._end_sleep)
        try:
            await self._woken
        finally:
            if timer is not None:
                timer.cancel()
        why, self._why = self._why, None
        return why

    async def pause(self, seconds: float) -> None:
        """Sleeps, whatever happens to the queue."""
        import asyncio

        await asyncio.sleep(seconds)


def _running_loop() -> Any:
    import asyncio  # Here, because nothing else of the package imports it.

    return asyncio.get_running_loop()


def name_of(key: Any, rate: Any = None, *, is_task: bool = False) -> Hashable:
    """The name of a queue; tasks have one for each loop. None for an unhashable key or rate, which
    the hit itself refuses."""
    try:
        hash((key, rate))
    except TypeError:
        return None
    return _running_loop() if is_task else None, key, rate


def acquire_now(
    owner: Any, name: Hashable, cost: Any, patience: Patience, ask: Callable[[], Decision]
) -> Decision:
    """acquire_soon() for a thread."""

    async def asked() -> Decision:
        return ask()

    try:
        acquire_soon(owner, name, cost, patience, asked, SleepingThread).send(None)
    except StopIteration as done:
        decision: Decision = done.value
        return decision
    raise AssertionError("a thread's coroutines do not suspend")


async def acquire_soon(
    owner: Any,
    name: Hashable,
    cost: Any,
    patience: Patience,
    ask: Callable[[], Awaitable[Decision]],
    make_waiter: Callable[[], SleepingThread | SleepingTask] = SleepingTask,
) -> Decision:
    """The first decision of `ask` that admits, or a refusal if the patience ends before.

    cpp/src/limiter/waiting_line.cpp has the same algorithm.
    """
    lines = Lines.of(owner)
    line = lines.by_name.get(name)
    if line is not None:
        if not line.takes(cost):
            return await ask()
        if line.is_in_vain(patience) and (told := line.refusal()) is not None:
            return told
    waiter = make_waiter()
    line, is_head = lines.join(name, waiter)
    try:
        while True:
            if not is_head and (told := await line.turn(waiter, patience)) is not None:
                return told
            decision = line.taken(cost, patience) or await line.asked(ask)
            pause = line.pause(patience, decision)
            if pause is None:
                return decision
            # A head that was admitted ahead keeps its turn.
            is_head = decision.allowed or line.yields(waiter)
            if is_head:
                await waiter.pause(pause)
    finally:
        line.leave(waiter)
