"""The metrics of the stats() of hotcount's objects: one table for Prometheus and OpenTelemetry.

A new number of a stats() gets its metric by a row here. The labels are kind, name and at most one
of the row's own, with few values; a key, an item or a user is never a label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import hotcount
from hotcount import aio
from hotcount.errors import ConfigError, HotcountError

Stats = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, and the numbers of a stats() that are its samples.

    stats maps values of the row's own label to names of numbers; a row without a label has "".
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    stats: tuple[tuple[str, str], ...]
    label: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return ("kind", "name", self.label) if self.label else ("kind", "name")


def _one(kind: Literal["counter", "gauge"], name: str, stat: str, help: str) -> Metric:
    return Metric(f"hotcount_{name}", kind, help, (("", stat),))


def _each(
    kind: Literal["counter", "gauge"], name: str, label: str, help: str, **stats: str
) -> Metric:
    return Metric(f"hotcount_{name}", kind, help, tuple(stats.items()), label)


UP = _one(
    "gauge", "up", "up", "1: stats() was read. 0: closed, or the query of Votes failed or was late."
)

# The metric that every kind of object has.
CALLS = Metric(
    "hotcount_calls", "counter", "Calls that ended, by outcome.", (("*", "calls"),), "outcome"
)

METRICS: dict[str, tuple[Metric, ...]] = {
    "limiter": (
        _each(
            "counter",
            "decisions",
            "outcome",
            "Hits and reserves.",
            admitted="admitted",
            refused="refused",
        ),
        Metric(
            "hotcount_decision_reasons",
            "counter",
            "Hits and reserves, by Decision.reason.",
            (("*", "reasons"),),
            "reason",
        ),
    ),
    "memory": (
        _one("gauge", "memory_keys", "keys", "Keys that live."),
        _one("gauge", "memory_max_keys", "max_keys", "Keys that there may be."),
        _one("counter", "memory_swept_keys", "swept", "Expired keys that were taken out."),
        _one("counter", "memory_refused", "refused", "New keys that were refused at max_keys."),
        _one("counter", "memory_untracked", "untracked", "Hits that were admitted uncounted."),
    ),
    "redis": (
        _one("counter", "redis_commands", "commands", "Calls that the server answered."),
        _one("counter", "redis_combined", "combined", "Calls that travelled in another's command."),
        _one("counter", "redis_sends", "sends", "Times that bytes were handed to the kernel."),
        _one("counter", "redis_sent_bytes", "bytes_sent", "Bytes sent."),
        _one("counter", "redis_received_bytes", "bytes_received", "Bytes received."),
        _one("counter", "redis_connects", "connects", "Connections made."),
        _one("counter", "redis_reconnects", "reconnects", "Connections made after one was lost."),
        Metric(
            "hotcount_redis_latency_seconds",
            "histogram",
            "From a command's encoding to its reply; bounds are exact to 7 %.",
            (("", "latency_s"),),
        ),
    ),
    "database": (
        _one("counter", "database_transactions", "transactions", "Write transactions committed."),
        _one("counter", "database_statements", "statements", "Statements run."),
        _one("counter", "database_busy_waits", "busy_waits", "SQLite: waits for another's lock."),
    ),
    "votes": (
        _each(
            "counter", "votes", "outcome", "Casts and retracts.", ok="votes", failed="failed_votes"
        ),
        _one("counter", "votes_batches", "batches", "Transactions that votes shared."),
        _one(
            "counter",
            "votes_retried_transactions",
            "retried_transactions",
            "Transactions of the database that were begun again.",
        ),
        _each(
            "gauge",
            "votes_queue_length",
            "state",
            "Votes that wait: to be written, or for rows that other transactions hold.",
            waiting="waiting_votes",
            held="held_votes",
        ),
        _each(
            "gauge",
            "votes_call_seconds",
            "quantile",
            "How long votes took; at most 25 % above the true value.",
            **{"0.5": "median_call_s", "0.99": "p99_call_s", "1": "longest_call_s"},
        ),
        _each(
            "counter",
            "votes_folds",
            "outcome",
            "Folds of this process.",
            ok="folds",
            failed="failed_folds",
        ),
        _one(
            "gauge",
            "votes_failing_folds_seconds",
            "failing_folds_s",
            "For how long every fold has failed; 0 while folds work.",
        ),
        _one(
            "gauge", "votes_pending_rows", "pending_rows", "Rows of the journal, of all processes."
        ),
        _one(
            "gauge",
            "votes_fold_lag_seconds",
            "oldest_pending_s",
            "Age of the oldest row of the journal.",
        ),
        _one("gauge", "votes_refused_items", "refused_items", "Items whose folds fail."),
        _one(
            "gauge",
            "votes_pending",
            "pending_votes",
            "write_behind: votes that the cache alone has.",
        ),
        _one("gauge", "votes_set_aside", "refused_votes", "write_behind: votes that SQL refused."),
        _each(
            "counter",
            "votes_replica_reads",
            "outcome",
            "Reads of read_url.",
            ok="replica_reads",
            fallback="replica_fallbacks",
        ),
        _one("gauge", "votes_replica_lag_seconds", "replica_lag_s", "Age of the replica's answer."),
    ),
    "write_behind": (
        _each("counter", "views_adds", "outcome", "Adds.", ok="adds", failed="failed_adds"),
        _one("counter", "views_losses", "losses", "Times that Redis may have lost cells."),
        _each(
            "gauge",
            "views_cells",
            "state",
            "Cells of this process: all, not known to be in SQL, and not in Redis.",
            all="cells",
            unapplied="unapplied_cells",
            pending="pending_cells",
        ),
        _one("gauge", "views_at_risk", "at_risk", "Acknowledged adds that this process alone has."),
    ),
    "sync_worker": (
        _each("counter", "worker_rounds", "outcome", "Rounds.", ok="rounds", failed="failed"),
        _each(
            "counter",
            "worker_items",
            "outcome",
            "Counts or votes, by what rounds did with them.",
            scanned="scanned",
            filled="filled",
            saved="saved",
            deleted="deleted",
            recounted="recounted",
            refused="refused",
        ),
        _each(
            "gauge",
            "worker_unsaved",
            "state",
            "Of the last round: counts or votes that were not saved as found, and votes in those.",
            unsettled="unsettled",
            at_risk="at_risk",
        ),
        _one("gauge", "worker_lag_seconds", "last_round_s", "Since a round ended well."),
    ),
    "retry_queue": (
        _one("gauge", "retry_waiting", "waiting", "Adds that wait in the retry queue."),
        _one("gauge", "retry_oldest_seconds", "oldest_age", "Age of the oldest of them."),
        _one("gauge", "retry_away", "is_away", "1 while Redis, or a cluster's primary, is away."),
        _each(
            "counter",
            "retry_adds",
            "outcome",
            "Adds of the retry queue, by what became of them.",
            queued="queued",
            replayed="replayed",
            expired="expired",
            refused="refused",
            dropped="dropped",
        ),
    ),
}

# The kind of each class, and the attribute that names an object without a name from the caller.
KINDS: tuple[tuple[tuple[type, ...], str, str], ...] = (
    ((hotcount.Limiter, aio.Limiter), "limiter", "name"),
    ((hotcount.ConcurrencyLimit, aio.ConcurrencyLimit), "concurrency_limit", "name"),
    ((hotcount.Counter, aio.Counter), "counter", "prefix"),
    ((hotcount.PeriodCounter, aio.PeriodCounter), "period_counter", "prefix"),
    ((hotcount.SlottedCounter, aio.SlottedCounter), "slotted_counter", "table"),
    ((hotcount.LiveSets, aio.LiveSets), "live_sets", "prefix"),
    ((hotcount.Votes, aio.Votes), "votes", "vote_table"),
    ((hotcount.WriteBehindCounter, aio.WriteBehindCounter), "write_behind", "table"),
    ((hotcount.SyncWorker,), "sync_worker", ""),
    ((hotcount.Memory, aio.Memory), "memory", ""),
    ((hotcount.Redis, aio.Redis), "redis", ""),
    ((hotcount.Database, aio.Database), "database", ""),
)


@dataclass(frozen=True, slots=True)
class Sample:
    metric: Metric
    labels: tuple[str, ...]
    value: Any


class Observed:
    """Objects whose stats() are read together, each under a kind and a name of its own."""

    def __init__(self, objects: tuple[Any, ...], named: dict[str, Any], timeout: float) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, not {type(timeout).__name__}")
        if not 0 < timeout <= 60:
            raise ConfigError(f"timeout is {timeout}; it takes more than 0 and at most 60 seconds")
        self._timeout = timeout
        self._objects: dict[tuple[str, str], Any] = {}
        for observed, name in [(each, None) for each in objects] + [
            (each, name) for name, each in named.items()
        ]:
            kind, found = _kind_and_name(observed)
            key = (kind, found if name is None else name)
            if key in self._objects:
                raise ConfigError(
                    f"two objects are {key[0]} {key[1]!r}: name them, as in "
                    f"Collector(first=..., second=...)"
                )
            self._objects[key] = observed

    def metrics(self) -> list[Metric]:
        """The metrics that samples() may have, each once."""
        found = {UP.name: UP, CALLS.name: CALLS}
        for kind, observed in ((key[0], each) for key, each in self._objects.items()):
            for metric in METRICS.get(kind, ()):
                found[metric.name] = metric
            if _has_retry_queue(observed):
                found |= {metric.name: metric for metric in METRICS["retry_queue"]}
        return list(found.values())

    def samples(self) -> Iterator[Sample]:
        """All samples, within the time limit. Never fails: see the metric hotcount_up."""
        deadline = time.monotonic() + self._timeout
        for (kind, name), observed in self._objects.items():
            labels = (kind, name)
            stats = _read(observed, kind, deadline)
            yield Sample(UP, labels, 0 if stats is None else 1)
            if hasattr(observed, "_calls"):
                yield from _samples((CALLS,), labels, {"calls": observed._calls()})
            if stats is not None:
                yield from _samples(METRICS.get(kind, ()), labels, stats)
                if "retry" in stats:
                    yield from _samples(METRICS["retry_queue"], labels, stats["retry"])


def _kind_and_name(observed: Any) -> tuple[str, str]:
    for classes, kind, attribute in KINDS:
        if isinstance(observed, classes):
            return kind, str(getattr(observed, attribute)) if attribute else kind
    raise TypeError(
        f"a store, limiter, counter, votes, sets or SyncWorker is needed, not "
        f"{type(observed).__name__}"
    )


def _has_retry_queue(observed: Any) -> bool:
    return getattr(observed, "retry", None) is not None


def _read(observed: Any, kind: str, deadline: float) -> Stats | None:
    """None: it cannot be read now."""
    left = deadline - time.monotonic()
    try:
        if getattr(observed, "closed", False):
            return None
        if kind == "votes":
            if left <= 0:
                return None
            # That of the aio class is awaited; the same call serves both.
            stats: Stats = hotcount.Votes.stats(observed, timeout=left)
            # Items and why: as a metric, how many.
            return (
                None
                if stats["pending_error"]
                else stats | {"refused_items": len(stats["refused_items"])}
            )
        if _has_retry_queue(observed):
            queue = observed.retry_stats()
            names = [stat for metric in METRICS["retry_queue"] for _, stat in metric.stats]
            return {"retry": {name: getattr(queue, name) for name in names}}
        read: Callable[[], Stats] | None = getattr(observed, "stats", None)
        return {} if read is None else read()
    except HotcountError:
        return None


def _samples(
    metrics: tuple[Metric, ...], labels: tuple[str, ...], stats: Stats
) -> Iterator[Sample]:
    for metric in metrics:
        for own, stat in metric.stats:
            if own == "*":  # A number for each value of the label.
                for value, number in stats[stat].items():
                    yield Sample(metric, (*labels, value), number)
            elif metric.kind == "histogram":
                buckets = {str(bound): n for bound, n in stats[f"{stat}_buckets"].items()}
                whole = {"+Inf": stats[f"{stat.removesuffix('_s')}_count"]}
                yield Sample(metric, labels, (buckets | whole, stats[f"{stat}_sum"]))
            else:
                yield Sample(metric, (*labels, own) if metric.label else labels, stats[stat])
