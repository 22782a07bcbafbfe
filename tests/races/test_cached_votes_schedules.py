"""Strategy cached, driven through the orders that break the scripts of test_cached_votes_holes.py.

A caller that stalls between two steps is played by the test: it runs the very scripts that the
library runs, and the SQL of its steps, at the moment it chooses; all others are the library.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import hotcount
import pytest

from tests.support.fired import fired
from tests.support.servers import RedisServer

SCRIPTS = Path(__file__).parents[2] / "cpp/src/votes/lua"
RETENTION_MS = 600_000


class Play:
    """Votes over a file and a Redis, and hands to do single steps with."""

    def __init__(self, path: Path, redis: hotcount.Redis) -> None:
        self.redis = redis
        self.database = hotcount.Database(f"sqlite:///{path}", timeout=20)
        self.votes = hotcount.Votes(self.database, redis, "cached", retention=RETENTION_MS / 1000)
        self.votes.create_tables()
        self.votes.add_items([1])
        self.other = sqlite3.connect(path, isolation_level=None, timeout=20)
        (row,) = self.other.execute("SELECT value FROM vote_meta WHERE name = 'cache_id'")
        self.key = f"votes:{row[0]}:1"
        self.worker = self.votes.sync_worker()

    def script(self, name: str, *arguments: object, keys: int = 1) -> object:
        text = (SCRIPTS / f"{name}.lua").read_text()
        return self.redis.execute("EVAL", text, keys, self.key, *map(str, arguments))

    def hash(self) -> dict[str, str]:
        flat = self.redis.execute("HGETALL", self.key)
        pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
        return {name.decode(): value.decode() for name, value in pairs}

    def commit_vote(self, user: int) -> None:
        self.other.execute(
            "INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, ?, 1, 0)", (user,)
        )

    def increment(self, token: str, epoch: int = 0) -> None:
        name = "votes@" + self.key.split(":")[1]
        self.script("increment", name, RETENTION_MS, token, 1, 1, epoch, keys=2)

    def fence(self) -> tuple[int, int, int]:
        """gen, epoch and vote_count, as a fill reads them in one transaction."""
        self.other.execute("BEGIN IMMEDIATE")
        self.other.execute(
            "INSERT INTO vote_sync (item, gen) VALUES (1, 1) "
            "ON CONFLICT (item) DO UPDATE SET gen = gen + 1"
        )
        ((gen, epoch),) = self.other.execute("SELECT gen, epoch FROM vote_sync WHERE item = 1")
        self.other.execute("COMMIT")
        return gen, epoch, self.stored()

    def stored(self) -> int:
        return int(self.other.execute("SELECT vote_count FROM item WHERE id = 1").fetchone()[0])

    def live(self) -> int:
        return int(self.other.execute("SELECT COUNT(*) FROM vote_live").fetchone()[0])

    def pass_retention(self) -> None:
        self.redis.execute("HSET", self.key, "expires_at", 0)

    def drain_and_delete(self) -> None:
        """Until a worker has saved the hash and, past its retention, deleted it."""
        for _ in range(3):
            if self.hash():
                self.pass_retention()
                self.worker.run_once()
        assert self.hash() == {}

    def is_right(self) -> bool:
        assert self.votes.flush(20).pending == 0
        return self.stored() == self.live() and int(self.votes.count(1)) == self.live()


@pytest.fixture
def play(own_redis: RedisServer, database_path: Path) -> Iterator[Play]:
    with own_redis.redis(timeout=20) as redis:
        play = Play(database_path, redis)
        with play.database, play.votes, closing(play.other):
            yield play


def test_a_stale_fill_finds_another_hash_and_does_nothing(play: Play) -> None:
    play.commit_vote(1)
    play.increment("stalled")
    gen, epoch, base = play.fence()
    # Meanwhile the hash is filled by a worker, saved, deleted, and born again.
    play.votes.cast(1, 2)
    play.drain_and_delete()
    play.votes.cast(1, 3)
    before = play.hash()
    assert play.script("land", "stalled", gen, epoch, base) == [0]
    assert play.hash() == before
    assert play.is_right()
    assert play.live() == 3


def test_a_stale_fill_of_a_hash_that_is_gone_makes_none(play: Play) -> None:
    play.commit_vote(1)
    play.increment("stalled")
    gen, epoch, base = play.fence()
    play.drain_and_delete()
    assert play.script("land", "stalled", gen, epoch, base) == [0]
    assert play.hash() == {}
    assert play.is_right()


def test_of_two_fills_the_later_number_stays_and_the_base_is_added_once(play: Play) -> None:
    play.votes.cast(1, 9)
    play.drain_and_delete()
    play.commit_vote(1)
    play.increment("token")
    first, second = play.fence(), play.fence()
    assert first[2] == second[2] == 1
    assert play.script("land", "token", *second) == [1]
    assert play.script("land", "token", *first) == [0]
    assert (play.hash()["value"], play.hash()["gen"]) == ("2", str(second[0]))
    assert play.is_right()


def test_a_fence_whose_fill_never_lands_does_not_stop_the_saves(play: Play) -> None:
    play.votes.cast(1, 1)
    play.fence()
    assert play.worker.run_once().unsettled == 1
    assert play.worker.run_once().saved == 1
    assert play.stored() == 1
    assert play.is_right()


def test_votes_of_a_voter_that_died_after_its_increment_are_filled_by_a_worker(play: Play) -> None:
    play.commit_vote(1)
    play.increment("orphan")
    assert play.hash()["gen"] == "0"
    assert (play.votes.count(1).value, play.votes.count(1).source) == (1, "sql")
    assert play.worker.run_once().filled == 1
    assert play.is_right()


def test_a_stalled_worker_does_not_save_over_a_newer_count(play: Play) -> None:
    play.votes.cast(1, 1)
    # The worker reads 1 and then waits for the write lock, which the test has.
    play.other.execute("BEGIN IMMEDIATE")
    rounds: list[hotcount.SyncRound] = []
    before = play.database.stats()["busy_waits"]
    stalled = threading.Thread(target=lambda: rounds.append(play.worker.run_once()))
    stalled.start()
    deadline = time.monotonic() + 20
    while play.database.stats()["busy_waits"] == before:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    # Another voter and another worker do their whole work.
    play.commit_vote(2)
    play.increment("unused")
    now = play.hash()
    assert (now["value"], now["version"]) == ("2", "2")
    play.other.execute("UPDATE item SET vote_count = 2 WHERE id = 1")
    play.other.execute(
        "UPDATE vote_sync SET saved_gen = ?, saved_version = 2 WHERE item = 1", (now["gen"],)
    )
    play.other.execute("COMMIT")
    play.script("mark", now["gen"], 2)
    stalled.join()
    assert rounds[0].saved == 0
    assert play.stored() == 2
    assert play.is_right()


def test_a_worker_that_dies_between_save_and_mark_leaves_it_to_the_next(play: Play) -> None:
    play.votes.cast(1, 1)
    now = play.hash()
    play.other.execute("UPDATE item SET vote_count = 1 WHERE id = 1")
    play.other.execute(
        "UPDATE vote_sync SET saved_gen = ?, saved_version = 1 WHERE item = 1", (now["gen"],)
    )
    assert play.hash()["saved_version"] == "0"
    fired("worker stopped")
    assert play.worker.run_once().saved == 1
    assert play.hash()["saved_version"] == "1"
    assert play.is_right()


def test_mark_and_delete_find_nothing_where_there_is_no_hash(play: Play) -> None:
    assert play.script("mark", 0, 0) == [0]
    assert play.script("mark", "", "") == [0]
    assert play.script("remove", "", "") == [0]
    assert play.hash() == {}


def test_a_count_that_came_back_to_its_value_is_not_deleted(play: Play) -> None:
    play.votes.cast(1, 1)
    play.votes.flush()
    was = play.hash()
    play.votes.cast(1, 2)
    play.votes.retract(1, 2)
    now = play.hash()
    assert (now["value"], now["gen"]) == (was["value"], was["gen"])
    play.pass_retention()
    assert play.script("remove", was["gen"], was["version"]) == [0]
    # Nor by one who knows the version: it is not saved.
    assert play.script("remove", now["gen"], now["version"]) == [0]
    assert play.is_right()


def test_an_increment_makes_a_saved_count_unsaved_and_moves_its_retention(play: Play) -> None:
    play.votes.cast(1, 1)
    play.votes.flush()
    was = play.hash()
    assert was["saved_version"] == was["version"]
    time.sleep(0.01)
    play.votes.cast(1, 2)
    now = play.hash()
    assert int(now["saved_version"]) < int(now["version"])
    assert int(now["expires_at"]) > int(was["expires_at"])
    assert play.redis.execute("PTTL", play.key) == -1


def test_an_increment_that_comes_after_a_recount_had_its_vote_is_not_added(play: Play) -> None:
    play.votes.cast(1, 1)
    play.commit_vote(2)  # Its increment is on its way, under epoch 0.
    assert play.votes.reconcile() == [hotcount.Drift(item=1, counted=1, actual=2)]
    play.votes.cast(1, 3)
    assert play.hash()["epoch"] == "1"
    play.increment("late", epoch=0)
    assert play.hash()["value"] == "3"
    assert play.is_right()


def test_a_late_increment_into_an_empty_cache_is_not_added_either(play: Play) -> None:
    play.commit_vote(1)
    play.votes.reconcile()
    assert play.hash() == {}
    play.increment("late", epoch=0)
    assert int(play.votes.count(1)) == 1, "what nobody has filled yet is of before the recount"
    assert play.votes.reconcile(dry_run=True) == []
    assert play.votes.sync_worker().run_once().filled == 1
    assert (play.hash()["value"], play.hash()["epoch"]) == ("1", "1")
    assert play.is_right()


def test_a_voter_that_dies_between_commit_and_increment_is_found_by_reconcile(play: Play) -> None:
    play.votes.cast(1, 1)
    play.commit_vote(2)
    play.votes.flush()
    assert (play.stored(), play.live()) == (1, 2)
    drift = [hotcount.Drift(item=1, counted=1, actual=2)]
    assert play.votes.reconcile(dry_run=True) == drift
    assert play.votes.reconcile([1]) == drift
    assert play.votes.reconcile() == []
    assert play.is_right()


def test_other_keys_are_neither_scanned_nor_touched(play: Play) -> None:
    theirs = {
        "votes:other:1": ("HSET", "value", "5"),
        f"{play.key}:x": ("HSET", "value", "5"),
        play.key.rsplit(":", 1)[0] + "@": ("HSET", "value", "5"),
    }
    for key, (command, *values) in theirs.items():
        play.redis.execute(command, key, *values)
    play.votes.cast(1, 1)
    for _ in range(2):
        play.worker.run_once()
    assert play.is_right()
    for key in theirs:
        assert play.redis.execute("HLEN", key) == 1
