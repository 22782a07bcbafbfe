"""Strategy cached where voters do not wait in one line: PostgreSQL and MariaDB.

On SQLite the write lock keeps a recount and a vote apart; here the item's row does, shared by those
that vote and held alone by those that sum.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.mysql_server import is_mysql
from tests.support.postgres_votes import in_background
from tests.support.servers import RedisServer, calls_of
from tests.support.sql_votes import make_votes, open_votes
from tests.support.sqlalchemy_side import BACKENDS, BothSides
from tests.support.together import beside, together

INT64_MAX = 2**63 - 1


def worker(votes: hotcount.Votes) -> Callable[[threading.Event], None]:
    def run(ended: threading.Event) -> None:
        while not ended.is_set():
            votes.sync_worker().run_once()

    return run


@contextmanager
def held(server: BothSides, item: int) -> Iterator[None]:
    with server.engine.begin() as connection:
        connection.execute(sa.text(f"SELECT id FROM item WHERE id = {item} FOR UPDATE"))
        yield


def assert_exact(server: BothSides, votes: hotcount.Votes) -> None:
    """After a drain: the item table, the cache and the votes agree."""
    report = votes.flush(30)
    assert (report.pending, report.at_risk) == (0, 0)
    rows = server.run(
        "SELECT id, vote_count, (SELECT COALESCE(SUM(val), 0) FROM vote WHERE item_id = item.id)"
        " FROM item ORDER BY id"
    )
    assert [int(row[1]) for row in rows] == [int(row[2]) for row in rows]
    assert [int(c) for c in votes.count_many([row[0] for row in rows])] == [int(r[2]) for r in rows]
    assert votes.reconcile(dry_run=True) == []


def test_votes_workers_fills_and_recounts_at_once_come_out_right(server: BothSides) -> None:
    # A retention that passes at once: hashes are deleted and born all the time.
    store = hotcount.Memory()
    several = [make_votes(server, "cached", cache=store, retention=0.001, page=2) for _ in range(3)]

    def work(index: int) -> None:
        draw = random.Random(index)
        for _ in range(15):
            several[index % 3].cast(draw.randint(1, 3), draw.randint(1, 9), draw.randint(-2, 2))

    with beside(worker(several[0]), worker(several[0])):
        together(work, 16)
    assert_exact(server, several[0])


def test_a_recount_waits_for_the_votes_under_way_and_for_no_others(server: BothSides) -> None:
    """A vote that a recount did not see, and whose epoch is of before it, would be in no count."""
    votes = make_votes(server, "cached")
    elsewhere = make_votes(server, "cached")
    votes.cast_many([1] * 5, range(5))

    def work(index: int) -> None:
        for number in range(10):
            votes.cast(1 + number % 3, 100 + index, number)

    # Two caches over one database: each fill of one has the other's items recounted.
    with beside(worker(votes), worker(elsewhere)):
        together(work, 12)
        elsewhere.cast(1, 99)
    eventually(lambda: votes.sync_worker().run_once().unsettled == 0)
    votes.reconcile()
    assert_exact(server, votes)


def test_reconcile_drops_what_a_recount_for_another_cache_left_behind(server: BothSides) -> None:
    """No worker looks at SQL for a hash that is saved, and its count is of before the recount."""
    votes = make_votes(server, "cached")
    elsewhere = make_votes(server, "cached")
    votes.cast_many([1, 2], [1, 1])
    assert votes.flush(30).pending == 0
    elsewhere.cast(1, 99)
    assert elsewhere.sync_worker().run_once().recounted == 1
    assert int(votes.count(1)) == 1
    drift = [hotcount.Drift(1, 1, 2)]
    assert votes.reconcile(dry_run=True) == drift
    assert int(votes.count(1)) == 1
    assert votes.reconcile([2, 1]) == drift
    assert_exact(server, votes)


def forget_counts(server: BothSides, balance: int) -> None:
    """As of a table that was never counted, with an opening balance."""
    server.run(
        "DELETE FROM vote_meta",
        "DELETE FROM vote_sync",
        f"UPDATE item SET vote_count = {balance} WHERE id = 1",
    )


def test_votes_at_once_never_take_a_wide_balance_out_of_64_bits(server: BothSides) -> None:
    most = 2**31 - 1
    make_votes(server, "cached")
    forget_counts(server, INT64_MAX - 3 * most)
    store = hotcount.Memory()
    several = [open_votes(server, "cached", cache=store) for _ in range(4)]
    several[0].create_tables(existing_counts="keep")

    def work(index: int) -> int:
        try:
            several[index % 4].cast(1, index, most)
        except hotcount.CounterOverflowError:
            return 0
        return 1

    assert sum(together(work, 12)) == 3
    assert int(several[0].count(1, consistency="exact")) == INT64_MAX
    assert several[0].flush(30).pending == 0
    assert several[0].reconcile(dry_run=True) == []


def test_tables_that_change_hands_under_load_keep_every_vote(server: BothSides) -> None:
    cached = make_votes(server, "cached")
    batched = open_votes(server, "batched")
    refused: list[BaseException] = []

    def work(index: int) -> None:
        if index == 0:
            batched.create_tables(timeout=20)
            return
        for number in range(10):
            try:
                cached.cast(1, 100 * index + number)
            except hotcount.ConfigError as error:
                refused.append(error)
                batched.cast(1, 100 * index + number)

    together(work, 8)
    assert int(batched.count(1)) == 70
    assert batched.reconcile(dry_run=True) == []


def test_a_worker_saves_ten_thousand_items_in_sixty_statements(server: BothSides) -> None:
    items = range(1, 10_001)
    votes = make_votes(server, "cached", items=items)
    votes.cast_many(items, [1] * len(items))
    assert votes.flush(60).pending == 0
    votes.cast_many(items, [2] * len(items))
    saver = votes.sync_worker()
    before = server.database.stats()
    round = saver.run_once(timeout=60)
    after = server.database.stats()
    assert (round.saved, round.unsettled) == (len(items), 0)
    saved = after["transactions"] - before["transactions"]
    assert after["statements"] - before["statements"] <= 60
    # Locks are held for 250 items, whose statement is a transaction, or a page of 1,000.
    assert saved == (40 if server.dialect == "postgresql" else 10)
    assert server.run("SELECT MIN(vote_count), MAX(vote_count) FROM item") == [(2, 2)]


def test_a_page_of_recounts_takes_no_statement_for_each_item(server: BothSides) -> None:
    items = range(1, 101)
    votes = make_votes(server, "cached", items=items)
    votes.cast_many(items, [1] * len(items))
    # Each fill of another cache has its items recounted.
    elsewhere = make_votes(server, "cached")
    elsewhere.cast_many(items, [2] * len(items))
    before = server.database.stats()["statements"]
    assert elsewhere.sync_worker().run_once(timeout=60).recounted == len(items)
    assert server.database.stats()["statements"] - before <= 25
    assert elsewhere.flush(30).pending == 0
    assert votes.reconcile() != []
    assert_exact(server, elsewhere)


def test_a_batch_is_one_call_of_the_cache_and_no_statement_for_each_item(
    server: BothSides, own_redis: RedisServer
) -> None:
    items = range(1, 65)
    with own_redis.redis(timeout=20) as redis:
        votes = make_votes(server, "cached", cache=redis, items=items)
        votes.cast_many(items, [1] * len(items))  # And the fills.
        before, calls = server.database.stats()["statements"], calls_of(redis, "evalsha")
        casts = votes.cast_many(items, [2] * len(items))
        sent = server.database.stats()["statements"] - before
        assert all(cast.changed for cast in casts)
        assert calls_of(redis, "evalsha") - calls == 1
        # The votes, and on MariaDB what reads the epochs and commits. MySQL looks at the items and
        # at the votes first, and its COMMIT is a statement of its own.
        assert sent <= (1 if server.dialect == "postgresql" else 6 if is_mysql() else 3)
        assert_exact(server, votes)


def test_first_votes_of_many_items_are_filled_with_one_statement_and_one_call(
    server: BothSides, own_redis: RedisServer
) -> None:
    with own_redis.redis(timeout=20) as redis:
        votes = make_votes(server, "cached", cache=redis, items=range(1, 131))
        votes.cast_many(range(1, 65), [1] * 64)  # Scripts and statements are known then.
        before, calls = server.database.stats()["statements"], calls_of(redis, "evalsha")
        votes.cast_many(range(65, 129), [1] * 64)
        # The batch as above, and the fill, which commits by itself; on MySQL in six statements.
        at_most = 2 if server.dialect == "postgresql" else 12 if is_mysql() else 4
        assert server.database.stats()["statements"] - before <= at_most
        assert calls_of(redis, "evalsha") - calls == 2
        round = votes.sync_worker().run_once(timeout=20)
        assert (round.filled, round.recounted, round.saved) == (0, 0, 128)
        assert_exact(server, votes)


def test_a_fill_does_not_wait_for_transactions_that_share_the_item(
    server: BothSides, own_redis: RedisServer
) -> None:
    """As those of voters do."""
    share = {"postgresql": "FOR SHARE", "mariadb": "LOCK IN SHARE MODE"}[server.dialect]
    with own_redis.redis(timeout=20) as redis:
        votes = make_votes(server, "cached", cache=redis)
        with server.engine.begin() as connection:
            connection.execute(sa.text(f"SELECT id FROM item WHERE id = 1 {share}"))
            votes.cast(1, 1, timeout=20)
            (key,) = redis.execute("KEYS", "votes:*")
            assert redis.execute("HGET", key, "gen") == b"1"
        assert_exact(server, votes)


def test_a_held_item_stops_its_own_votes_only(server: BothSides) -> None:
    votes = make_votes(server, "cached")
    votes.cast_many([1, 2, 3], [1, 1, 1])
    with held(server, 1):
        waiting = in_background(lambda: votes.cast(1, 2))
        eventually(lambda: votes.stats()["held_votes"] == 1)
        fired("held row")
        assert all(cast.changed for cast in votes.cast_many([2, 3], [2, 2]))
        assert int(votes.count(1)) == 1
    assert waiting().changed
    assert int(votes.count(1)) == 2
    assert_exact(server, votes)


@pytest.mark.parametrize("server", BACKENDS[1:2], indirect=True)
def test_an_item_held_for_long_keeps_the_worker_from_no_other_and_stops_no_other_vote(
    server: BothSides,
) -> None:
    votes = make_votes(server, "cached")
    votes.cast_many([1, 2, 3], [1, 1, 1])
    saver = votes.sync_worker()
    with held(server, 2):
        found = saver.run_once(timeout=20)
        assert (found.saved, found.unsettled) == (2, 1)
        assert all(cast.changed for cast in votes.cast_many([1, 3], [2, 2]))
    assert saver.run_once(timeout=20).saved == 3
    assert_exact(server, votes)


def test_items_whose_sum_is_checked_keep_their_votes_in_order(server: BothSides) -> None:
    """They are written apart from the batch, and so are later votes for them."""
    make_votes(server, "cached")
    forget_counts(server, 2**40)
    votes = open_votes(server, "cached")
    votes.create_tables(existing_counts="keep")
    casts = votes.cast_many([2, 1, 1, 1, 3, 1], [1, 1, 1, 1, 1, 2], [1, 5, 7, 9, 1, 1])
    assert [cast.previous for cast in casts] == [0, 0, 5, 7, 0, 0]
    assert [int(count) for count in votes.count_many([1, 2, 3])] == [2**40 + 10, 1, 1]
    assert votes.flush(30).pending == 0
    assert votes.reconcile(dry_run=True) == []
