"""The work of `hotcount sync`: it saves counts of a cache, or folds counts of the journal."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable
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


class _Abandoned(BaseException):
    """The round under way has taken longer than --stop-within."""


def _abandon(*_: object) -> None:
    raise _Abandoned


def _until_signals(work: Callable[[threading.Event], None], says: str, seconds: float) -> bool:
    """Calls `work` with an event that SIGINT and SIGTERM set.

    A round that goes on for so many seconds is abandoned: nothing is lost by that, because each of
    its steps is fenced or a transaction.

    Returns:
        Whether it was abandoned.
    """
    stop = threading.Event()

    def end(*_: object) -> None:
        if not stop.is_set():
            signal.setitimer(signal.ITIMER_REAL, seconds)
        stop.set()

    signal.signal(signal.SIGALRM, _abandon)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    _say(f"{says} until interrupted")
    # The time may also be over when `work` has just ended.
    try:
        try:
            work(stop)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Abandoned:
        _say(f"the round under way was abandoned after {seconds:g} s; the next worker goes on")
        return True
    return False


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
        interval=options.interval,
    )


def save_counts(
    votes: hotcount.Votes | hotcount.WriteBehindCounter, options: argparse.Namespace
) -> tuple[bool, dict[str, Any]]:
    """The counts of a cache, or its votes. Whether nothing is left unsaved; if it runs until it is
    interrupted, whether it has saved anything that it could."""
    worker = votes.sync_worker()
    if options.once:
        return _save_once(worker, options.timeout), worker.stats()
    abandoned = _until_signals(worker.run, "saving", options.stop_within)
    stats = worker.stats()
    # stats() counts an abandoned round as failed.
    return stats["rounds"] > 0 or stats["failed"] - abandoned <= 0, stats


def fold_counts(votes: hotcount.Votes, options: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    """The counts that are in the votes' tables; whether all of them are in the items' table."""
    if options.once:
        report = votes.flush(timeout=options.timeout)
        return report.pending == 0, {"rounds": 1, "failed": 0, "folded": report.acked}
    rounds = failed = folded = pending = 0

    def fold(stop: threading.Event) -> None:
        nonlocal rounds, failed, folded, pending
        said = ""
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
                if pending == 0:  # Else it has waited for items that other transactions hold.
                    # Folds at most 5 % of the time, as the processes that vote do.
                    pause = max(pause, 20 * (time.monotonic() - began))
            # Each trouble is printed once. The logger reports items whose folds fail.
            if trouble != said:
                _say(trouble or "folds work again")
                said = trouble
            if _set_within(stop, pause):
                break

    _until_signals(fold, "folding counts", options.stop_within)
    done = pending == 0 and (rounds > 0 or failed == 0)
    return done, {"rounds": rounds, "failed": failed, "folded": folded}
