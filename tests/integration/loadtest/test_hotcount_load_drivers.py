"""The same verdict from threads and from processes, and from the kept folder of a fleet."""

from __future__ import annotations

import json
import struct
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


@pytest.mark.server
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
@pytest.mark.server
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


# -- kept folders of loads that agents drove, which 09b2a7f was the last commit to write -----------

VANISHED = [{"address": "h:2", "problem": "agent h:2: it hung up"}]
IN_PARTS = "no audit of the part of agent h:2 is possible; the rest was audited"


def without_every_second_call(ledger: Path) -> int:
    """Takes the records of an agent that vanished out of the ledger; how many calls are left."""
    header, record, status_at = 4096, 64, 56
    data = bytearray(ledger.read_bytes())
    (planned,) = struct.unpack_from("<Q", data, 32)
    for index in range(1, planned, 2):
        struct.pack_into("<I", data, header + index * record + status_at, 0)
    ledger.write_bytes(data)
    at = range(header + status_at, header + planned * record, record)
    return sum(struct.unpack_from("<I", data, each)[0] >= 3 for each in at)


@pytest.mark.server
@pytest.mark.parametrize(
    ("changes", "broken", "code", "says"),
    [
        ({}, False, 3, IN_PARTS),
        ({}, True, 1, IN_PARTS),
        ({"state": "running"}, False, 3, "the ledger lacks what the agents did"),
        ({"arrival": "closed"}, False, 3, "the ledger lacks what some agents did"),
    ],
    ids=["the rest passes", "the rest is broken", "killed", "closed loop"],
)
def test_a_kept_load_of_agents_is_audited_for_what_its_ledger_has(
    own_redis: RedisServer,
    tmp_path: Path,
    changes: dict[str, str],
    broken: bool,
    code: int,
    says: str,
) -> None:
    folder = tmp_path / "run"
    load = ["run", "-s", "redis", "--redis", own_redis.url, "-r", "500", "-d", "200ms"]
    run_json(*load, "--out", str(folder), *SMALL, "--mix", "vote=1")
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    document["state"] = changes.get("state", document["state"])
    document["settings"]["arrival"] = changes.get("arrival", "poisson")
    document["settings"]["agents"] = ["h:1", "h:2"]
    document["agents"] = VANISHED
    left = without_every_second_call(folder / "ledger.bin")
    document["result"]["operations"]["sent_in_whole_run"] = left
    (folder / "run.json").write_text(json.dumps(document))
    if broken:
        with own_redis.redis() as redis:
            for key in redis.execute("KEYS", "hotcount-load:*count:*"):
                redis.execute("SET", key, 0)
    done, found = run_json("audit", str(folder))
    assert done == code, found
    (again,) = found["runs"]
    assert any(says in reason for reason in again["reasons"]), again
    if broken:
        assert again["audit"]["lost"] == left
