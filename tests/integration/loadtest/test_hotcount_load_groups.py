"""hotcount-load on groups of servers that it starts: one replaces another in mid-load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hotcount.report import read

from tests.support.load_generator import SMALL, run, run_json

pytestmark = pytest.mark.server

# Longer than any failover here: calls wait for the new primary.
PATIENT = ("--timeout", "10s", "-r", "500")
# The most that is allowed between the moment a server takes writes again and the first success.
LATEST_S = 5


def faulted(
    group: str, strategy: str, fault: str, *options: str, duration: str = "6s"
) -> dict[str, Any]:
    code, document = run_json(
        *["run", "-s", strategy, "--managed", group, "--fault", f"1s:{fault}"],
        *["-d", duration, *PATIENT, *SMALL, *options],
        timeout=110,
    )
    # Passed; or this machine was too busy, and what is there was measured all the same.
    assert code in (0, 3), document
    audit = document["audit"]
    assert audit["passed"], audit
    assert audit["acknowledged"] > 100
    assert audit["lost"] == audit["double"] == audit["ghost"] == 0
    (recovery,) = document["result"]["recoveries"]
    assert recovery["fault"] == fault.partition("+")[0].partition("=")[0]
    assert recovery["first_ok_s"] is not None
    assert recovery["first_ok_s"] < LATEST_S
    assert audit["lost_in_failover"] <= recovery["may_lose"]
    return document


def recovery_of(document: dict[str, Any]) -> dict[str, Any]:
    recovery: dict[str, Any] = document["result"]["recoveries"][0]
    return recovery


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        ("redis", "redis.kill9+3s"),
        ("redis", "redis.failover"),
        # It goes on after it was replaced, and what it still acknowledges counts for nothing.
        ("redis", "redis.pause+4s"),
        ("redis/cached", "redis.kill9+3s"),
    ],
)
def test_a_sentinel_replaces_the_primary_and_the_audit_holds(
    temporary: Path, strategy: str, fault: str
) -> None:
    document = faulted("sentinel", strategy, fault)
    recovery = recovery_of(document)
    assert 0 < recovery["replaced_s"] < LATEST_S
    assert recovery["failed"] == 0, "calls waited for the new primary"
    assert list(temporary.iterdir()) == []
    if strategy == "redis":
        assert "not copied to the replica" in document["contract"]["may_lose"]


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        ("redis", "redis.kill9+4s"),
        ("redis", "redis.failover"),
        ("redis", "redis.pause+5s"),
        ("redis", "redis.cut+6s"),
        # A worker recounts what the new primary lacks: the audit asks for the count of every item.
        ("redis/cached", "redis.kill9+4s"),
    ],
)
def test_a_replica_in_a_cluster_takes_over_and_the_audit_holds(strategy: str, fault: str) -> None:
    # A fault after 1 s, 5 s until it ends or is without effect, and LATEST_S. A primary that is cut
    # off acknowledges until it misses the majority, and nothing after that.
    document = faulted("redis-cluster", strategy, fault, duration="11s")
    recovery = recovery_of(document)
    assert 0 < recovery["replaced_s"] < 2 * LATEST_S
    assert recovery["failed"] == 0, "calls waited for the new primary"


def test_slots_move_in_a_cluster_and_no_call_fails() -> None:
    recovery = recovery_of(faulted("redis-cluster", "redis", "redis.reshard=200"))
    assert recovery["replaced_s"] is None
    assert recovery["failed"] == recovery["unknown"] == recovery["may_lose"] == 0


def test_a_primary_that_was_written_nothing_is_not_without_a_replica() -> None:
    _, document = run_json(
        *["run", "-s", "redis", "--managed", "redis-cluster", "--fault", "1ms:redis.reshard=1"],
        *["-d", "1s", "--mix", "vote=0,unvote=0,read=100", *PATIENT, *SMALL],
        timeout=110,
    )
    assert [each["fault"] for each in document["result"]["recoveries"]] == ["redis.reshard"]


@pytest.mark.parametrize("fault", ["db.kill9+500ms", "db.failover", "db.cut+1s", "db.pause+2s"])
def test_the_standby_of_a_pair_has_every_acknowledged_vote(fault: str) -> None:
    # Of two equal casts whose COMMIT was lost, the row does not tell which one changed it.
    document = faulted("postgres-pair", "batched", fault, "--dup", "0")
    recovery = recovery_of(document)
    assert (recovery["replaced_s"] is None) == fault.startswith("db.pause")
    assert recovery["failed"] == recovery["may_lose"] == 0


@pytest.mark.parametrize("fault", ["db.kill9+6s", "db.failover", "db.cut+6s", "db.pause+6s"])
def test_votes_on_all_nodes_of_galera_lose_nothing_while_one_leaves_and_joins(
    temporary: Path, fault: str
) -> None:
    document = faulted("galera", "batched", fault, duration="10s")
    recovery = recovery_of(document)
    assert 0 < recovery["replaced_s"] < LATEST_S
    assert recovery["failed"] == recovery["may_lose"] == 0
    assert list(temporary.iterdir()) == []


def test_a_primary_that_comes_back_in_time_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    document = faulted("sentinel", "redis", "redis.pause+300ms", "--out", str(folder))
    recovery = recovery_of(document)
    assert recovery["replaced_s"] is None
    assert recovery["may_lose"] == 0
    assert 0.1 < recovery["away_s"] < LATEST_S
    (row,) = read(folder).parts[0].rows
    assert [each.fault for each in row.recoveries] == ["redis.pause"]
    assert json.loads((folder / "run.json").read_text())["settings"]["faults"].startswith("1s:")
    again = run("audit", str(folder))
    assert again.returncode == 3
    assert "private servers" in again.stdout


def test_the_report_says_what_the_failover_cost() -> None:
    done = run(
        *["run", "-s", "redis", "--managed", "sentinel", "--fault", "1s:redis.failover"],
        *["-d", "4s", *PATIENT, *SMALL],
        timeout=110,
    )
    assert done.returncode in (0, 3), done.stdout
    text = " ".join(done.stdout.split())
    assert "another server took over after" in text
    assert "the first success came" in text
    assert "are unknown" in text
