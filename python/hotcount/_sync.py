"""What `hotcount sync` does with the counts, by where they are."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from typing import Any

import hotcount


def _say(text: str) -> None:
    print(f"hotcount sync: {text}", file=sys.stderr, flush=True)


def _save_once(worker: hotcount.SyncWorker, timeout: float) -> bool:
    """Rounds until nothing is left unsaved; False where that took too long."""
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if worker.run_once(timeout=left).unsettled == 0:
            return True


def stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _set_within(stop: threading.Event, seconds: float) -> bool:
    """Without its wait(): a handler that came while that holds the event's lock would wait for the
    lock for ever when it sets the event."""
    deadline = time.monotonic() + seconds
    while not stop.is_set():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, 0.02))
    return True


def open_views(options: argparse.Namespace) -> hotcount.WriteBehindCounter:
    """The WriteBehindCounter that --views names."""
    return hotcount.WriteBehindCounter(
        options.db,
        options.cache,
        options.views,
        options.prefix,
        page=options.page,
        interval=options.interval,
    )


class _Told:
    """The event that stops a worker, which says meanwhile when rounds begin to fail, when they work
    again, and when votes were set aside: whoever cast them has been told that they count."""

    def __init__(self, worker: hotcount.SyncWorker, stop: threading.Event) -> None:
        self._worker, self._stop = worker, stop
        self._seen = worker.stats()
        self._fails = False

    def is_set(self) -> bool:
        stats, seen = self._worker.stats(), self._seen
        self._seen = stats
        if stats["failed"] > seen["failed"] and not self._fails:
            self._fails = True
            _say(stats["last_error"])
        elif stats["rounds"] > seen["rounds"] and self._fails:
            self._fails = False
            _say("rounds work again")
        if (refused := stats["refused"] - seen["refused"]) > 0:
            _say(f"{refused} votes that the database refuses were set aside")
        return self._stop.is_set()


def save_counts(
    votes: hotcount.Votes | hotcount.WriteBehindCounter, options: argparse.Namespace
) -> tuple[bool, dict[str, Any]]:
    """The counts of a cache, or its votes. Whether nothing is left unsaved; if it runs until it is
    interrupted, whether it has saved anything that it could."""
    worker = votes.sync_worker()
    if options.once:
        return _save_once(worker, options.timeout), worker.stats()
    stop = stopped_by_signals()
    _say("saving until interrupted")
    worker.run(_Told(worker, stop))  # type: ignore[arg-type]
    stats = worker.stats()
    return stats["rounds"] > 0 or stats["failed"] == 0, stats


def fold_counts(votes: hotcount.Votes, options: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    """The counts that are in the votes' tables; whether all of them are in the items' table."""
    if options.once:
        report = votes.flush(timeout=options.timeout)
        return report.pending == 0, {"rounds": 1, "failed": 0, "folded": report.acked}
    rounds = failed = folded = pending = 0
    said = ""
    stop = stopped_by_signals()
    _say("folding counts until interrupted")
    while True:
        began = time.monotonic()
        pause, trouble = options.interval, ""
        try:
            report = votes.flush()
        except hotcount.ConfigError:
            raise
        except hotcount.HotcountError as error:
            # A server that is away: the counts are safe where they are.
            failed, trouble = failed + 1, str(error)
        else:
            rounds, folded, pending = rounds + 1, folded + report.acked, report.pending
            if pending == 0:  # Else it has waited for items that somebody holds.
                # A twentieth of the time at most, as the processes that vote do.
                pause = max(pause, 20 * (time.monotonic() - began))
        # Each round would say the same. Of items that folds fail for the logger tells.
        if trouble != said:
            _say(trouble or "folds work again")
            said = trouble
        if _set_within(stop, pause):
            done = pending == 0 and (rounds > 0 or failed == 0)
            return done, {"rounds": rounds, "failed": failed, "folded": folded}
