"""A cached vote counter as it is often written: each of its holes, forced over a real Redis.

The scripts below are those of the first description in docs/explanation/systems.md, byte for byte
but for their comments. The steps around them are its flow: look in Redis, else read the database,
add one, set if still absent; a worker reads, saves, marks, deletes. Each test lets the steps of two
callers meet in the order that breaks them. test_cached_votes_schedules.py drives ours through the
same orders.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

import hotcount
import pytest

from tests.support.servers import RedisServer

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


class OriginalScripts:
    """The steps around the scripts, one method each, for item 13."""

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
def original(own_redis: RedisServer) -> Iterator[OriginalScripts]:
    with own_redis.redis() as redis:
        yield OriginalScripts(redis)


def test_without_a_race_the_original_scripts_count_right(original: OriginalScripts) -> None:
    for _ in range(3):
        original.vote()
    assert (original.drain(), original.votes()) == (3, 3)


def test_a_stale_fill_undoes_what_was_saved(original: OriginalScripts) -> None:
    original.insert_vote()
    assert not original.exists()
    stale = original.read_database() + 1
    original.vote()
    original.vote()
    original.drain()
    original.second_check_and_set(stale)
    assert (original.drain(), original.votes()) == (1, 3)


def test_a_stalled_worker_saves_an_older_count_over_a_newer_one(original: OriginalScripts) -> None:
    original.vote()
    stalled = original.read()
    original.vote()
    newer = original.read()
    original.save(newer)
    original.mark(newer)
    original.save(stalled)
    original.delete(newer)
    assert (original.drain(), original.votes()) == (1, 2)


def test_a_crash_before_the_increment_undercounts_for_ever(original: OriginalScripts) -> None:
    original.vote()
    original.insert_vote()  # Its process dies here.
    original.vote()
    assert (original.drain(), original.votes()) == (2, 3)


def test_the_scripts_disagree_on_names(original: OriginalScripts) -> None:
    original.vote()
    original.redis.execute("SET", "item_13_expired", 1)
    original.save(1)
    original.mark(1)
    assert original.redis.execute("GET", "item_13_saved") == b"1"
    # The list reads item_13saved and item_13expired, which nobody writes.
    (id, value, *metadata) = original.listed()
    assert (id, value) == (b"13", b"1")
    assert set(metadata) <= {None}


def test_flags_outlive_the_delete(original: OriginalScripts) -> None:
    original.vote()
    original.redis.execute("SET", "item_13_expired", 1)
    original.save(1)
    original.mark(1)
    original.delete(1)
    assert not original.exists()
    # It deleted item_13:_saved and item_13:_expired. The next counter of the item is born "saved".
    assert original.redis.execute("EXISTS", "item_13_saved", "item_13_expired") == 2


def test_an_increment_leaves_the_saved_flag_set(original: OriginalScripts) -> None:
    original.vote()
    original.save(1)
    original.mark(1)
    original.vote()
    # A worker that trusts the flag skips this counter and, in time, deletes the vote.
    assert original.redis.execute("GET", "item_13_saved") == b"1"
    assert original.read() > original.read_database()


def test_mark_succeeds_where_both_values_are_nil(original: OriginalScripts) -> None:
    assert not original.exists()
    original.mark("")
    assert original.redis.execute("GET", "item_13_saved") == b"1"


def test_the_pattern_matches_flags_and_cursor(original: OriginalScripts) -> None:
    original.vote()
    original.mark(1)
    original.redis.execute("SET", "item_synchronization_cursor", 0)
    _, keys = original.redis.execute("SCAN", 0, "MATCH", "item_*", "COUNT", 1000)
    assert {b"item_13", b"item_13_saved", b"item_synchronization_cursor"} <= set(keys)
    # One cursor for all workers: the page of one that dies now is nobody's until a whole round
    # later, because it moved the cursor before it worked.
    for number in range(3000):
        original.redis.execute("SET", f"item_{100 + number}", 1)
    first = original.listed()
    assert original.redis.execute("GET", "item_synchronization_cursor") != b"0"
    second = original.listed()
    assert set(first[::4]) != set(second[::4])


def test_compare_by_value_deletes_a_count_that_came_back(original: OriginalScripts) -> None:
    original.vote()
    stalled = original.read()
    original.save(stalled)
    # Another vote is counted and saved, and a vote is taken back, which only Redis knows of.
    original.vote()
    original.save(original.read())
    original.database.execute("DELETE FROM vote WHERE id = 1")
    original.redis.execute("DECR", "item_13")
    assert original.read() == stalled
    original.delete(stalled)
    assert not original.exists()
    assert (original.read_database(), original.votes()) == (2, 1)
