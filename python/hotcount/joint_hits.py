"""hit_all: hits of several limiters, all or none."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar, Union, cast

from hotcount._types import LimiterKey, Seconds
from hotcount.errors import ConfigError
from hotcount.limiter import Limiter, LimiterBase
from hotcount.rate import Rates
from hotcount.results import Decision

AnyLimiter = TypeVar("AnyLimiter", bound=LimiterBase)
Hit = tuple[AnyLimiter, LimiterKey, int, Union[Rates, None]]
Hits = Iterable[
    Union[Hit[AnyLimiter], tuple[AnyLimiter, LimiterKey, int], tuple[AnyLimiter, LimiterKey]]
]
# A step's decision, and for each of its hits 'allowed' (by the store) or the reason of on_error.
Answer = tuple[Decision, tuple[str, ...]]
# A hit that was taken, and its reason, as in Answer.
Taken = tuple[Hit[AnyLimiter], str]


def hit_all(
    hits: Hits[Limiter], *, rate: Rates | None = None, timeout: Seconds | None = None
) -> Decision:
    """Takes all hits or none.

    Hits on one Redis or one Memory object are one atomic step; over Redis they are one script in
    one round trip. Keys in several slots of a Redis Cluster take two steps, each in all slots at
    once: each hit is held, which other callers see, and then all are taken. If one hit is refused,
    none is taken; denied hits are not charged. If a limiter with shadow refuses, its hit is not
    taken, and the others are.

    Hits on several stores are taken store after store; hits over a database, and of 'sliding_log'
    over Redis, one after another. If a step refuses or fails, the hits of earlier steps are given
    back (refund); other callers may see them taken meanwhile. They stay taken if this process dies
    in between, or if the refund fails, whose error is raised. Hits that on_error='local' counted
    are given back in this process.

    Args:
        hits: Tuples of a limiter, a key, a cost (default 1) and a rate. Up to 100 for each store.
        rate: As in Limiter.hit, for all hits without a rate of their own.
        timeout: Seconds of each step, also of each refund. None: the store's.

    Returns:
        The decision of one limiter: a refusal, else one with reason 'shadow', else the one with the
            least remaining. violated names the limiters that refused in the first refusing step;
            remaining is the least of all.

    Raises:
        ConfigError: There are no hits, or more than 100 of a store.
        OutcomeUnknownError: The hits of one step may have been taken.
        HotcountError: As Limiter.hit does.

    Example:
        >>> import hotcount
        >>> store = hotcount.Memory()
        >>> user = hotcount.Limiter(store, "5/minute", name="user")
        >>> everyone = hotcount.Limiter(store, "7/minute", name="everyone")
        >>> for name in ("anna", "ben"):
        ...     print(hotcount.hit_all([(user, name, 5), (everyone, "all", 5)]).violated)
        ()
        ('everyone',)
        >>> user.peek("ben").remaining
        5
        >>> hotcount.hit_all([(user, "eve", 6, "20/minute"), (everyone, "all")]).allowed
        True
    """
    return take_now(group_hits(hits, Limiter, rate), timeout)[0]


def take_now(
    groups: list[list[Hit[AnyLimiter]]], timeout: Seconds | None
) -> tuple[Decision, list[Taken[AnyLimiter]]]:
    """Does hit_all; returns the decision and the hits that give_back() can refund."""
    answers: list[Answer] = []
    try:
        for group in groups:
            answers.append(face(Limiter, group[0][0])._hit_all(group, timeout=timeout))
            if not answers[-1][0]:
                break
    except BaseException:
        give_back(to_give_back(groups, answers), timeout)
        raise
    taken = to_give_back(groups, answers)
    if not answers[-1][0]:
        give_back(taken, timeout)
        taken = []
    return merge_decisions(answers), taken


def give_back(taken: list[Taken[AnyLimiter]], timeout: Seconds | None) -> None:
    """Refunds each, also when the refund of another fails."""
    with ExitStack() as stack:
        for (limiter, key, cost, rate), by in taken:
            if by == "local":
                stack.callback(limiter._refund_local, key, cost, rate=rate)
            else:
                stack.callback(face(Limiter, limiter).refund, key, cost, rate=rate, timeout=timeout)


def face(kind: type[AnyLimiter], limiter: LimiterBase) -> AnyLimiter:
    """The limiter with the methods of the class `kind`.

    A sync caller needs the sync methods and an async caller the aio methods, of either kind of
    limiter object.
    """
    if isinstance(limiter, kind):
        return limiter
    return cast(AnyLimiter, _Face(kind, limiter))


class _Face:
    """The native methods of a class on an object of the other one."""

    __slots__ = ("_kind", "_limiter")

    def __init__(self, kind: type[LimiterBase], limiter: LimiterBase) -> None:
        self._kind, self._limiter = kind, limiter

    def __getattr__(self, name: str) -> Any:
        return functools.partial(getattr(self._kind, name), self._limiter)


def group_hits(
    hits: Hits[AnyLimiter], kind: type[AnyLimiter], rate: Rates | None
) -> list[list[Hit[AnyLimiter]]]:
    """The hits by the step that takes them; hits with shadow, which never refuse, come last."""
    groups: dict[object, list[Hit[AnyLimiter]]] = {}
    if not isinstance(hits, Iterable):
        raise TypeError(f"hits must be an iterable of tuples, not {type(hits).__name__}")
    for index, hit in enumerate(hits):
        check_hit(index, hit, kind)
        joins = hit[0]._joins
        cost = hit[2] if len(hit) > 2 else 1
        own = hit[3] if len(hit) > 3 and hit[3] is not None else rate
        # A limiter that joins no other takes one key in each step; its hits of a key are one step.
        key = hit[1].encode("utf-8", "surrogatepass") if isinstance(hit[1], str) else hit[1]
        place = ("key", id(hit[0]), repr((key, own))) if joins is None else ("store", joins)
        groups.setdefault(place, []).append((hit[0], hit[1], cost, own))
    if not groups:
        raise ConfigError("hit_all got 0 hits; it takes 1 to 100")
    if len(groups) == 1:
        return list(groups.values())
    strict = [[hit for hit in group if not hit[0].shadow] for group in groups.values()]
    looking_on = [[hit for hit in group if hit[0].shadow] for group in groups.values()]
    return [group for group in (*strict, *looking_on) if group]


def check_hit(index: int, hit: object, kind: type[LimiterBase]) -> None:
    """TypeError unless it is a tuple of a limiter, a key, and optionally a cost and a rate."""
    if not isinstance(hit, tuple) or len(hit) not in (2, 3, 4):
        raise TypeError(f"hits[{index}] must be a tuple of a limiter, a key, a cost and a rate")
    if not isinstance(hit[0], kind):
        name = f"{kind.__module__.removesuffix('.limiter')}.{kind.__name__}"
        raise TypeError(f"hits[{index}] must begin with a {name}, not {type(hit[0]).__name__}")
    if not isinstance(hit[1], (str, bytes, tuple)):
        kind_of = type(hit[1]).__name__
        raise TypeError(f"hits[{index}]: key must be str, bytes or a tuple of them, not {kind_of}")
    if len(hit) > 2 and (isinstance(hit[2], bool) or not hasattr(hit[2], "__index__")):
        raise TypeError(f"hits[{index}]: cost must be int, not {type(hit[2]).__name__}")


def to_give_back(
    groups: list[list[Hit[AnyLimiter]]], answers: list[Answer]
) -> list[Taken[AnyLimiter]]:
    """The hits that a refusal refunds. Not those with shadow, which may have taken nothing, nor
    those that on_error='open' admitted, which took nothing."""
    return [
        (hit, by)
        for group, (decision, answered_by) in zip(groups, answers)
        if decision
        for hit, by in zip(group, answered_by)
        if not hit[0].shadow and by != "open"
    ]


def merge_decisions(answers: list[Answer]) -> Decision:
    """One decision for all steps: a refusal, which is the last, or the one with the least left."""
    decisions = [decision for decision, _ in answers]
    if len(decisions) == 1 or not decisions[-1]:
        return decisions[-1]
    most = min(decisions, key=lambda one: (one.reason != "shadow", one.remaining))
    return replace(
        most,
        remaining=min(one.remaining for one in decisions),
        violated=tuple(name for one in decisions for name in one.violated),
    )
