"""The same verdict from threads and from processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.load_generator import SMALL, program, read_ledger, run, run_json
from tests.support.servers import RedisServer

# Far more than it takes; a machine may be busy.
PATIENCE_S = 60
DRIVERS = [[], ["--processes", "4"]]


def test_processes_send_inside_one_window(own_redis: RedisServer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    load = ["run", "-s", "redis", "--redis", own_redis.url, "-d", "200ms", "--processes", "4"]
    code, document = run_json(*load, "--out", str(folder), *SMALL)
    assert code == 0, document
    sent = [operation.sent_ns for operation in read_ledger(folder / "ledger.bin")]
    assert 0 <= min(sent) <= max(sent) < 200e6, "in a closed loop nobody calls after the end"
    rows = (folder / "series.csv").read_text().splitlines()
    assert len(rows) >= 2
    assert document["result"]["window_s"] == pytest.approx(0.2)


WORKLOADS = [
    ("batched", "postgres"),
    ("slots/random", "mariadb"),
    ("redis/cached", "redis,postgres"),
    ("redis/views", "redis,postgres"),
    ("redis/gcra", "redis"),
    ("redis/fixed_window", "redis"),
    ("redis/script", "redis"),
]


@pytest.mark.long
@pytest.mark.server
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(("strategy", "servers"), WORKLOADS)
def test_every_workload_passes_whoever_drives_it(
    driver: list[str], strategy: str, servers: str
) -> None:
    code, document = run_json(
        *["run", "-s", strategy, "--managed", servers, "-d", "1s", "--timeout", "20s"],
        *[*driver, *SMALL],
        timeout=PATIENCE_S,
    )
    assert code == 0, document["reasons"]
    assert document["audit"]["acknowledged"] > 0


@pytest.mark.long
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_lost_vote_is_found_whoever_drives(
    driver: list[str], own_redis: RedisServer, tmp_path: Path
) -> None:
    with own_redis.redis() as redis:
        command = [program(), "run", "-s", "redis", "--redis", own_redis.url, "-d", "2s", "--json"]
        load = subprocess.Popen(
            [*command, "--out", str(tmp_path / "run"), *driver, *SMALL], stdout=subprocess.PIPE
        )
        eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
        redis.execute("DECR", redis.execute("RANDOMKEY"))
        out, _ = load.communicate(timeout=PATIENCE_S)
    document = json.loads(out)
    assert load.returncode == 1, document["reasons"]
    assert document["audit"]["lost"] == 1
    assert run("audit", str(tmp_path / "run")).returncode == 1


@pytest.mark.long
@pytest.mark.server
@pytest.mark.parametrize("driver", DRIVERS)
def test_five_percent_of_timeouts_are_inconclusive_whoever_drives(driver: list[str]) -> None:
    """A twentieth of the schedule falls into a pause of the server that outlasts each call."""
    code, document = run_json(
        *["run", "-s", "redis", "--managed", "redis", "-r", "200", "--arrival", "uniform"],
        *["-d", "4s", "--fault", "1s:redis.pause+200ms", "--timeout", "20ms"],
        *["--max-errors", "0.1%", *driver, *SMALL],
        timeout=PATIENCE_S,
    )
    assert code == 3
    operations = document["result"]["operations"]
    assert operations["failed"] + operations["unknown"] >= 20, operations
    assert any(reason.startswith("errors: ") for reason in document["reasons"])


def test_a_load_that_agents_drove_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    load = ["run", "-s", "batched", "-r", "500", "-d", "200ms"]
    run_json(*load, "--out", str(folder), *SMALL, "--mix", "vote=1")
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    document["settings"]["agents"] = ["h:1", "h:2"]
    (folder / "run.json").write_text(json.dumps(document))
    before = {each: each.read_bytes() for each in folder.iterdir() if each.is_file()}
    done, found = run_json("audit", str(folder))
    assert done == 3, found
    assert all(each in str(found) for each in ("agents", "h:2", "e815ecc6 is the last that reads"))
    assert {each: each.read_bytes() for each in folder.iterdir() if each.is_file()} == before
