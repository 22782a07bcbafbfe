"""Streams of write_behind that do not become empty: deletions end, and no stream starves."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import hotcount
import numpy as np
import pytest
import sqlalchemy as sa

from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.sqlalchemy_side import BothSides, both_sides

Make = Callable[..., hotcount.Votes]
_numbers = itertools.count()
# In streams 0, 1 and 6.
HOT, COLD = (5, 17), 700


@pytest.fixture
def make(sides: BothSides, redis_server: RedisServer) -> Iterator[Make]:
    prefix = f"busy{next(_numbers)}:"
    with (
        hotcount.Redis(redis_server.url, prefix=prefix, timeout=20) as redis,
        hotcount.Database(sides.url, timeout=20) as database,
    ):

        def make(**options: Any) -> hotcount.Votes:
            votes = hotcount.Votes(database, redis, "write_behind", **options)
            votes.create_tables()
            votes.add_items([*range(1, 21), COLD])
            return votes

        yield make


@contextmanager
def beside(run: Callable[[threading.Event], object]) -> Iterator[None]:
    """run(stop) in a thread, until the end; pytest reports its error."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


DELETES: dict[str, Callable[[hotcount.Votes], int]] = {
    "erase_user": lambda votes: votes.erase_user(7, timeout=40),
    "remove_item": lambda votes: votes.remove_item(1, timeout=40),
}


@pytest.mark.parametrize("deletes", DELETES)
def test_votes_that_are_cast_during_a_deletion_stay_and_count(make: Make, deletes: str) -> None:
    votes = make(interval=0.001)
    votes.cast(1, 99)
    told: list[int] = []
    users = [7] if deletes == "erase_user" else [*range(7, 17)]

    def cast(stop: threading.Event) -> None:
        while not stop.wait(0.01):  # Faster, and the streams become full.
            value = len(told) + 1
            for user in users:
                votes.cast_many([1, 2, 3], [user] * 3, [value] * 3)
            told.append(value)

    def comes(more: int) -> None:
        least = len(told) + more
        eventually(lambda: len(told) >= least)

    with beside(votes.sync_worker().run):
        with beside(cast):
            for _ in range(3):
                comes(20)
                DELETES[deletes](votes)
            comes(2)
        last = told[-1]
        assert votes.flush(timeout=20).at_risk == 0
        for item in (1, 2, 3):
            assert [votes.get(item, user) for user in users] == [last] * len(users)
        gone = deletes == "remove_item"
        assert votes.get(1, 99) == (0 if gone else 1)
        assert votes.reconcile() == []
        assert int(votes.count(1)) == last * len(users) + (0 if gone else 1)


def test_streams_that_are_full_keep_no_other_from_its_turn(make: Make) -> None:
    votes = make(interval=0.001, workers=2, max_pending=100_000)
    waiting = 90_000  # A busy machine asks for the cold item's vote a second late.
    for hot in HOT:
        votes.cast_many([hot] * waiting, range(waiting))
    votes.cast(COLD, 1)
    with beside(votes.sync_worker().run):
        eventually(lambda: votes.get(COLD, 1) == 1, 60)
        assert votes.stats()["pending_votes"] > 0
        assert votes.toggle(COLD, 1, timeout=10).value == 0
    assert votes.flush(timeout=60).at_risk == 0
    assert votes.reconcile() == []


def test_a_round_goes_on_behind_a_new_fence(make: Make, sides: BothSides) -> None:
    """The fence of another stream: it is read again, and the votes of this one are written."""
    votes = make()
    waiting = 20_000
    votes.cast_many([1] * waiting, range(waiting))
    table = sa.table("vote_meta", sa.column("name"), sa.column("value"))
    where = table.c.name == "stream_fence"

    def raise_fence() -> None:
        with sides.engine.begin() as connection:
            found = connection.scalar(sa.select(table.c.value).where(where))
            text = found.decode() if isinstance(found, bytes) else str(found)
            name, *versions = text.split(" ")
            # That of the last stream, which no item here is in.
            versions[-1] = np.base_repr(int(versions[-1], 36) + 1, 36).lower()
            raised = " ".join([name, *versions])
            connection.execute(sa.update(table).where(where).values(value=raised))

    raised = threading.Timer(0.1, raise_fence)
    raised.start()
    done = votes.sync_worker().run_once(timeout=60)
    raised.join()
    assert (done.saved, done.at_risk) == (waiting, 0)
    assert int(votes.count(1)) == waiting


def test_a_page_writes_the_last_vote_of_each_user_for_an_item(make: Make) -> None:
    votes = make()
    votes.cast_many([1] * 300, [7, 8, 9] * 100, range(1, 301))
    assert votes.sync_worker().run_once().saved == 300
    stats = votes.stats()
    assert stats["batches"] * stats["mean_batch_votes"] == 3
    assert [votes.get(1, user) for user in (7, 8, 9)] == [298, 299, 300]
    assert votes.reconcile() == []


def test_many_votes_of_a_user_for_a_missing_item_stop_nobody(make: Make) -> None:
    """The votes are set aside together, not one in each round."""
    votes = make(interval=0.001)
    votes.cast_many([99] * 2_000, [7] * 2_000, range(2_000))
    votes.cast(1, 8)
    done = votes.sync_worker().run_once(timeout=20)
    assert (done.saved, done.refused, done.at_risk) == (1, 2_000, 0)
    assert votes.erase_user(8, timeout=10) == 1


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"])
def test_a_vote_before_one_that_a_constraint_refuses_is_written(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer, backend: str
) -> None:
    with (
        closing(both_sides(request, backend, tmp_path)) as sides,
        hotcount.Redis(redis_server.url, prefix=f"busy{next(_numbers)}:", timeout=20) as redis,
    ):
        votes = hotcount.Votes(sides.database, redis, "write_behind")
        votes.create_tables()
        votes.add_items([1])
        with sides.engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE vote ADD CONSTRAINT c CHECK (val <= 5)"))
        votes.cast_many([1] * 4, [7] * 4, [3, 4, 9, 8])
        done = votes.sync_worker().run_once(timeout=20)
        assert (done.saved, done.refused, done.at_risk) == (2, 2, 0)
        assert votes.get(1, 7) == 4


def test_votes_that_a_trigger_refuses_are_set_aside(make: Make, sides: BothSides) -> None:
    """A trigger's error might be about all votes: a vote that is written shows that it is not."""
    votes = make()
    body = {
        "sqlite": (
            "CREATE TRIGGER no BEFORE INSERT ON vote WHEN NEW.user_id = 7 "
            "BEGIN SELECT RAISE(ABORT, 'not you'); END",
        ),
        "postgresql": (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.user_id = 7 THEN RAISE EXCEPTION 'not you'; END IF; RETURN NEW; END $$",
            "CREATE TRIGGER no BEFORE INSERT ON vote FOR EACH ROW EXECUTE FUNCTION refuse()",
        ),
        "mariadb": (
            "CREATE TRIGGER no BEFORE INSERT ON vote FOR EACH ROW IF NEW.user_id = 7 THEN "
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not you'; END IF",
        ),
    }
    with sides.engine.begin() as connection:
        for statement in body[sides.dialect]:
            connection.exec_driver_sql(statement)
    votes.cast_many([1] * 50, [7] * 50, range(50))
    votes.cast(1, 8)
    done = votes.sync_worker().run_once(timeout=20)
    assert (done.saved, done.refused, done.at_risk) == (1, 50, 0)


def test_first_votes_are_taken_beside_erasures(make: Make, sides: BothSides) -> None:
    """flush() has deleted the streams: each vote makes one, while erasures find none."""
    votes = make()

    def erase(stop: threading.Event) -> None:
        while not stop.is_set():
            votes.erase_user(99, timeout=10)

    with beside(erase), beside(erase), beside(erase):
        for user in range(20):
            assert votes.flush(timeout=20).at_risk == 0
            assert all(votes.cast(item, user).pending for item in range(1, 7))
    assert votes.flush(timeout=20).at_risk == 0
    assert int(votes.count(1)) == 20


def test_a_call_waits_for_its_own_stream_and_for_no_other_that_is_full(make: Make) -> None:
    votes = make(interval=0.001, max_pending=100_000)

    def cast(stop: threading.Event) -> None:
        users = itertools.count()
        while not stop.is_set():
            with suppress(hotcount.CapacityError):  # Full.
                for hot in HOT:
                    votes.cast_many([hot] * 2_000, [next(users) for _ in range(2_000)])

    # With one vote in its stream, the call drains; it took nearly its whole timeout.
    with beside(cast):
        for value in range(3):
            votes.cast(COLD, 1, value)
            begun = time.monotonic()
            votes.toggle(COLD, 1, timeout=20)
            assert time.monotonic() - begun < 10
    assert votes.flush(timeout=60).at_risk == 0


def worker_of_each_kind(
    kind: Any, sides: BothSides, redis: hotcount.Redis
) -> tuple[Any, Callable[[], object]]:
    """A worker, and what it is to bring to SQL."""
    if kind == "views":
        views = hotcount.WriteBehindCounter(sides.url, redis, flush_interval=60)
        views.create_tables()
        return views.sync_worker(), lambda: views.add("k")
    votes = hotcount.Votes(sides.url, redis, kind)
    votes.create_tables()
    votes.add_items([1])
    users = itertools.count()
    return votes.sync_worker(), lambda: votes.cast(1, next(users))


@pytest.mark.parametrize("kind", ["write_behind", "cached", "views"])
def test_a_child_that_was_forked(kind: str, sides: BothSides, own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis:
        worker, add = worker_of_each_kind(kind, sides, redis)
        add()
        with own_redis.redis(prefix="none:") as other:
            other.execute("CLIENT", "PAUSE", 1500)
        thread = threading.Thread(target=worker.run_once, kwargs={"timeout": 20})
        thread.start()
        time.sleep(0.3)  # In its round: it waits for Redis.
        child = os.fork()
        if child == 0:
            code = 1
            try:
                worker.run_once(timeout=15)
                code = 0
            finally:
                os._exit(code)
        thread.join()
        ended, status = 0, 0

        def has_ended() -> bool:
            nonlocal ended, status
            ended, status = os.waitpid(child, os.WNOHANG)
            return ended == child

        try:
            eventually(has_ended, 30)
        finally:
            if ended != child:
                os.kill(child, 9)
                os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
