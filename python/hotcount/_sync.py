"""What `hotcount sync` does with the counts, by where they are."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
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


@contextlib.contextmanager
def _until_signals(seconds: float) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set. A round that goes on for so many seconds is abandoned:
    nothing is lost by that, because each of its steps is fenced or a transaction."""
    stop = threading.Event()

    def end(*_: object) -> None:
        if not stop.is_set():
            signal.setitimer(signal.ITIMER_REAL, seconds)
        stop.set()

    signal.signal(signal.SIGALRM, _abandon)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        yield stop
    except _Abandoned:
        _say(f"the round under way was abandoned after {seconds:g} s; the next worker goes on")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


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


def save_counts(
    votes: hotcount.Votes | hotcount.WriteBehindCounter, options: argparse.Namespace
) -> tuple[bool, dict[str, Any]]:
    """The counts of a cache, or its votes. Whether nothing is left unsaved; if it runs until it is
    interrupted, whether it has saved anything that it could."""
    worker = votes.sync_worker()
    if options.once:
        return _save_once(worker, options.timeout), worker.stats()
    _say("saving until interrupted")
    with _until_signals(options.stop_within) as stop:
        worker.run(stop)
    stats = worker.stats()
    return stats["rounds"] > 0 or stats["failed"] == 0, stats


def fold_counts(votes: hotcount.Votes, options: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    """The counts that are in the votes' tables; whether all of them are in the items' table."""
    if options.once:
        report = votes.flush(timeout=options.timeout)
        return report.pending == 0, {"rounds": 1, "failed": 0, "folded": report.acked}
    rounds = failed = folded = pending = 0
    said = ""
    _say("folding counts until interrupted")
    with _until_signals(options.stop_within) as stop:
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
                break
    done = pending == 0 and (rounds > 0 or failed == 0)
    return done, {"rounds": rounds, "failed": failed, "folded": folded}
