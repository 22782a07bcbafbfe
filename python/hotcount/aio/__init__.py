"""hotcount for event loops: the same classes, with methods to be awaited.

A call starts when it is made, not when it is awaited. Calls made in one iteration of the loop are
sent together. One store serves threads and loops: `Counter` here takes a `hotcount.Redis`, and
`hotcount.Counter` takes a `Redis` from here. Each loop has a connection of its own, made on first
use and gone with the loop, so an object may stand in a module and serve one ``asyncio.run`` after
the other. Votes and other calls of a database are made by a few threads of the library, and a loop
is woken once for all votes that were committed together. Works with asyncio's loops and uvloop.
Errors are those of `hotcount.errors`: a bad argument is raised by the call, every other error where
the call is awaited.

Example::

    import asyncio
    from hotcount import aio

    likes = aio.Counter("redis://localhost")

    async def main() -> None:
        await likes.add("photo:42")                             # the value after this very add
        await asyncio.gather(*(likes.add("photo:42") for _ in range(100)))

    asyncio.run(main())
"""

from __future__ import annotations

from hotcount.aio.concurrency_limit import ConcurrencyLimit, Place
from hotcount.aio.counter import Counter
from hotcount.aio.joint_hits import hit_all
from hotcount.aio.limiter import Limiter
from hotcount.aio.live_sets import LiveSets, Rebuild
from hotcount.aio.period_counter import PeriodCounter
from hotcount.aio.reservation import Reservation
from hotcount.aio.slotted_counter import SlottedCounter
from hotcount.aio.stores import Database, Memory, Redis, connect, connect_database, connect_store
from hotcount.aio.votes import Votes
from hotcount.aio.write_behind_counter import WriteBehindCounter

__all__ = [
    "ConcurrencyLimit",
    "Counter",
    "Database",
    "Limiter",
    "LiveSets",
    "Memory",
    "PeriodCounter",
    "Place",
    "Rebuild",
    "Redis",
    "Reservation",
    "SlottedCounter",
    "Votes",
    "WriteBehindCounter",
    "connect",
    "connect_database",
    "connect_store",
    "hit_all",
]
