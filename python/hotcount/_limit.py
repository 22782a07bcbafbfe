"""The decorator of limiters, the patience of acquire(), and the base of reservations and places."""

from __future__ import annotations

import functools
import inspect
import math
import os
import random
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, cast

from hotcount._types import LimiterKey, Seconds
from hotcount.errors import ConfigError, LimitExceeded, OutcomeUnknownError
from hotcount.results import Decision

if TYPE_CHECKING:
    from hotcount.limiter import LimiterBase

F = TypeVar("F", bound=Callable[..., Any])
Owner = TypeVar("Owner")
# A value, or a function that makes it from a call's arguments.
KeyOf = Union[LimiterKey, Callable[..., Any]]
CostOf = Union[int, Callable[..., Any]]
# A rate as in Limiter.hit, a function that makes one, or None.
RateOf = Any


def decorate(
    limiter: LimiterBase,
    function: F,
    key: KeyOf,
    cost: CostOf,
    rate: RateOf,
    timeout: Seconds | None,
) -> F:
    """The function with a hit before each call, as LimiterBase.limit documents it."""
    # Plain functions hit through the sync class and async functions through the aio class,
    # whichever of the two the decorating object is.
    from hotcount.aio.limiter import Limiter as Awaited
    from hotcount.limiter import Limiter as Waiting
    from hotcount.rate import Rate

    _require_function(function)
    is_async = _is_async(function)
    choosers = (
        _Chooser("key", key, function, (str, bytes, tuple)),
        _Chooser("cost", cost, function, (int,)),
        _Chooser("rate", rate, function, (str, Rate, tuple, type(None))),
    )
    for chooser in choosers:
        if chooser.is_async and not is_async:
            raise TypeError(f"{chooser.name} is async, and {_name(function)}() is not")
    wrapper: Callable[..., Any]

    if is_async:

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            chosen = [chooser.choose(args, kwargs) for chooser in choosers]
            for index, chooser in enumerate(choosers):
                if chooser.is_async:
                    chosen[index] = await chosen[index]
            key, cost, rate = chosen
            hit = Awaited.hit(cast(Awaited, limiter), key, cost, rate=rate, timeout=timeout)
            _require_allowed(await hit)
            return await function(*args, **kwargs)

        wrapper = awaited
    else:

        @functools.wraps(function)
        def waiting(*args: Any, **kwargs: Any) -> Any:
            key, cost, rate = (chooser.choose(args, kwargs) for chooser in choosers)
            hit = Waiting.hit(cast(Waiting, limiter), key, cost, rate=rate, timeout=timeout)
            _require_allowed(hit)
            return function(*args, **kwargs)

        wrapper = waiting
    return cast(F, wrapper)


# Called with each decision of a decorator in this context, so that a response can report it.
heard_by: ContextVar[Callable[[Decision], None] | None] = ContextVar("heard_by", default=None)


def _require_allowed(decision: Decision) -> None:
    if (hear := heard_by.get()) is not None:
        hear(decision)
    if not decision.allowed:
        raise LimitExceeded(decision)


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _is_async(function: Callable[..., Any]) -> bool:
    # An object may have an async __call__.
    called = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _require_function(function: Any) -> None:
    if isinstance(function, (classmethod, staticmethod)):
        kind = type(function).__name__
        raise TypeError(f"limit() stands below @{kind}, not above it")
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"limit() decorates functions, not {function!r}")
    bodies = (function, type(function).__call__)
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in bodies):
        # It is not clear whether making a generator or its first next() is the call.
        raise TypeError(
            f"limit() does not decorate generators: call hit() in {_name(function)}() where it "
            "shall count"
        )


class _Chooser:
    """The key, cost or rate of a call: a value, or a function of the call's arguments."""

    def __init__(self, name: str, chosen: Any, function: Any, fits: tuple[type, ...]) -> None:
        self.name = name
        self.is_async = False
        self._chosen = chosen
        self._names: tuple[str, ...] | None = None
        self._others: str | None = None  # The name of the function's **kwargs.
        if not callable(chosen):
            if not isinstance(chosen, fits) or isinstance(chosen, bool):
                kinds = " or ".join(kind.__name__ for kind in fits if kind is not type(None))
                raise TypeError(
                    f"{name} must be {kinds}, or a function of the call's arguments, "
                    f"not {type(chosen).__name__}"
                )
            self.choose = self._constant
            return
        self.is_async = _is_async(chosen)
        self.choose = self._called
        try:
            self._signature = inspect.signature(function)
            asked = inspect.signature(chosen).parameters
        except (TypeError, ValueError):  # A C function without a signature gets all arguments.
            return
        self._names = self._find_names(asked, function)
        if self._names is not None:
            self.choose = self._called_by_name

    def _find_names(
        self, asked: Mapping[str, inspect.Parameter], function: Any
    ) -> tuple[str, ...] | None:
        """The function's parameters that `chosen` takes by name; None: it takes all arguments."""
        given = self._signature.parameters
        by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        if any(one.kind not in by_name for one in asked.values()):
            return None
        self._others = next(
            (name for name, one in given.items() if one.kind is inspect.Parameter.VAR_KEYWORD), None
        )
        if self._others is not None:
            return tuple(asked)
        required = [name for name, one in asked.items() if one.default is one.empty]
        missing = [name for name in required if name not in given]
        if missing:
            raise TypeError(
                f"{self.name} asks for {missing[0]!r}, which {_name(function)}() does not have: "
                f"its parameters are {', '.join(given) or 'none'}"
            )
        return tuple(name for name in asked if name in given)

    def _constant(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._chosen

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._chosen(*args, **kwargs)

    def _called_by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        assert self._names is not None
        values = bound.arguments
        if self._others is not None:
            values = {**values.pop(self._others), **values}
        return self._chosen(**{name: values[name] for name in self._names if name in values})


class Patience:
    """How long an acquire waits. ahead: how many seconds early a hit may be admitted."""

    __slots__ = ("_ahead", "ends")

    def __init__(self, timeout: Seconds | None, ahead: float = 0.0) -> None:
        self.ends: float | None = None
        self._ahead = ahead
        if timeout is None:
            return
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            kind = type(seconds).__name__
            raise TypeError(f"timeout must be float seconds, timedelta or None, not {kind}")
        if not 0 <= seconds < math.inf:
            raise ConfigError(
                f"timeout is {seconds}; it takes a finite number of seconds, 0 or more"
            )
        self.ends = time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds until it ends; None: never."""
        return None if self.ends is None else max(self.ends - time.monotonic(), 0.0)

    def ends_before(self, due: float) -> bool:
        """Whether the patience ends before `due`, the time at which a refused hit has room."""
        return self.ends is not None and due > self.ends

    def may_be_ahead(self, after: float = 0.0) -> bool:
        """Whether a hit that is sent after so many seconds may be admitted ahead."""
        return self._ahead > 0 and not self.ends_before(time.monotonic() + after + self._ahead)

    def pause(self, decision: Decision, *, has_followers: bool = False) -> float | None:
        """Seconds to sleep before the next hit, or until a hit admitted ahead may be used; None:
        this decision is final."""
        wait = decision.retry_after
        if decision.allowed:
            return wait or None if decision.reason == "allowed" else None
        if wait is None or self.ends_before(time.monotonic() + wait):
            return None
        early = 0.95 * self._ahead  # Less than the whole: an earlier hit would be refused.
        return wait - early if wait > early and self.may_be_ahead(wait - early) else wait


class PlacePatience(Patience):
    """How long an acquire of a place waits: a place may be released at any time."""

    __slots__ = ("_pause",)

    def __init__(self, timeout: Seconds | None) -> None:
        super().__init__(timeout)
        self._pause = 0.005

    def ends_before(self, due: float) -> bool:
        """Never: a release may come at any time."""
        return False

    def pause(self, decision: Decision, *, has_followers: bool = False) -> float | None:
        """Seconds to sleep before the next request; None: this decision is final."""
        if decision.allowed:
            return None
        # A lease may end sooner. The jitter spreads the requests of waiters that began together.
        assert decision.retry_after is not None
        pause = min(self._pause * random.uniform(0.8, 1), decision.retry_after)
        # The head of a queue asks more often: several places may be released in a row.
        self._pause = min(2 * self._pause, 0.02 if has_followers else 0.1)
        if self.ends is None:
            return pause
        left = self.ends - time.monotonic()
        return min(pause, left) if left > 0 else None


# The timeout in seconds of a cancel or release in the background, after a call without an answer.
# It is longer than that call's: a stalled server takes in neither of them before it continues.
FOLLOWS = 10.0


def may_be_applied(error: BaseException) -> bool:
    """Whether a call that raised this may have been applied: unknown, interrupted, cancelled."""
    return isinstance(error, OutcomeUnknownError) or not isinstance(error, Exception)


def ignore_outcome(call: Any) -> None:
    """Lets a call of hotcount.aio run in the background and retrieves its exception, which the loop
    would log as never retrieved."""
    call.add_done_callback(lambda done: done.cancelled() or done.exception())


class Held(Generic[Owner]):
    """The base class of reservations and places, sync and aio."""

    __slots__ = {
        "_id": None,
        "_is_ended": None,
        "_owner": None,
        "_process": None,
        "decision": "The store's decision: whether there was room, and how much remains.",
        "key": "The limited key.",
    }

    key: LimiterKey
    decision: Decision

    def __init__(self, owner: Owner, key: LimiterKey, id: str, decision: Decision) -> None:
        """Use reserve() or acquire(), which make one."""
        self.key = key
        self.decision = decision
        self._owner = owner
        self._id = id
        self._is_ended = False
        self._process = os.getpid()

    def __bool__(self) -> bool:
        """Whether there was room for it."""
        return self.decision.allowed

    def _require_admitted(self) -> None:
        if not self.decision.allowed:
            raise LimitExceeded(self.decision)

    def _is_open(self) -> bool:
        """Whether this process may end it: not ended yet, and not held by the parent process."""
        return not self._is_ended and os.getpid() == self._process
