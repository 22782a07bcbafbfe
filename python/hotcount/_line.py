"""The waiters of a limiter's key: a queue, first come first served, of one object in one process.

The head of the queue asks the store and the other waiters sleep, so any number of waiters costs the
store as much as one. If the store fails two heads in a row, the other waiters get that error and
do not ask. Each object, process and loop has a queue of its own; between queues the first request
is served first. Threads and tasks run the same function, acquire_soon().
"""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Union
from weakref import WeakKeyDictionary

from hotcount._limit import Patience
from hotcount.errors import ConfigError, HotcountError, OutcomeUnknownError, UnavailableError

if TYPE_CHECKING:
    from hotcount.results import Decision

# Why a waiter is woken: it is the head now, or the error with which the store failed two heads.
HEAD = "head"
Woken = Union[str, HotcountError, None]
# After so many failures in a row all waiters fail. For so many seconds after that, callers that
# come form a queue at once, and its head asks for them.
_MOST_FAILURES = 2
_REMEMBERS_FAILURES = 1.0


class Line:
    """The waiters of a key; the first of them is the head."""

    def __init__(self, lines: Lines, name: Hashable) -> None:
        self._lines, self._name = lines, name
        self._waiters: OrderedDict[Any, None] = OrderedDict()
        self._refusal: Decision | None = None
        self._due = 0.0
        # A hit that was admitted ahead, and the monotonic time from which it may be used.
        self._ahead: tuple[Decision, float] | None = None
        # Failed heads in a row; the error that all waiters get; until when that is remembered.
        self._failures = 0
        self._failure: HotcountError | None = None
        self._failed_until = 0.0

    def note(self, decision: Decision) -> None:
        """Keeps the head's refusal. That of a cost above the limit is the head's alone: it says
        neither when there is room for others, nor that there never is."""
        if decision.allowed or decision.retry_after is None:
            return
        self._refusal = decision
        self._due = time.monotonic() + decision.retry_after

    def refusal(self) -> Decision | None:
        """The decision for a waiter that times out before its turn; None: no refusal is known."""
        if self._failure is not None:
            raise _not_sent(self._failure)
        left = self._due - time.monotonic()
        if self._refusal is None or left <= 0:
            return self._refusal
        return dataclasses.replace(self._refusal, retry_after=left)

    def is_in_vain(self, patience: Patience) -> bool:
        """Whether the head's next hit, and one that was admitted ahead, come after its end."""
        due = self._due if self._ahead is None else min(self._due, self._ahead[1])
        return self._refusal is not None and patience.ends_before(due)

    def pause(self, patience: Patience, decision: Decision) -> float | None:
        """Seconds that the head sleeps; None: it gives up, or was admitted."""
        self.note(decision)
        pause = patience.pause(decision, has_followers=len(self._waiters) > 1)
        if decision.allowed and pause is not None:
            self._due = time.monotonic() + pause
            self._ahead = decision, self._due
        return pause

    def taken(self, cost: int, patience: Patience) -> Decision | None:
        """The hit that was admitted ahead for this head, or for an earlier, cancelled head."""
        if self._ahead is None:
            return None
        decision, due = self._ahead
        left = due - time.monotonic()
        if cost > decision.limit or (left > 0 and patience.ends_before(due)):
            return None
        self._ahead = None
        return _after(decision, left)

    def takes(self, cost: Any) -> bool:
        """Whether this cost can ever be admitted. False for a bad cost: hit() raises the error."""
        most = cost if self._refusal is None else self._refusal.limit
        return isinstance(cost, int) and 1 <= cost <= most

    def join(self, waiter: Any) -> bool:
        """Appends the waiter; returns whether it is the head. The caller holds the lines' lock."""
        self._waiters[waiter] = None
        return len(self._waiters) == 1

    def leave(self, waiter: Any) -> None:
        """Removes a waiter that was served, gave up or was cancelled; wakes a new head."""
        with self._lines.lock:
            if waiter not in self._waiters:  # The store has failed it.
                return
            was_head = next(iter(self._waiters)) is waiter
            del self._waiters[waiter]
            if not self._waiters:
                ahead = self._ahead[1] if self._ahead else 0.0
                self._lines.end(self._name, max(ahead, self._failed_until))
            elif was_head:
                head = next(iter(self._waiters))
                if head.is_lost():  # So are the others: a queue of tasks is of one loop.
                    self._waiters.clear()
                    self._lines.end(self._name, 0.0)
                else:
                    head.wake(HEAD)

    async def asked(self, ask: Callable[[], Awaitable[Decision]]) -> Decision:
        """The answer to the head. One failure may be the head's alone; after the second in a row
        the others fail too, and send nothing. A store that is away thus costs each of them two
        timeouts, and one that is late is not asked by all of them at once."""
        try:
            decision = await ask()
        except ConfigError:  # The head's own arguments are bad.
            raise
        except HotcountError as error:
            self._fail(error)
            raise
        self._failures, self._failure, self._failed_until = 0, None, 0.0
        return decision

    def _fail(self, error: HotcountError) -> None:
        with self._lines.lock:
            self._failures += 1
            if self._failures < _MOST_FAILURES:
                return
            self._failure, self._refusal = error, None
            self._failed_until = time.monotonic() + _REMEMBERS_FAILURES
            head, *others = self._waiters
            self._waiters = OrderedDict({head: None})
            for waiter in others:
                waiter.wake(error)


class Lines:
    """The queues of an object in this process, by (loop, key, rate); see name_of()."""

    def __init__(self) -> None:
        # Reentrant: a collection that runs while it is held may end tasks of a closed loop.
        self.lock = threading.RLock()
        self.by_name: dict[Hashable, Line] = {}
        # Queues without waiters that keep the hit of a cancelled waiter for the next one, or that
        # remember a failure of the store, and until when.
        self._keeping: dict[Hashable, float] = {}

    @staticmethod
    def of(owner: Any) -> Lines:
        """The lines of this object; a forked child begins with none."""
        # setdefault(): two threads may make their first call at once.
        return _of_objects.get(owner) or _of_objects.setdefault(owner, Lines())

    def join(self, name: Hashable, waiter: Any, decision: Decision | None) -> tuple[Line, bool]:
        """The line, and whether the waiter is its head. decision: of the waiter's own first hit."""
        with self.lock:
            line = self.by_name.get(name)
            until = self._keeping.pop(name, None)
            # A kept hit must not be used after its time: it would be one hit too many.
            is_past = until is not None and (decision is not None or until <= time.monotonic())
            if line is None or is_past:
                line = self.by_name[name] = Line(self, name)
            if decision is not None and not line._waiters:
                line.note(decision)
            return line, line.join(waiter)

    def end(self, name: Hashable, until: float) -> None:
        """The last waiter has left. until: when the queue ends. The caller holds the lock."""
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
os.register_at_fork(after_in_child=_of_objects.clear)


class SleepingThread:
    """A waiter that is a thread. Its coroutines block, so they never suspend."""

    def __init__(self) -> None:
        self._woken = threading.Lock()
        self._woken.acquire()
        self._why: Woken = None

    def wake(self, why: Woken) -> None:
        self._why = why
        self._woken.release()

    def is_lost(self) -> bool:
        """Never: a thread leaves the queue before it ends."""
        return False

    async def sleep(self, seconds: float | None) -> Woken:
        """Why it was woken; None: the time has passed."""
        longest = threading.TIMEOUT_MAX
        self._woken.acquire(timeout=longest if seconds is None else min(seconds, longest))
        return self._why

    async def pause(self, seconds: float) -> None:
        """Sleeps, whatever happens to the queue."""
        time.sleep(seconds)


class SleepingTask:
    """A waiter that is a task of a loop."""

    def __init__(self) -> None:
        self._loop = _running_loop()
        self._woken = self._loop.create_future()

    def wake(self, why: Woken) -> None:
        if not self._woken.done():
            self._woken.set_result(why)

    def is_lost(self) -> bool:
        """Whether its loop is closed: no task of it runs any more."""
        return bool(self._loop.is_closed())

    async def sleep(self, seconds: float | None) -> Woken:
        """Why it was woken; None: the time has passed."""
        timer = None if seconds is None else self._loop.call_later(seconds, self.wake, None)
        try:
            why: Woken = await self._woken
            return why
        finally:
            if timer is not None:
                timer.cancel()

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
    first = None
    if name not in Lines.of(owner).by_name:  # Most calls; they need no coroutine.
        first = ask()
        if patience.pause(first) is None:
            return first

    async def asked() -> Decision:
        return ask()

    try:
        acquire_soon(owner, name, cost, patience, asked, SleepingThread, first).send(None)
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
    first: Decision | None = None,
) -> Decision:
    """The first decision of `ask` that admits, or a refusal if the patience ends before.

    cpp/src/limiter/waiting_line.cpp has the same algorithm. first: the decision of a hit that the
    caller has made already.
    """
    lines = Lines.of(owner)
    decision = first
    line = lines.by_name.get(name)
    if decision is None:
        if line is None or not line.takes(cost):
            decision = await ask()
            if patience.pause(decision) is None:
                return decision
        elif line.is_in_vain(patience) and (told := line.refusal()) is not None:
            return told
    waiter = make_waiter()
    line, is_head = lines.join(name, waiter, decision)
    try:
        if decision is not None and decision.allowed and not is_head:
            await waiter.pause(decision.retry_after or 0.0)
            return _after(decision)
        why = HEAD if is_head else await waiter.sleep(patience.left())
        if why is None:
            told = line.refusal()
            return await ask() if told is None else told
        if isinstance(why, HotcountError):
            raise _not_sent(why)
        if not is_head or decision is None:
            decision = line.taken(cost, patience) or await line.asked(ask)
        while (pause := line.pause(patience, decision)) is not None:
            await waiter.pause(pause)
            decision = line.taken(cost, patience) or await line.asked(ask)
        return decision
    finally:
        line.leave(waiter)
