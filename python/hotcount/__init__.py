"""Counts that many writers touch at once: counters, votes, rate limits; memory, Redis, SQL.

Every class takes a store or database object, or its URL, and may be used from many threads at once.
Calls that wait release the GIL and take ``timeout=`` in seconds. Errors are in `hotcount.errors`,
and here.

Example::

    import hotcount

    likes = hotcount.Counter("memory://likes")
    likes.add("photo:42")                            # 1, the value after this very add

    limiter = hotcount.Limiter("memory://", "100/minute")
    bool(limiter.hit("user:42"))                     # True, a hundred times a minute

    votes = hotcount.Votes("sqlite:///votes.db")
    votes.create_tables()
    votes.add_items([7])
    votes.cast(7, user=1)                            # committed when it returns
    int(votes.count(7))                              # 1
"""

from __future__ import annotations

# errors first: the extension looks its classes up when it is loaded.
from hotcount.errors import (
    AuthError,
    BatchError,
    CapacityError,
    ClosedError,
    ConfigError,
    CounterOverflowError,
    DatabaseError,
    DeadlineError,
    HotcountError,
    IntegrityError,
    LeaseLostError,
    LimitExceeded,
    OutcomeUnknownError,
    PermissionDeniedError,
    ReplyError,
    UnavailableError,
    WrongTypeError,
)

from hotcount._core import (  # isort: skip
    __version__,
)
from hotcount._native import require_all_declared
from hotcount.batches import AddedBatch, Casts, Column, Counts, Decisions, Int64Batch, Upserts
from hotcount.concurrency_limit import ConcurrencyLimit, Place
from hotcount.counter import Counter, RetryQueue
from hotcount.functions import build_info, new_op_id
from hotcount.joint_hits import hit_all
from hotcount.limiter import Limiter
from hotcount.live_sets import LiveSets, Rebuild, RebuildReport
from hotcount.period_counter import PeriodCounter
from hotcount.rate import Rate
from hotcount.reservation import Reservation
from hotcount.results import (
    Cast,
    Contract,
    Count,
    Decision,
    Drift,
    FlushReport,
    Queued,
    RetryStats,
    SweepReport,
    SyncRound,
    Tally,
    TryAdd,
    Upsert,
)
from hotcount.slotted_counter import SlottedCounter
from hotcount.stores import Database, Memory, Redis, connect, connect_database, connect_store
from hotcount.votes import SyncWorker, Votes
from hotcount.write_behind_counter import WriteBehindCounter

require_all_declared()
del require_all_declared

__all__ = [
    "AddedBatch",
    "AuthError",
    "BatchError",
    "CapacityError",
    "Cast",
    "Casts",
    "ClosedError",
    "Column",
    "ConcurrencyLimit",
    "ConfigError",
    "Contract",
    "Count",
    "Counter",
    "CounterOverflowError",
    "Counts",
    "Database",
    "DatabaseError",
    "DeadlineError",
    "Decision",
    "Decisions",
    "Drift",
    "FlushReport",
    "HotcountError",
    "Int64Batch",
    "IntegrityError",
    "LeaseLostError",
    "LimitExceeded",
    "Limiter",
    "LiveSets",
    "Memory",
    "OutcomeUnknownError",
    "PeriodCounter",
    "PermissionDeniedError",
    "Place",
    "Queued",
    "Rate",
    "Rebuild",
    "RebuildReport",
    "Redis",
    "ReplyError",
    "Reservation",
    "RetryQueue",
    "RetryStats",
    "SlottedCounter",
    "SweepReport",
    "SyncRound",
    "SyncWorker",
    "Tally",
    "TryAdd",
    "UnavailableError",
    "Upsert",
    "Upserts",
    "Votes",
    "WriteBehindCounter",
    "WrongTypeError",
    "__version__",
    "build_info",
    "connect",
    "connect_database",
    "connect_store",
    "hit_all",
    "new_op_id",
]
