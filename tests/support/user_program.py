"""A typed program as a user writes it: every concept of hotcount, sync and async.

tests/integration/package/test_types.py runs it, and checks it with mypy and pyright in strict mode.
"""

import asyncio
import dataclasses
import threading
from datetime import datetime, timedelta, timezone

import hotcount
from hotcount import aio


def counters(store: hotcount.Memory | hotcount.Redis) -> int:
    likes = hotcount.Counter(store, prefix="likes", ttl=timedelta(hours=1))
    value: int = likes.add("photo:42", 2, op_id=hotcount.new_op_id(), timeout=20)
    seats: hotcount.TryAdd = likes.try_add("seats", 3, max=2)
    batch: hotcount.Int64Batch = likes.add_many({"a": 1, "b": 2}, errors="return")
    left: float | None = likes.ttl("photo:42")
    failed: dict[int, hotcount.HotcountError] = batch.errors
    assert not seats.applied
    assert left is not None
    assert not failed

    hours = hotcount.PeriodCounter(store, "hour", keep=24)
    hours.add("page", at=datetime.now(timezone.utc))
    now = datetime.now(timezone.utc)
    series: list[tuple[datetime, int]] = hours.series("page", now - timedelta(hours=2), now)
    assert all(number >= 0 for _, number in series)
    return value + sum(batch)


def limits(store: str) -> list[str]:
    limiter = hotcount.Limiter(store, "2/minute", name="api", algorithm="gcra")
    decision: hotcount.Decision = limiter.hit(("user", "1"), cost=1)
    headers: dict[str, str] = decision.headers("legacy")
    batch: hotcount.Decisions = limiter.hit_many(["a", "b"])
    allowed: list[bool] = list(batch.allowed)
    rate: hotcount.Rate = limiter.rate
    assert rate == hotcount.Rate.parse("2/min")
    assert allowed == [True, True]
    if decision.retry_after is not None:
        assert decision.retry_after + 1.0 > 0
    return list(headers)


def sets(store: hotcount.Memory | hotcount.Redis) -> list[str | bytes]:
    feeds = hotcount.LiveSets(store)
    feeds.create("feed:1", 60, [("ben", 2.0)])
    outcome: hotcount.Upsert = feeds.upsert("feed:1", "anna", 1.5)
    many: hotcount.Upserts = feeds.upsert_many([("feed:1", "cleo", 3), ("gone", "cleo", 3)])
    assert outcome is hotcount.Upsert.APPLIED
    assert list(many.applied) == [True, False]
    report: hotcount.SweepReport = feeds.sweep("feed:*", dry_run=True)
    rank: int | None = feeds.rank("feed:1", "cleo")
    assert rank == 0
    assert report.deleted == 0
    return [member for member, score in feeds.top("feed:1", 2) if score > 0]


def slots(database: hotcount.Database) -> int:
    with hotcount.SlottedCounter(database, slots="adaptive") as views:
        views.create_table()
        views.add("page", 5, op_id="once")
        batch: hotcount.Int64Batch = views.get_many(["page", "other"])
        return views.get("page") + batch[1]


def votes(database: hotcount.Database) -> int:
    with hotcount.Votes(database, strategy="batched", missing_items="create") as polls:
        polls.create_tables(timeout=20)
        cast: hotcount.Cast = polls.cast(7, user=1)
        casts: hotcount.Casts = polls.cast_many([7, 7], [2, 3], values=[1, -1])
        assert [one.changed for one in casts] == [True, True]
        assert polls.retract(7, 3).previous == -1
        count: hotcount.Count = polls.count(7)
        if count == 2 and count > 1.5 and cast.counted:
            shown = f"{count:,}"
            assert shown == "2"
        counts: hotcount.Counts = polls.count_many([7, 8])
        total = sum(one.value for one in counts)
        drifts: list[hotcount.Drift] = polls.reconcile(dry_run=True)
        report: hotcount.FlushReport = polls.flush()
        contract: hotcount.Contract = polls.contract()
        fields: dict[str, object] = dataclasses.asdict(contract)
        assert not drifts
        assert report.pending == 0
        assert "durable" in fields
        return total + int(count)


def saved(database: hotcount.Database) -> int:
    polls = hotcount.Votes(
        database,
        "memory://",
        "cached",
        item_table="saved_item",
        vote_table="saved_vote",
        item_type=str,
    )
    polls.create_tables()
    polls.add_items(["a"])
    polls.cast("a", 1)
    worker: hotcount.SyncWorker = polls.sync_worker()
    done: hotcount.SyncRound = worker.run_once(timeout=20)
    stop = threading.Event()
    stop.set()
    worker.run(stop)
    return done.saved


async def awaited(url: str) -> int:
    store = aio.connect_store("memory://")
    async with aio.Counter(store) as likes:
        value: int = await likes.add("photo:42")
        values: list[int] = await asyncio.gather(*(likes.add("k") for _ in range(10)))
        batch: hotcount.Int64Batch = await likes.get_many(["k", "photo:42"])
        assert max(values) == batch[0] == 10
    days = aio.PeriodCounter("memory://", period="day")
    assert await days.add("page") == 1
    limiter = aio.Limiter("memory://", "5/second")
    decision: hotcount.Decision = await limiter.hit("user:1")
    feeds = aio.LiveSets("memory://")
    outcome: hotcount.Upsert = await feeds.upsert("feed:1", "anna", 1.5)
    assert not outcome
    views = aio.SlottedCounter(url)
    await views.create_table()
    await views.add("page")
    assert await views.get("page") > 0
    polls = aio.Votes(url, item_table="aio_item", vote_table="aio_vote", missing_items="create")
    await polls.create_tables()
    cast: hotcount.Cast = await polls.cast(7, 1, version=3)
    count: hotcount.Count = await polls.count(7, consistency="exact")
    many: hotcount.Counts = await polls.count_many([7])
    assert decision.allowed
    assert cast.changed
    assert many[0] == count
    await polls.aclose()
    return value + count


def refused() -> str:
    try:
        hotcount.Limiter("memory://", "often")
    except hotcount.ConfigError as error:
        return str(error)
    return ""


def main(url: str) -> None:
    assert counters(hotcount.Memory()) == 5
    assert limits("memory://")
    database = hotcount.connect_database(url)
    assert sets(hotcount.Memory()) == ["cleo", "ben"]
    assert slots(database) == 5
    assert votes(database) == 4
    assert saved(database) == 1
    assert asyncio.run(awaited(url)) == 2
    assert "often" in refused()
    print("done")
