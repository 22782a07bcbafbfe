"""The seed's cached vote counter, as it was written: each of its holes, forced over a real Redis.

The scripts below are the seed's, byte for byte but for their comments. The steps around them are
its flow: look in Redis, else read the database, add one, set if still absent; a worker reads,
saves, marks, deletes. Each test lets the steps of two callers meet in the order that breaks them.
test_cached_votes_schedules.py drives ours through the same orders.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import hotcount
import pytest

from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

LIST = """
local cursor = redis.call("get", "item_synchronization_cursor") or 0
local scanResults = redis.call("scan", cursor, "match", "item_*", "count", 1000)
redis.call("set", "item_synchronization_cursor", scanResults[1])
local keys = scanResults[2]
local result = {}
for i=1,#keys do
    local key = keys[i]
    local id = string.match(key, "item_(%d+)$")
    if id then
        table.insert(result, id)
        table.insert(result, redis.call("get", key))
        table.insert(result, redis.call("get", key .. "saved"))
        table.insert(result, redis.call("get", key .. "expired"))
    end
end
return result
"""
MARK = """
local id = KEYS[1]
local savedValue = tonumber(KEYS[2])
local key = "item_" .. id
local curValue = tonumber(redis.call("get", key))
if savedValue == curValue then
    redis.call("set", key .. "_saved", 1)
end
"""
DELETE = """
local id = KEYS[1]
local savedValue = tonumber(KEYS[2])
local key = "item_" .. id
local curValue = tonumber(redis.call("get", key))
if savedValue == curValue then
    redis.call("del", key);
    redis.call("del", key .. ":_expired");
    redis.call("del", key .. ":_saved");
end
"""


class Seed:
    """The seed's steps, one method each, for item 13."""

    def __init__(self, redis: hotcount.Redis) -> None:
        self.redis = redis
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count INTEGER)")
        self.database.execute("CREATE TABLE vote (id INTEGER PRIMARY KEY, item_id INTEGER)")
        self.database.execute("INSERT INTO item VALUES (13, 0)")

    def insert_vote(self) -> None:
        self.database.execute("INSERT INTO vote (item_id) VALUES (13)")

    def exists(self) -> bool:
        return bool(self.redis.execute("EXISTS", "item_13"))

    def increment(self) -> None:
        self.redis.execute("INCR", "item_13")

    def read_database(self) -> int:
        (row,) = self.database.execute("SELECT vote_count FROM item WHERE id = 13")
        return int(row[0])

    def second_check_and_set(self, value: int) -> None:
        if self.redis.execute("SET", "item_13", value, "NX") is None:
            self.increment()

    def vote(self) -> None:
        self.insert_vote()
        if self.exists():
            self.increment()
        else:
            self.second_check_and_set(self.read_database() + 1)

    def listed(self) -> list[Any]:
        return list(self.redis.execute("EVAL", LIST, 0))

    def read(self) -> int:
        return int(self.redis.execute("GET", "item_13"))

    def save(self, value: int) -> None:
        self.database.execute("UPDATE item SET vote_count = ? WHERE id = 13", (value,))

    def mark(self, value: object) -> None:
        self.redis.execute("EVAL", MARK, 2, "13", str(value))

    def delete(self, value: object) -> None:
        self.redis.execute("EVAL", DELETE, 2, "13", str(value))

    def drain(self) -> int:
        """One whole pass of a worker; vote_count after it."""
        if self.exists():
            value = self.read()
            self.save(value)
            self.mark(value)
            self.delete(value)
        return self.read_database()

    def votes(self) -> int:
        return int(self.database.execute("SELECT COUNT(*) FROM vote").fetchone()[0])


@pytest.fixture
def seed(own_redis: RedisServer) -> Iterator[Seed]:
    with own_redis.redis() as redis:
        yield Seed(redis)


def test_without_a_race_the_seed_counts_right(seed: Seed) -> None:
    for _ in range(3):
        seed.vote()
    assert (seed.drain(), seed.votes()) == (3, 3)


def test_a_stale_fill_undoes_what_was_saved_and_deleted_meanwhile(seed: Seed) -> None:
    seed.insert_vote()
    assert not seed.exists()
    stale = seed.read_database() + 1
    seed.vote()
    seed.vote()
    seed.drain()
    seed.second_check_and_set(stale)
    assert (seed.drain(), seed.votes()) == (1, 3)


def test_a_stalled_worker_saves_an_older_count_over_a_newer_one(seed: Seed) -> None:
    seed.vote()
    stalled = seed.read()
    seed.vote()
    newer = seed.read()
    seed.save(newer)
    seed.mark(newer)
    seed.save(stalled)
    seed.delete(newer)
    assert (seed.drain(), seed.votes()) == (1, 2)


def test_a_crash_between_commit_and_increment_undercounts_for_ever(seed: Seed) -> None:
    seed.vote()
    seed.insert_vote()  # Its process dies here.
    seed.vote()
    assert (seed.drain(), seed.votes()) == (2, 3)


def test_the_scripts_disagree_on_names_so_no_count_is_ever_seen_as_saved(seed: Seed) -> None:
    seed.vote()
    seed.redis.execute("SET", "item_13_expired", 1)
    seed.save(1)
    seed.mark(1)
    assert seed.redis.execute("GET", "item_13_saved") == b"1"
    # The list reads item_13saved and item_13expired, which nobody writes.
    (id, value, *metadata) = seed.listed()
    assert (id, value) == (b"13", b"1")
    assert set(metadata) <= {None}


def test_flags_outlive_the_delete(seed: Seed) -> None:
    seed.vote()
    seed.redis.execute("SET", "item_13_expired", 1)
    seed.save(1)
    seed.mark(1)
    seed.delete(1)
    assert not seed.exists()
    # It deleted item_13:_saved and item_13:_expired. The next counter of the item is born "saved".
    assert seed.redis.execute("EXISTS", "item_13_saved", "item_13_expired") == 2


def test_an_increment_leaves_the_saved_flag_set(seed: Seed) -> None:
    seed.vote()
    seed.save(1)
    seed.mark(1)
    seed.vote()
    # A worker that trusts the flag skips this counter and, in time, deletes the vote.
    assert seed.redis.execute("GET", "item_13_saved") == b"1"
    assert seed.read() > seed.read_database()


def test_mark_succeeds_where_both_values_are_nil(seed: Seed) -> None:
    assert not seed.exists()
    seed.mark("")
    assert seed.redis.execute("GET", "item_13_saved") == b"1"


def test_the_pattern_matches_flags_and_cursor_and_the_cursor_is_shared(seed: Seed) -> None:
    seed.vote()
    seed.mark(1)
    seed.redis.execute("SET", "item_synchronization_cursor", 0)
    _, keys = seed.redis.execute("SCAN", 0, "MATCH", "item_*", "COUNT", 1000)
    assert {b"item_13", b"item_13_saved", b"item_synchronization_cursor"} <= set(keys)
    # One cursor for all workers: the page of one that dies now is nobody's until a whole round
    # later, because it moved the cursor before it worked.
    for number in range(3000):
        seed.redis.execute("SET", f"item_{100 + number}", 1)
    first = seed.listed()
    assert seed.redis.execute("GET", "item_synchronization_cursor") != b"0"
    second = seed.listed()
    assert set(first[::4]) != set(second[::4])


def test_compare_by_value_deletes_a_count_that_came_back_to_its_value(seed: Seed) -> None:
    seed.vote()
    stalled = seed.read()
    seed.save(stalled)
    # Another vote is counted and saved, and a vote is taken back, which only Redis knows of.
    seed.vote()
    seed.save(seed.read())
    seed.database.execute("DELETE FROM vote WHERE id = 1")
    seed.redis.execute("DECR", "item_13")
    assert seed.read() == stalled
    seed.delete(stalled)
    assert not seed.exists()
    assert (seed.read_database(), seed.votes()) == (2, 1)
