"""aio.hit_all: hotcount.hit_all for event loops."""

from __future__ import annotations

from contextlib import AsyncExitStack

from hotcount._types import Seconds
from hotcount.aio.limiter import Limiter
from hotcount.joint_hits import Hit, Hits, group_hits, merge_decisions, to_give_back
from hotcount.results import Decision


async def hit_all(hits: Hits[Limiter], *, timeout: Seconds | None = None) -> Decision:
    """As hotcount.hit_all, to be awaited.

    It starts when it is awaited. Cancelled between two stores, it gives back what was taken; during
    a step, the hits of that store may have been taken.
    """
    groups = group_hits(hits, Limiter)
    decisions: list[Decision] = []
    try:
        for group in groups:
            decisions.append(await group[0][0]._hit_all(group, timeout=timeout))
            if not decisions[-1]:
                break
    except BaseException:
        await _give_back(to_give_back(groups, decisions), timeout)
        raise
    if not decisions[-1]:
        await _give_back(to_give_back(groups, decisions), timeout)
    return merge_decisions(decisions)


async def _give_back(hits: list[Hit[Limiter]], timeout: Seconds | None) -> None:
    # Each is given back, also when that of another fails.
    async with AsyncExitStack() as stack:
        for limiter, key, cost in hits:
            stack.push_async_callback(limiter.refund, key, cost, timeout=timeout)
