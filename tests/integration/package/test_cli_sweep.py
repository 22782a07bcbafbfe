"""hotcount sweep: what it finds, what it deletes, and that it does so only when told to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import hotcount
import pytest

from tests.support.commands import run
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server


@pytest.fixture
def redis(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    with own_redis.redis(timeout=20) as redis:
        hotcount.LiveSets(redis).create("feed:live", 60, {"a": 1})
        for key in ("feed:1", b"feed:\xff\n", "other:1"):
            redis.execute("ZADD", key, 1, "a")
        redis.execute("SET", "feed:text", "x")
        yield redis


def test_without_delete_it_only_names_what_it_found(
    own_redis: RedisServer, redis: hotcount.Redis
) -> None:
    before = redis.execute("DBSIZE")
    done = run("sweep", "--match", "feed:*", own_redis.url)
    assert done.returncode == 0, done.stderr
    *keys, summary = done.stdout.splitlines()
    assert sorted(keys) == ["feed:1", r"feed:\xff\n"]
    assert summary == "3 sorted sets match, 2 of them without a TTL, 0 deleted"
    assert "--delete" in done.stderr
    assert redis.execute("DBSIZE") == before


def test_with_delete_it_deletes_those_and_nothing_else(
    own_redis: RedisServer, redis: hotcount.Redis
) -> None:
    done = run("sweep", "--delete", "--json", "--match", "feed:*", own_redis.url)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert sorted(result.pop("keys")) == ["feed:1", r"feed:\xff\n"]
    assert result == {
        "match": "feed:*", "dry_run": False, "scanned": 3, "found": 2, "deleted": 2,
    }  # fmt: skip
    assert redis.execute("EXISTS", "feed:live", "feed:text", "other:1") == 3
    again = json.loads(run("sweep", "--json", "--match", "feed:*", own_redis.url).stdout)
    assert (again["scanned"], again["found"], again["dry_run"]) == (1, 0, True)


def test_a_pattern_is_required(own_redis: RedisServer, redis: hotcount.Redis) -> None:
    for arguments in (("--delete", own_redis.url), ("--match", "", own_redis.url), ("--match=*",)):
        done = run("sweep", *arguments)
        assert done.returncode == 2, arguments
        assert done.stdout == ""
        assert done.stderr
    assert redis.execute("EXISTS", "feed:1") == 1


def test_a_bad_url_is_bad_usage_and_a_server_that_is_away_inconclusive(tmp_path: Path) -> None:
    for url, code in (
        (f"sqlite:///{tmp_path}/a.db", 2),
        ("gopher://x", 2),
        (f"redis+unix://{tmp_path}/nobody.sock", 3),
    ):
        done = run("sweep", "--match", "*", url)
        assert (done.returncode, done.stdout) == (code, ""), url
        assert "hotcount sweep:" in done.stderr
        assert "Traceback" not in done.stderr
