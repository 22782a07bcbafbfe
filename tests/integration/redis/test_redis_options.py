"""What an opener of a Redis may say, and what stats() says of it."""

from __future__ import annotations

from typing import Any

import hotcount
import pytest

from tests.support.servers import RedisServer, calls_of
from tests.support.together import together

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("silence_limit", -0.001),
        ("max_queue", 0),
        ("client_name", "two words"),
        ("client_name", "a\r\nline"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: Any) -> None:
    with pytest.raises(hotcount.ConfigError, match=option):
        hotcount.Redis("redis://127.0.0.1", **{option: value})
    with pytest.raises(hotcount.ConfigError, match=option):
        hotcount.connect("redis://127.0.0.1", **{option: value})


def test_a_connection_has_a_name_and_the_scripts_that_are_used(own_redis: RedisServer) -> None:
    with own_redis.redis() as direct, own_redis.redis(client_name="votes:web1") as redis:
        counter = hotcount.Counter(redis, ttl=60)
        redis.ping()
        clients = direct.execute("CLIENT", "LIST").decode()
        assert "name=votes:web1 " in clients
        assert "name=hotcount " in clients
        calls = calls_of(direct, "script\\|load")
        assert calls > 0, "loaded with the connection"
        assert counter.add("k") == 1
        assert calls_of(direct, "eval") == 0, "so its first call found it there"
        # Only where the server lost it does its text travel, once.
        direct.execute("SCRIPT", "FLUSH")
        assert [counter.add("k"), counter.add("k")] == [2, 3]
        assert calls_of(direct, "eval") == 1


def test_every_add_of_many_threads_is_there(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis:
        counter = hotcount.Counter(redis)

        def work(index: int) -> list[int]:
            one_by_one = [counter.add("k") for _ in range(20)]
            return one_by_one + list(counter.add_many(["k", f"own{index}", "k"]))[::2]

        values = [value for own in together(work, 16) for value in own]
        # The batch's two adds to k travel as one command: the first's value is one less.
        assert sorted(values) == list(range(1, 16 * 22 + 1))
        assert counter.get("k") == 16 * 22


def test_stats_say_what_was_sent_and_how_long_it_took(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis:
        counter = hotcount.Counter(redis)
        together(lambda index: [counter.add("k") for _ in range(50)], 32)
        stats = redis.stats()
        assert stats["commands"] == 32 * 50
        assert 0 < stats["combined"] < stats["commands"]
        assert 0 < stats["sends"] < stats["commands"]
        assert stats["bytes_sent"] > stats["sends"]
        assert stats["bytes_received"] > 0
        assert (stats["connects"], stats["reconnects"]) == (1, 0)
        assert 0 < stats["latency_us_p50"] <= stats["latency_us_p99"] <= stats["latency_us_max"]
        with own_redis.redis() as direct:
            direct.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        counter.get("k")
        stats = redis.stats()
        assert (stats["connects"], stats["reconnects"]) == (2, 1)
