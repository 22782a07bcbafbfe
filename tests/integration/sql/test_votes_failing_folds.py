"""Folds that fail on the servers: what stats() and the log say of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.broken_folds import BROKEN, MANY, Broken
from tests.support.commands import run, syncing, told_to_stop
from tests.support.eventually import eventually
from tests.support.journal_side import JournalSide
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server


def told_of_folds(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage().lower())
        for record in caplog.records
        if record.name == "hotcount" and "folds of" in record.getMessage()
    ]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_folds_that_fail_are_counted_and_told_once_until_they_work(
    side: JournalSide, caplog: pytest.LogCaptureFixture, broken: Broken
) -> None:
    caplog.set_level("INFO", "hotcount")
    side.made()
    url, voter = side.voter()
    votes = hotcount.Votes(hotcount.Database(url, timeout=20), fold_interval=0.05)
    broken.begin(side, voter)

    def failing(at_least: int) -> bool:
        return int(votes.stats()["failing_folds"]) >= at_least

    for item in (1, 2):
        votes.cast(item, 1, value=MANY)
        eventually(lambda item=item: failing(item))  # type: ignore[misc]
    stats = votes.stats()
    assert stats["failed_folds"] == stats["failing_folds"]
    assert 0 < stats["failing_folds_s"] < 60
    assert broken.says in stats["fold_error"].lower()
    assert (stats["pending_rows"], stats["pending_items"], stats["pending_error"]) == (2, 2, "")
    assert [level for level, _ in told_of_folds(caplog)] == ["WARNING"]
    assert broken.says in told_of_folds(caplog)[0][1]
    broken.end(side, voter)
    assert votes.flush(20).pending == 0
    stats = votes.stats()
    assert (stats["failing_folds"], stats["failing_folds_s"], stats["fold_error"]) == (0, 0, "")
    assert (stats["failed_folds"] >= 2, side.shown(1)) == (True, MANY)
    assert [level for level, _ in told_of_folds(caplog)] == ["WARNING", "INFO"]
    assert "vote_journal work again" in told_of_folds(caplog)[1][1]


def test_a_worker_of_write_behind_tells_of_its_folds_too(
    side: JournalSide, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    votes = side.made("write_behind", cache=redis_server.url, fold_interval=0.05)
    trigger = BROKEN[0]
    trigger.begin(side, "")
    worker = votes.sync_worker()
    votes.cast(1, 1)

    def told() -> bool:
        worker.run_once(timeout=20)
        return told_of_folds(caplog) != []

    eventually(told)
    assert [level for level, _ in told_of_folds(caplog)] == ["WARNING"]
    assert trigger.says in told_of_folds(caplog)[0][1]


def test_stats_say_what_they_know_where_the_journal_cannot_be_read(side: JournalSide) -> None:
    assert "create_tables" in side.votes().stats()["pending_error"]
    side.made()
    url, voter = side.voter()
    votes = hotcount.Votes(hotcount.Database(url, timeout=20), fold_interval=3600)
    votes.cast(1, 1)
    side.run(f"REVOKE SELECT ON vote_meta FROM {voter}")

    async def asked() -> dict[str, Any]:
        async with aio.Votes(aio.Database(url, timeout=20)) as others:
            return await others.stats()

    for stats in (votes.stats(), asyncio.run(asked())):
        assert "vote_meta" in stats["pending_error"]
        assert (stats["pending_rows"], stats["oldest_pending_s"]) == (0, 0)
    assert votes.stats()["votes"] == 1
    side.run(f"GRANT SELECT ON vote_meta TO {voter}")
    stats = votes.stats()
    assert (stats["pending_error"], stats["pending_rows"]) == ("", 1)


# The server refuses each fold, or those of some items.
@pytest.mark.parametrize("broken", BROKEN[:2], ids=lambda broken: broken.name)
def test_sync_says_once_why_counts_are_not_folded(side: JournalSide, broken: Broken) -> None:
    side.made()
    side.vote(1, 1)
    url, voter = side.voter()
    broken.begin(side, voter)
    once = run("sync", "--interval", "0.01", "--db", url, "--once")
    assert once.returncode != 0
    assert broken.says in once.stderr.lower()
    with syncing("--db", url) as (process, line):
        lines = [line() for _ in range(2)]
        time.sleep(0.5)  # Rounds.
        broken.end(side, voter)
        eventually(lambda: side.shown(1) == 1)
        _, rest = told_to_stop(process)
    assert process.returncode == 0
    assert ("".join(lines) + rest).lower().count(broken.says) == 1
