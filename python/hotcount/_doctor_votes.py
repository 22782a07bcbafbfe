"""`hotcount doctor` on the tables of Votes: whether folds work, and whether a process folds."""

from __future__ import annotations

import time
from typing import Any

import hotcount
from hotcount._doctor_finding import Finding

CONCERNED = ("votes", "write_behind")
# Journal rows older than LATE seconds mean that no process folds, unless fold_interval is longer.
# The pause after a slow fold is PAUSE times its duration, at most LONGEST seconds.
LATE = 10.0
PAUSE = 20
LONGEST = 60.0
# Within WATCH seconds a process with an open Votes finds new journal rows and folds them.
WATCH = 7.0
STEP = 0.5
TIMEOUT = 5.0
DEFAULT_TABLE = "vote"

STAYS = (
    "count() is exact and the items' own counts stand still; once the cause is gone, the next "
    "process that votes folds, or `hotcount sync`"
)
NOBODY = (
    "a process with an open Votes that has voted or read counts, or `hotcount sync --db URL`; "
    "fold_interval may be longer than that"
)
SLOW = "end the session that has a lock, if one has; else a trigger or the disk makes folds slow"
UNSEEN = (
    "create_tables(outside_writes='deletes') or what `hotcount schema --outside-writes deletes` "
    "prints, then reconcile(); on MariaDB and MySQL ON DELETE RESTRICT and erase_user()"
)
LOGIN = (
    "the login of a process that votes, with SELECT, INSERT, UPDATE and DELETE on the tables; "
    "--vote-table, --item-table and others if they have other names"
)


def examine(database: hotcount.Database, names: dict[str, Any]) -> list[Finding]:
    """The findings; empty if the default tables do not exist or have no journal."""
    votes = hotcount.Votes(database, **names)
    began = time.monotonic()
    outcome, why = votes._try_fold(TIMEOUT)
    late = max(LATE, min(PAUSE * (time.monotonic() - began), LONGEST))
    if outcome == "absent":
        if votes.vote_table == DEFAULT_TABLE:
            return []
        nothing = f"nothing to fold: there is no table {votes.vote_table}, or it has no journal"
        return [Finding("folds", "ok", nothing)]
    stats = votes.stats(timeout=TIMEOUT)
    # The oldest row may be that of a vote cast just now, after a pause of all voters: look again.
    until = time.monotonic() + WATCH
    while outcome == "works" and is_late(stats, late) and time.monotonic() < until:
        time.sleep(STEP)
        stats = votes.stats(timeout=TIMEOUT)
    return [finding_of(outcome, why, stats, late), *outside(stats)]


def outside(stats: dict[str, Any]) -> list[Finding]:
    """Whether the application's own deletes reach the counts."""
    if not (form := stats.get("outside_writes")):
        return []
    if cascades := stats["uncounted_cascades"]:
        found = f"no trigger counts votes that are deleted by {', '.join(cascades)}"
        return [Finding("outside writes", "unsafe", found, CONCERNED, UNSEEN)]
    counted = {"none": "none", "deletes": "deleted rows", "count": "all rows"}[form]
    found = f"rows of other programs in the vote table that are counted: {counted}"
    return [Finding("outside writes", "ok", found)]


def is_late(stats: dict[str, Any], late: float) -> bool:
    return bool(stats["oldest_pending_s"] > late)


def finding_of(outcome: str, why: str, stats: dict[str, Any], late: float) -> Finding:
    waits = pending_text(stats)
    if outcome == "fails":
        return Finding("folds", "unsafe", f"a fold fails: {why}; {waits}", CONCERNED, STAYS)
    if is_late(stats, late):
        said = f"; {why}" if why else ""
        return Finding("folds", "warning", f"nobody folds: {waits}{said}", CONCERNED, NOBODY)
    if outcome == "waits":
        found = f"a fold did not end within {TIMEOUT:g} s: {why}; {waits}"
        return Finding("folds", "warning", found, CONCERNED, SLOW)
    if outcome == "untried":
        return Finding("folds", "unknown", f"not tried: {why}; {waits}", CONCERNED, LOGIN)
    if stats["pending_error"]:
        return Finding("folds", "unknown", waits, CONCERNED, LOGIN)
    return Finding("folds", "ok", f"a trial fold works; {waits}")


def pending_text(stats: dict[str, Any]) -> str:
    if stats["pending_error"]:
        return f"the journal cannot be read: {stats['pending_error']}"
    rows, items = stats["pending_rows"], stats["pending_items"]
    if not rows:
        return "nothing waits"
    return (
        f"{rows:,} journal rows of {items:,} items wait, and the last fold that found rows was "
        f"{stats['oldest_pending_s']:,.0f} s ago"
    )
