"""hotcount.integrations.prometheus and .opentelemetry: stats() of objects as metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio
from hotcount.integrations._metrics import CALLS, METRICS, UP, Metric
from hotcount.integrations.opentelemetry import instrument
from hotcount.integrations.prometheus import Collector
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.servers import PostgresServer, RedisServer

ROOT = Path(__file__).parents[3]
ALL = (UP, CALLS, *(metric for metrics in METRICS.values() for metric in metrics))


def registered(*objects: Any, **options: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Collector(*objects, **options))
    return registry


def sample(registry: CollectorRegistry, metric: str, kind: str, name: str, **own: str) -> Any:
    return registry.get_sample_value(f"hotcount_{metric}", {"kind": kind, "name": name} | own)


def shown(metric: Metric) -> str:
    return metric.name + ("_total" if metric.kind == "counter" else "")


def test_the_document_has_each_metric_once_and_no_other() -> None:
    text = (ROOT / "docs/how-to/metrics.md").read_text(encoding="utf-8")
    table = text.partition("| metric |")[2].partition("\n\n")[0]
    named = re.findall(r"`(hotcount_\w+)`", table)
    assert sorted(named) == sorted(shown(metric) for metric in ALL)


@contextmanager
def one_of_each(server: RedisServer, folder: Path) -> Iterator[list[Any]]:
    """Of all that a Collector takes, over servers that are there; Votes have no tables."""
    url = f"sqlite:///{folder}/metrics.db"
    with ExitStack() as stack:
        redis = stack.enter_context(hotcount.Redis(server.url))
        database = stack.enter_context(hotcount.Database(url))
        views = hotcount.WriteBehindCounter(database, redis)
        made = [
            *(redis, database, hotcount.Memory(), views, views.sync_worker()),
            hotcount.Votes(database),
            hotcount.Limiter(redis, "1/minute", name="mail"),
            hotcount.Counter(redis, retry=hotcount.RetryQueue()),
            hotcount.PeriodCounter(redis, period="day"),
            hotcount.SlottedCounter(database),
            hotcount.LiveSets(redis),
            hotcount.ConcurrencyLimit(redis, 2, name="exports"),
        ]
        for each in made[3:]:
            if hasattr(each, "close"):
                stack.callback(each.close)
        yield made


def test_each_stat_of_the_table_is_there_and_each_sample_has_its_labels(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with one_of_each(own_redis, tmp_path) as made:
        votes, limiter = made[5], made[6]
        votes.create_tables()
        assert (limiter.hit("anna").allowed, limiter.hit("anna").allowed) == (True, False)
        families = {family.name: family for family in Collector(*made).collect()}
        described = {family.name for family in Collector(*made).describe()}
    assert set(families) == described == {metric.name for metric in ALL}
    for metric in ALL:
        for each in families[metric.name].samples:
            assert set(each.labels) - {"le"} == set(metric.labels)
    up = {each.labels["kind"]: each.value for each in families["hotcount_up"].samples}
    assert up == dict.fromkeys(up, 1.0)
    assert len(up) == len(made)


def test_a_limiter_counts_hits_and_reserves_and_not_looks() -> None:
    with hotcount.Limiter("memory://", "3/minute", name="mail") as limiter:
        registry = registered(limiter)
        limiter.hit("anna")
        limiter.hit_many(["anna", "anna", "anna", "ben"])
        limiter.hit("anna", rate="1/hour")
        limiter.peek("ben")
        limiter.test("ben", 2)
        with limiter.reserve("ben", 2) as reserved:
            reserved.commit(1)
        hotcount.hit_all([(limiter, "carl", 1)])
        decisions = {
            outcome: sample(registry, "decisions_total", "limiter", "mail", outcome=outcome)
            for outcome in ("admitted", "refused")
        }
        assert decisions == {"admitted": 7.0, "refused": 1.0}
        limited = sample(registry, "decision_reasons_total", "limiter", "mail", reason="limited")
        assert limited == 1.0
        assert limiter.stats()["reasons"] == {"allowed": 7, "limited": 1}


async def test_calls_in_loops_and_their_errors_count_by_outcome() -> None:
    store = hotcount.Memory()
    counter = aio.Counter(store)
    registry = registered(likes=counter)
    await counter.add("a", 2**62)
    with pytest.raises(hotcount.CounterOverflowError):
        await counter.add("a", 2**62)
    sync = hotcount.Counter(store)
    with pytest.raises(hotcount.CounterOverflowError):
        sync.add("a", 2**62)
    for name, ok, found in (("likes", 1.0, registry), ("count", None, registered(sync))):
        calls = {
            outcome: sample(found, "calls_total", "counter", name, outcome=outcome)
            for outcome in ("ok", "overflow")
        }
        assert calls == {"ok": ok or 0.0, "overflow": 1.0}


@pytest.mark.parametrize("errors", ["raise", "return"])
async def test_a_batch_counts_by_the_first_error_of_its_elements(
    errors: Any, tmp_path: Path
) -> None:
    with hotcount.Redis(f"redis+unix://{tmp_path}/none.sock", timeout=0.2) as away:
        counter, in_loop = hotcount.Counter(away), aio.Counter(away)
        with suppress(hotcount.BatchError):
            counter.add_many(["a", "b"], errors=errors)
        with suppress(hotcount.BatchError):
            await in_loop.add_many(["a", "b"], errors=errors)
        for each in (counter, in_loop):
            registry = registered(likes=each)
            calls = {
                outcome: sample(registry, "calls_total", "counter", "likes", outcome=outcome)
                for outcome in ("ok", "unavailable")
            }
            assert calls == {"ok": 0.0, "unavailable": 1.0}
        await in_loop.aclose()


def test_calls_at_a_rate_of_their_own_are_calls_of_the_limiter() -> None:
    with hotcount.Limiter("memory://", "3/minute", name="mail") as limiter:
        registry = registered(limiter)
        limiter.hit("anna", rate="1/hour")
        limiter.hit("anna")
        assert sample(registry, "calls_total", "limiter", "mail", outcome="ok") == 2.0


async def test_votes_of_a_loop_are_read_too() -> None:
    votes = aio.Votes("sqlite:///:memory:", missing_items="create")
    await votes.create_tables()
    registry = registered(votes)
    await votes.cast(7, 1)
    assert sample(registry, "votes_total", "votes", "vote", outcome="ok") == 1.0
    await votes.aclose()
    assert sample(registry, "up", "votes", "vote") == 0.0
    assert sample(registry, "votes_total", "votes", "vote", outcome="ok") is None


def test_a_latency_histogram_rises_to_the_number_of_replies(own_redis: RedisServer) -> None:
    with hotcount.Redis(own_redis.url) as redis:
        registry = registered(redis)
        for _ in range(20):
            redis.execute("PING")
        buckets = [
            each.value
            for family in registry.collect()
            for each in family.samples
            if each.name == "hotcount_redis_latency_seconds_bucket"
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == 20
        total = sample(registry, "redis_latency_seconds_sum", "redis", "redis")
        assert 0 < total < 20 * redis.stats()["latency_us_max"] / 1e6 + 1e-6


def test_a_collector_may_be_registered_before_tables_exist(tmp_path: Path) -> None:
    with hotcount.Votes(f"sqlite:///{tmp_path}/votes.db", missing_items="create") as votes:
        registry = registered(votes)
        generate_latest(registry)
        votes.create_tables()
        votes.cast(7, 1)
        assert sample(registry, "up", "votes", "vote") == 1.0
        assert sample(registry, "votes_total", "votes", "vote", outcome="ok") == 1.0


def test_a_scrape_while_servers_are_paused_ends_in_time_and_fails_not(
    own_postgres: PostgresServer, own_redis: RedisServer
) -> None:
    with (
        hotcount.Redis(own_redis.url) as redis,
        hotcount.Votes(own_postgres.url()) as votes,
        hotcount.Votes(own_postgres.url(), vote_table="other") as second,
    ):
        votes.create_tables()
        registry = registered(redis, votes, second, timeout=0.5)
        assert sample(registry, "up", "votes", "vote") == 1.0
        own_redis.stop()
        with own_postgres.stopped():
            began = time.monotonic()
            text = generate_latest(registry).decode()
            took = time.monotonic() - began
            began = time.monotonic()
            assert votes.stats(timeout=3)["pending_error"]
            alone = time.monotonic() - began
        assert took < 3
        assert alone < 5
        assert 'hotcount_up{kind="votes",name="vote"} 0.0' in text
        assert 'hotcount_up{kind="votes",name="other"} 0.0' in text
        assert 'hotcount_up{kind="redis",name="redis"} 1.0' in text


def test_opentelemetry_has_the_same_metrics(own_redis: RedisServer, tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with one_of_each(own_redis, tmp_path) as made:
        made[5].create_tables()
        instrument(*made, meter=provider.get_meter("test"))
        made[6].hit("anna")
        data: Any = reader.get_metrics_data()
    found = {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    histogram = "hotcount_redis_latency_seconds"
    parts = {histogram + suffix for suffix in ("_bucket", "_sum", "_count")}
    assert set(found) == {metric.name for metric in ALL if metric.name != histogram} | parts
    points = found["hotcount_decisions"].data.data_points
    assert {point.attributes["outcome"]: point.value for point in points} == {
        "admitted": 1,
        "refused": 0,
    }
    provider.shutdown()


@pytest.mark.parametrize(
    ("objects", "options", "error", "says"),
    [
        (
            (hotcount.Memory(), hotcount.Memory()),
            {},
            hotcount.ConfigError,
            "two objects are memory",
        ),
        (("redis://h",), {}, TypeError, "not str"),
        ((hotcount.Memory(),), {"timeout": 0}, hotcount.ConfigError, "timeout is 0"),
        ((hotcount.Memory(),), {"timeout": "1"}, TypeError, "not str"),
    ],
)
@pytest.mark.parametrize("make", [Collector, instrument])
def test_bad_arguments_are_refused(
    make: Any, objects: tuple[Any, ...], options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        make(*objects, **options)
