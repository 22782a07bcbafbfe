"""aio.hit_all: hotcount.hit_all for event loops."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

from hotcount._limit import FOLLOWS, ignore_outcome
from hotcount._types import Seconds
from hotcount.aio.limiter import Limiter
from hotcount.errors import HotcountError
from hotcount.joint_hits import (
    Answer,
    AnyLimiter,
    Hit,
    Hits,
    Taken,
    face,
    group_hits,
    merge_decisions,
    to_give_back,
)
from hotcount.rate import Rates
from hotcount.results import Decision


async def hit_all(
    hits: Hits[Limiter], *, rate: Rates | None = None, timeout: Seconds | None = None
) -> Decision:
    """As hotcount.hit_all, to be awaited.

    It starts when it is awaited. If it is cancelled between two stores, it gives back what was
    taken, and does not wait for that; during a step, the hits of that store may have been taken.
    """
    return (await take_soon(group_hits(hits, Limiter, rate), timeout))[0]


async def take_soon(
    groups: list[list[Hit[AnyLimiter]]], timeout: Seconds | None
) -> tuple[Decision, list[Taken[AnyLimiter]]]:
    """Does hit_all; returns the decision and the hits that give_back() refunds."""
    answers: list[Answer] = []
    try:
        for group in groups:
            answers.append(await face(Limiter, group[0][0])._hit_all(group, timeout=timeout))
            if not answers[-1][0]:
                break
    except Exception:
        await give_back(to_give_back(groups, answers), timeout)
        raise
    except BaseException:
        # After a cancellation anyio cancels every further await, so nothing is awaited here.
        leave_back(to_give_back(groups, answers))
        raise
    taken = to_give_back(groups, answers)
    if not answers[-1][0]:
        await give_back(taken, timeout)
        taken = []
    return merge_decisions(answers), taken


def leave_back(taken: list[Taken[AnyLimiter]]) -> None:
    """Refunds taken hits in the background."""
    for (limiter, key, cost, rate), by in taken:
        with suppress(HotcountError):
            if by == "local":
                limiter._refund_local(key, cost, rate=rate)
            else:
                ignore_outcome(face(Limiter, limiter).refund(key, cost, rate=rate, timeout=FOLLOWS))


async def give_back(taken: list[Taken[AnyLimiter]], timeout: Seconds | None) -> None:
    """Refunds each, also when the refund of another fails."""
    async with AsyncExitStack() as stack:
        for (limiter, key, cost, rate), by in taken:
            if by == "local":
                stack.callback(limiter._refund_local, key, cost, rate=rate)
            else:
                refund = face(Limiter, limiter).refund
                stack.push_async_callback(refund, key, cost, rate=rate, timeout=timeout)
