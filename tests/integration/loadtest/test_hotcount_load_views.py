"""hotcount-load drives a WriteBehindCounter, with a worker that brings its counts to SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.load_generator import SMALL, run_json
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server


def test_adds_beside_a_redis_that_stood_still_are_each_counted_once(temporary: Path) -> None:
    code, document = run_json(
        *["run", "-s", "redis/views", "--managed", "redis", "--outage", "300ms"],
        *["-d", "900ms", "--timeout", "100ms", *SMALL],
    )
    assert code == 0, document["reasons"]
    audit = document["audit"]
    assert (audit["lost"], audit["double"], audit["ghost"]) == (0, 0, 0)
    assert audit["acknowledged"] > 0
    assert audit["sum_of_counters"] > 0
    assert "adds wait in" in document["place"]


def test_callers_that_are_killed_lose_no_add_that_redis_or_sql_acknowledged(
    temporary: Path,
) -> None:
    for strategy in ("redis/views", "redis/views_sql"):
        code, document = run_json(
            *["run", "-s", strategy, "--managed", "redis", "-d", "500ms"],
            *["--processes", "2", "--kill-every", "100ms", *SMALL],
        )
        assert code == 0, document["reasons"]
        assert document["result"]["kills"] > 0
        assert document["audit"]["lost"] == 0


def test_a_run_is_audited_again_from_its_folder(own_redis: RedisServer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, document = run_json(
        *["run", "-s", "redis/views_local", "--redis", own_redis.url, "-d", "200ms"],
        *["--out", str(folder), *SMALL],
    )
    assert code == 0, document["reasons"]
    again, found = run_json("audit", str(folder), "--redis", own_redis.url)
    assert again == 0
    (audited,) = found["runs"]
    assert audited["audit"]["sum_of_counters"] == document["audit"]["sum_of_counters"] > 0


def test_each_acknowledgement_says_what_it_means_itself(temporary: Path) -> None:
    code, document = run_json(
        *["compare", "--workload", "counters", "--managed", "redis", "--rounds", "1"],
        *["-s", "redis/views,redis/views_local,redis/views_sql", "--no-control", "--no-best"],
        *["-d", "100ms", *SMALL],
    )
    assert code in (0, 3), document
    (part,) = document["parts"]
    contracts = {one["strategy"]: one["contract"] for one in part["strategies"]}
    acknowledged = {name: contract["acknowledged"] for name, contract in contracts.items()}
    assert acknowledged == {
        "redis/views": "Redis has the add",
        "redis/views_local": "this process has it, and Redis after flush_interval",
        "redis/views_sql": "it is committed in SQL",
    }
    may_lose = {name: contract["may_lose"] for name, contract in contracts.items()}
    assert may_lose["redis/views_sql"] == "nothing"
    assert may_lose["redis/views"].startswith("what Redis loses")
    assert may_lose["redis/views_local"].startswith(may_lose["redis/views"] + ", and the last")
