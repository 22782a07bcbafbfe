"""Folds of the votes' journal on the servers: when they come, and what is in their way."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.broken_folds import BROKEN, MANY, Broken
from tests.support.commands import run, syncing, told_to_stop
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.journal_side import JournalSide
from tests.support.servers import PostgresDatabase, RedisServer
from tests.support.sql_votes import open_votes
from tests.support.together import beside, in_thread, together

pytestmark = pytest.mark.server

FAILS_FOR_2 = {
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.id = 2 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER refuse BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "mysql": (
        "CREATE TRIGGER refuse BEFORE UPDATE ON item FOR EACH ROW"
        " IF NEW.id = 2 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
    ),
}
FAILS_NO_MORE = {"postgresql": "DROP TRIGGER refuse ON item", "mysql": "DROP TRIGGER refuse"}


def test_a_count_is_exact_whether_or_not_its_votes_are_folded(side: JournalSide) -> None:
    votes = side.made()
    side.vote(1, 1, 2, 3)
    side.vote(2, 1)
    for shown, pending in ((0, 2), (3, 0)):
        assert [int(count) for count in votes.count_many([1, 2, 3, 1])] == [3, 1, 0, 3]
        assert (side.shown(), side.seen(), side.pending()) == (shown, 3, pending)
        votes.flush(20)


def test_votes_that_nobody_folds_are_counted_and_named_as_pending(side: JournalSide) -> None:
    votes = side.made()
    side.vote(1, 1, 2)
    side.vote(2, 1)
    stats = votes.stats()
    assert (stats["pending_rows"], stats["pending_items"], stats["folds"]) == (2, 2, 0)
    assert 0 < stats["oldest_pending_s"] < 600
    assert int(votes.count(1)) == 2
    # Another process comes and folds them.
    assert side.votes().flush(20).acked == 2
    assert (side.shown(1), side.shown(2), votes.stats()["pending_rows"]) == (2, 1, 0)


def test_create_tables_of_a_process_that_comes_leaves_the_journal_to_those_who_vote(
    side: JournalSide,
) -> None:
    side.made()
    side.vote(1, 1)
    side.votes().create_tables(timeout=20)
    assert side.pending() == 1


def test_folds_of_several_processes_at_once_add_each_vote_once(side: JournalSide) -> None:
    folders = [side.made(), *(side.votes() for _ in range(3))]

    def work(index: int) -> None:
        for k in range(6):
            side.vote(1 + k % 3, 100 * index + k)
            folders[index % len(folders)].flush(20)

    together(work)
    folders[0].flush(20)
    counts = [int(count) for count in folders[0].count_many([1, 2, 3])]
    assert [side.shown(item) for item in (1, 2, 3)] == counts
    assert sum(counts) == side.number("SELECT COUNT(*) FROM vote")
    assert folders[0].reconcile(dry_run=True) == []


def test_the_room_of_folded_rows_is_given_back_after_ten_folds(postgres: PostgresDatabase) -> None:
    side = JournalSide(postgres)
    votes = side.made()
    for user in range(10):
        side.vote(1, user)
        votes.flush(20)
    vacuumed = (
        "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = current_schema()"
        " AND relname = 'vote_journal'"
    )
    eventually(lambda: side.number(vacuumed) == 1)


def test_a_flush_is_over_by_its_timeout_where_the_vacuum_takes_longer(
    postgres: PostgresDatabase,
) -> None:
    slow = "vacuum_cost_delay = 100", "vacuum_cost_limit = 1"
    role = postgres.role(*slow, options="SUPERUSER")
    side = JournalSide(postgres)
    side.made()
    side.run("INSERT INTO vote_journal (item, diff) SELECT 1, 0 FROM generate_series(1, 30000)")
    votes = hotcount.Votes(hotcount.Database(postgres.url_for(role), timeout=60))
    begun = time.monotonic()
    report = votes.flush(5)
    assert time.monotonic() - begun < 15
    assert (report.acked, report.pending) == (1, 0)
    assert side.pending() == 0


def test_an_item_in_several_pages_of_a_flush_is_reported_once(side: JournalSide) -> None:
    votes = side.made()
    for _ in range(5):
        side.run(
            "INSERT INTO vote_journal (item, diff) VALUES " + ", ".join(["(1, 0), (2, 0)"] * 5_000)
        )
    assert side.pending() == 50_000
    report = votes.flush(30)
    assert (report.acked, report.pending) == (2, 0)
    assert side.pending() == 0


def test_a_role_that_may_not_vacuum_writes_nothing_into_the_servers_log(
    postgres: PostgresDatabase,
) -> None:
    JournalSide(postgres).made()
    log = postgres.server.folder / "server.log"
    before = log.stat().st_size
    with open_votes(postgres.url_for(postgres.voter()), "batched", fold_interval=3600) as votes:
        votes.create_tables()
        for user in range(10):
            votes.cast(1, user)
            assert votes.flush(20).pending == 0
    assert 'WARNING:  skipping "vote_journal"' not in log.read_text()[before:]


@pytest.mark.parametrize("level", ["serializable", "repeatable%20read"])
def test_folds_at_once_fail_for_no_level_of_isolation_that_sessions_begin_with(
    postgres: PostgresDatabase, level: str
) -> None:
    side = JournalSide(postgres)
    side.made()
    option = f"%20-cdefault_transaction_isolation%3D{level.replace('%20', '%5C%20')}"
    url = postgres.url_for("hotcount", option)
    folders = [open_votes(url, "batched") for _ in range(4)]

    def work(index: int) -> None:
        for user in range(8):
            side.vote(1 + user % 3, 100 * index + user)
            folders[index].flush(20)

    together(work, 4)
    assert sum(side.shown(item) for item in (1, 2, 3)) == 4 * 8
    assert [folder.stats()["failed_folds"] for folder in folders] == [0, 0, 0, 0]


def test_an_item_that_folds_fail_for_keeps_its_votes_and_stops_nobody(side: JournalSide) -> None:
    votes = side.made()
    votes.add_items(list(range(4, 40)))
    side.run(*FAILS_FOR_2[side.dialect])
    for item in (1, 2, 3, *range(4, 40)):
        side.vote(item, 1, 2)
    report = votes.flush(20)
    assert (report.acked, report.pending) == (38, 1)
    assert (side.shown(1), side.shown(2), side.shown(39)) == (2, 0, 2)
    refused = votes.stats()["refused_items"]
    assert list(refused) == [2]
    assert "not this one" in refused[2]
    assert [int(count) for count in votes.count_many([1, 2])] == [2, 2]
    side.run(FAILS_NO_MORE[side.dialect])
    assert votes.flush(20).pending == 0
    assert (side.shown(2), votes.stats()["refused_items"]) == (2, {})


@pytest.mark.long
def test_an_item_that_is_due_again_while_a_flush_folds_is_pending(side: JournalSide) -> None:
    votes = side.made()
    side.run(*FAILS_FOR_2[side.dialect])
    side.vote(1, 1)
    side.vote(2, 1)
    begun = time.monotonic()
    assert votes.flush(20).pending == 1
    refused = time.monotonic()
    side.vote(1, 2)
    time.sleep(20)
    with side.session() as other:
        other.execute("SELECT n FROM vote_cell WHERE item = 1 FOR UPDATE")
        flushed = in_thread(lambda: votes.flush(60))
        eventually(lambda: side.waits() > 0)
        assert time.monotonic() - begun < 30
        time.sleep(max(refused + 30.5 - time.monotonic(), 0))
        other.commit()
    assert flushed().pending == 1
    assert (side.shown(1), side.shown(2), side.pending()) == (2, 0, 1)
    assert list(votes.stats()["refused_items"]) == [2]


def test_a_count_that_leaves_64_bits_stops_no_other_items_fold(side: JournalSide) -> None:
    votes = side.made()
    side.run(
        f"INSERT INTO vote_cell (item, slot, n, ver) VALUES (1, -1, {2**63 - 1}, 1)",
        "INSERT INTO vote_journal (item, diff) VALUES (1, 1), (2, 1)",
    )
    votes.flush(20)
    assert list(votes.stats()["refused_items"]) == [1]
    assert (side.shown(2), side.pending()) == (1, 1)


def test_an_item_whose_row_is_gone_is_folded_and_asks_for_no_more(side: JournalSide) -> None:
    votes = side.made()
    side.run("INSERT INTO vote_journal (item, diff) VALUES (99, 5)")
    assert votes.flush(20).pending == 0
    assert side.pending() == 0
    # Made again by hand it would count on: reconcile finds what it left.
    (drift,) = votes.reconcile()
    assert (drift.item, drift.counted, drift.actual) == (99, 5, 0)
    assert int(votes.count(99)) == 0


def test_a_row_amid_many_that_its_voter_has_yet_to_commit_is_left_alone(side: JournalSide) -> None:
    votes = side.made()
    many = "INSERT INTO vote_journal (item, diff) VALUES " + ", ".join(["(2, 0)"] * 50)
    side.run(many)
    with side.session() as other:
        other.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 2, 1, 0)")
        other.execute("INSERT INTO vote_journal (item, diff) VALUES (1, 1)")
        side.run(many)
        assert side.pending() == 100
        votes.flush(20)
        assert side.pending() == 0
        other.commit()
    assert (int(votes.count(1)), side.pending()) == (1, 1)


def test_adding_items_that_are_there_waits_for_no_open_transaction(side: JournalSide) -> None:
    """As an application does when it starts."""
    votes = side.made()
    with side.session() as other:
        other.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 2, 1, 0)")
        votes.add_items([1, 2, 3, 4], timeout=10)
    assert votes.cast(4, 1).changed


def test_a_voter_in_an_old_snapshot_sees_the_count_that_it_had(side: JournalSide) -> None:
    """A dump's: what folds take out of the journal is still there for it."""
    votes = side.made()
    side.vote(1, 1, 2)
    with side.session() as dump:
        dump.commit()
        if side.dialect == "postgresql":
            dump.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert dump.execute("SELECT n FROM vote_count WHERE item = 1")[0][0] == 2
        side.vote(1, 3)
        votes.flush(20)
        assert dump.execute("SELECT n FROM vote_count WHERE item = 1")[0][0] == 2
    assert side.seen() == 3


def test_an_item_that_voters_hold_in_turns_is_shown(side: JournalSide) -> None:
    """Shared locks, as foreign keys' checks take on MariaDB: there is always one."""
    votes = side.made()
    side.vote(1, 1)
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    share = "LOCK IN SHARE MODE" if side.dialect == "mysql" else "FOR KEY SHARE"

    def hold(done: threading.Event, index: int) -> None:
        with side.session() as session:
            while not done.is_set():
                if not turns[index].acquire(timeout=0.1):
                    continue
                session.execute(f"SELECT id FROM item WHERE id = 1 {share}")
                # The other one takes it before this one lets it go.
                turns[1 - index].release()
                done.wait(0.02)
                session.commit()

    with beside(partial(hold, index=0), partial(hold, index=1)):
        assert votes.flush(25).pending == 0
        assert side.shown() == 1


def test_a_vote_is_shown_without_a_flush(side: JournalSide) -> None:
    votes = side.made(fold_interval=0.05)
    votes.cast(1, 1)
    eventually(lambda: side.shown() == 1)
    votes.cast(1, 2)
    eventually(lambda: side.shown() == 2)
    eventually(lambda: votes.stats()["pending_rows"] == 0)
    assert votes.stats()["folds"] >= 1


@pytest.mark.parametrize(("folded_s_ago", "took_s"), [(-3600, 0), (65, 3600)])
def test_a_servers_clock_that_jumps_keeps_no_folds_away(
    side: JournalSide, folded_s_ago: float, took_s: float
) -> None:
    """Back by an hour; forward by one while a fold ran."""
    votes = side.made(fold_interval=0.05)
    folded_at = int((time.time() - folded_s_ago) * 1_000_000)
    took = int(took_s * 1_000_000)
    side.run(
        f"UPDATE vote_meta SET value = '{folded_at}' WHERE name = 'folded_at'",
        f"UPDATE vote_meta SET value = '{took}' WHERE name = 'fold_took'",
    )
    fired("clock")
    votes.cast(1, 1)
    assert votes.stats()["oldest_pending_s"] >= 0
    eventually(lambda: side.shown() == 1)


def test_a_process_that_begins_to_vote_folds_what_others_left(side: JournalSide) -> None:
    side.made()
    side.vote(2, 1)
    side.run("UPDATE vote_meta SET value = '1' WHERE name = 'folded_at'")
    votes = side.votes(fold_interval=0.05)
    votes.cast(1, 1)
    eventually(lambda: (side.shown(1), side.shown(2)) == (1, 1))


def test_the_background_comes_back_for_an_item_that_was_held(side: JournalSide) -> None:
    # Without the key, whose check of a vote would wait for the other on MariaDB.
    votes = side.made(fold_interval=0.05, foreign_key=False)
    with side.session() as other:
        other.execute("UPDATE item SET vote_count = 0 WHERE id = 2")
        side.vote(2, 1)
        votes.cast(1, 1)
        eventually(lambda: votes.stats()["held_items"] == 1)
        eventually(lambda: side.shown(1) == 1)
    eventually(lambda: side.shown(2) == 1)
    eventually(lambda: votes.stats()["held_items"] == 0)


def test_pages_of_held_items_alone_are_put_back_once(side: JournalSide) -> None:
    """More than a page holds, as an UPDATE of the whole table does it."""
    votes = side.made()
    votes.add_items(list(range(4, 20_101)))
    side.run("INSERT INTO vote_journal (item, diff) SELECT id, 0 FROM item")
    side.run("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 1, 1, 0)")
    with side.session() as other:
        other.execute("SELECT id FROM item FOR UPDATE")
        assert len(votes.reconcile([1], timeout=20)) == 1
        stats = votes.stats()
        assert stats["folds"] <= 3
        assert (stats["held_items"] >= 20_000, stats["pending_items"]) == (True, 20_100)
    report = votes.flush(25)
    assert report.pending == 0
    assert (side.pending(), side.shown(1)) == (0, 1)
    assert votes.stats()["held_items"] == 0


def test_a_process_that_votes_in_slots_folds_too(side: JournalSide) -> None:
    votes = side.made("slotted", fold_interval=0.05)
    votes.cast_many([1] * 15 + [2], range(1, 17))
    eventually(lambda: (side.shown(1), side.shown(2)) == (15, 1))
    assert votes.retract(1, 1).changed
    assert votes.toggle(1, 2).changed
    eventually(lambda: side.shown(1) == 13)
    eventually(lambda: side.pending() == 0)
    assert votes.stats()["folds"] >= 2
    assert votes.reconcile(dry_run=True) == []


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
        eventually(partial(failing, item))
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
