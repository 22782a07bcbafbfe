"""Formats that only earlier commits wrote: refused by name, and left as they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.servers import RedisServer
from tests.support.sql_votes import open_votes
from tests.support.sqlalchemy_side import BothSides

LAST = "hotcount at commit e815ecc6 is the last that reads it"
_numbers = itertools.count()


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[hotcount.Redis]:
    with hotcount.Redis(redis_server.url, prefix=f"rf{next(_numbers)}:", timeout=20) as redis:
        yield redis


def rows(sides: BothSides) -> dict[str, list[Any]]:
    """All that the database has, table by table."""
    names = sa.inspect(sides.engine).get_table_names()
    with sides.engine.connect() as connection:
        return {
            name: sorted(map(repr, connection.exec_driver_sql(f"SELECT * FROM {name}")))
            for name in names
        }


def keys(redis: hotcount.Redis) -> dict[bytes, Any]:
    assert isinstance(redis.prefix, str)
    return {key: redis.execute("DUMP", key) for key in redis.execute("KEYS", redis.prefix + "*")}


def refused(call: Callable[[], Any], *names: str) -> None:
    with pytest.raises(hotcount.ConfigError) as caught:
        call()
    for name in (*names, LAST):
        assert name in str(caught.value)


def without_route(sides: BothSides, place: str) -> None:
    """Marks as commits before dce2794a left them; `cells` on a server: before d7ce1fcd."""
    hotcount.Votes(sides.database, strategy="slotted").create_tables()
    if sides.dialect != "sqlite" and place == "cells":
        sides.run("DROP VIEW vote_count", "DROP TABLE vote_journal")
    sides.run(
        "DELETE FROM vote_meta WHERE name IN ('folded_at', 'fold_took', 'vote_route')",
        f"UPDATE vote_meta SET value = '{place}' WHERE name = 'counted_in'",
        "INSERT INTO item VALUES (1, 43)",
        "INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 1, 1, 0), (1, 2, 2, 0)",
        "INSERT INTO vote_cell (item, slot, n, ver) VALUES (1, 0, 3, 2), (1, -2, 40, 1)",
    )


@pytest.mark.parametrize("place", ["cells", "journal", "item"])
@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
def test_tables_without_a_route_are_refused_by_every_strategy(
    sides: BothSides, strategy: Any, place: str
) -> None:
    without_route(sides, place)
    before = rows(sides)
    votes = open_votes(sides, strategy)
    for moves in (votes.create_tables, votes.migration):
        refused(moves, "table vote ", f"'counted_in' = '{place}'", "'vote_route'")
    # A strategy whose own tables are not there meets that first; create_tables() names the format.
    refusals = (hotcount.ConfigError, hotcount.DatabaseError)
    with pytest.raises(refusals):
        votes.cast(1, 3)
    if place == "cells" and sides.dialect != "sqlite":
        with pytest.raises(refusals):
            votes.count(1)
    assert rows(sides) == before


@pytest.mark.server
@pytest.mark.parametrize("lost", ["vote_route", "stream_fence"])
def test_votes_that_wait_stay_where_a_mark_of_the_format_is_missing(
    sides: BothSides, redis: hotcount.Redis, lost: str
) -> None:
    votes = hotcount.Votes(sides.database, redis, "write_behind")
    votes.create_tables()
    votes.add_items([1])
    assert votes.cast(1, 7).pending
    sides.run(f"DELETE FROM vote_meta WHERE name IN ('stream_fence', '{lost}')")
    before, waiting = rows(sides), keys(redis)
    assert waiting
    again = hotcount.Votes(sides.database, redis, "write_behind")
    calls: list[Callable[[], Any]] = [
        *(lambda: again.cast(1, 8), again.flush, again.sync_worker().run_once)
    ]
    if lost == "vote_route":
        naive = hotcount.Votes(sides.database, strategy="naive")
        calls += [again.create_tables, naive.create_tables, again.migration]
    where = "table vote " if lost == "vote_route" else "streams of table vote "
    for call in calls:
        refused(call, where, f"'{lost}'")
    assert (rows(sides), keys(redis)) == (before, waiting)


def test_refused_votes_without_ids_stay(sides: BothSides, redis: hotcount.Redis) -> None:
    votes = hotcount.Votes(sides.database, redis, "write_behind")
    votes.create_tables()
    votes.add_items([1])
    votes.cast(1, 7)
    assert votes.flush().pending == 0
    votes.cast(1, 8)
    (stream,) = [key for key in keys(redis) if key.endswith(b"}")]
    redis.execute(
        "XADD", stream + b":refused", "1-1", "i", "1", "u", "8", "v", "1", "e", "no such user"
    )
    kept = redis.execute("XRANGE", stream + b":refused", "-", "+")
    # It raises the fence: what was refused before is to go then.
    votes.remove_item(1)
    refused(votes.sync_worker().run_once, "votes that were refused", ":refused")
    assert redis.execute("XRANGE", stream + b":refused", "-", "+") == kept


# What the commit e815ecc6 wrote for Counter.add("k", 5).
VERSION_2 = bytes.fromhex(
    "686f74636f756e74207265747269657302000000c5f8c49a420000003460b77701a07f73b02f7e7946010000000000"
    "00000500000000000000a7d91c0268610600000000000000000080ee36000000000000000000000000000700636f75"
    "6e743a6b"
)


@pytest.mark.parametrize("kind", [hotcount.Counter, hotcount.PeriodCounter])
def test_a_retry_file_of_version_2_stays_as_it_is(
    kind: Callable[..., Any], redis_server: RedisServer, tmp_path: Path
) -> None:
    path = tmp_path / "adds"
    path.write_bytes(VERSION_2)
    more = {"period": "day", "keep": 2} if kind is hotcount.PeriodCounter else {}
    for _ in range(2):
        refused(
            lambda: kind(redis_server.url, retry=hotcount.RetryQueue(path=path), **more),
            f"{path} is a journal of version 2",
        )
        assert path.read_bytes() == VERSION_2


@pytest.mark.parametrize("beside", ["ops.0", "ops.1"])
def test_an_op_id_with_an_empty_result_counts_nothing(redis: hotcount.Redis, beside: str) -> None:
    counter = hotcount.Counter(redis)
    counter.add("k", 5, op_id="a")
    assert isinstance(redis.prefix, str)
    redis.execute("HSET", f"{{{redis.prefix}count:k}}:{beside}", "b", "")
    refused(lambda: counter.add("k", 2, op_id="b"), "op_id b ", "an empty text")
    assert counter.get("k") == 5
