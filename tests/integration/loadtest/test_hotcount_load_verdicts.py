"""Failure is a verdict, and no measurement is thrown away: exit 3, and the figures are kept."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.load_generator import SMALL, program, run, run_json
from tests.support.programs import captured
from tests.support.servers import RedisServer

# Far more than it takes; a machine may be busy.
PATIENCE_S = 60


def kept(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return document


def started(server: RedisServer, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """A generator in the middle of its load."""
    command = [program(), "run", "-s", "redis", "--redis", server.url, "--out", str(folder)]
    load = subprocess.Popen(
        [*command, *SMALL, "-d", "60s", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with server.redis() as redis:
        eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
    return load


@pytest.fixture
def durable_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """What it acknowledged is there after a kill -9."""
    config = ("--appendonly", "yes", "--appendfsync", "always")
    server = RedisServer(tmp_path, config=config)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.mark.server
def test_a_server_that_dies_leaves_a_measurement_and_can_be_audited_when_it_is_back(
    durable_redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    load = started(durable_redis, folder, "--json")
    durable_redis.kill()
    load.send_signal(signal.SIGINT)
    out, _ = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 3
    document = json.loads(out)
    for each in (document, kept(folder)):
        assert each["state"] == "measured"
        assert each["conclusion"] == "inconclusive"
        assert each["result"]["operations"]["ok"] > 0
        assert each["audit"] is None
        assert any("audit impossible" in reason for reason in each["reasons"])
        assert any("redis.sock" in reason for reason in each["reasons"])
    assert run("audit", str(folder)).returncode == 3
    durable_redis.start()
    code, found = run_json("audit", str(folder))
    assert code == 0, found
    assert found["runs"][0]["state"] == "measured"
    assert found["runs"][0]["audit"]["acknowledged"] > 0


def test_a_generator_that_is_killed_in_its_audit_has_kept_what_it_measured(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    load = started(own_redis, folder, "--timeout", "200ms")
    # The audit waits for a server that stands still.
    own_redis.send_signal(signal.SIGSTOP)
    try:
        load.send_signal(signal.SIGINT)
        eventually(lambda: kept(folder)["state"] == "measured", PATIENCE_S)
        load.kill()
        load.communicate()
    finally:
        own_redis.send_signal(signal.SIGCONT)
    document = kept(folder)
    assert document["conclusion"] == "inconclusive"
    assert document["result"]["operations"]["ok"] > 0
    assert "not audited: the audit has not come to an end" in document["reasons"]
    code, found = run_json("audit", str(folder))
    assert code == 0, found
    assert found["runs"][0]["audit"]["acknowledged"] > 0


def test_a_generator_that_is_killed_while_it_sets_up_leaves_a_folder_that_says_so(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        url = f"redis://127.0.0.1:{server.getsockname()[1]}"
        load = subprocess.Popen(
            [program(), "run", "-s", "redis", "--redis", url, "--out", str(folder), *SMALL]
        )
        peer, _ = server.accept()  # It waits for an answer that never comes.
        with peer:
            load.kill()
            load.communicate()
    assert kept(folder)["state"] == "running"
    audit = run("audit", str(folder))
    assert audit.returncode == 3
    assert "the run ended before its first write" in audit.stdout


def test_an_overloaded_generator_says_what_kept_it_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, document = run_json(
        *["run", "-s", "memory", "-r", "50M", "-d", "20ms", "-w", "2", "--items", "100"],
        *["--warmup", "0", "--progress", "none", "--out", str(folder)],
    )
    assert code == 3
    assert document["result"]["bound"] in {"planner", "generator", "workers", "system"}
    (reason,) = document["reasons"]
    assert reason.startswith("overloaded")
    assert "the rate was limited by" in reason
    assert kept(folder)["result"]["offered"]["share"] < 0.99
    assert kept(folder)["audit"]["passed"]


def small_files(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_full_disk_ends_in_a_measurement(tmp_path: Path) -> None:
    """No file may grow beyond what the ledger takes: the database cannot hold all votes."""
    folder = tmp_path / "run"
    operations = 15_000
    most = 4096 + 64 * operations
    command = [program(), "run", "-s", "batched", "--mix", "vote=1", "--out", str(folder), "--json"]
    command += ["--max-ops", str(operations), "-d", "60s", *SMALL]
    done = captured(command, preexec_fn=lambda: small_files(most))
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert document["result"]["operations"]["ok"] > 0
    assert any(reason.startswith("errors: ") for reason in document["reasons"])
    assert kept(folder)["result"] == document["result"]
    # With room again, nothing that was acknowledged is lost.
    code, found = run_json("audit", str(folder))
    assert code == 0, found
    assert found["runs"][0]["audit"]["acknowledged"] > 0


def test_a_disk_without_room_for_a_ledger_leaves_a_folder_that_says_what_it_is(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    done = captured(
        [program(), "run", "-s", "insert_only", "--out", str(folder), *SMALL],
        preexec_fn=lambda: small_files(1 << 20),
    )
    assert done.returncode == 3
    assert "ledger.bin" in done.stderr
    assert "checks it again" not in done.stderr
    assert kept(folder)["state"] == "running"
    again = run("audit", str(folder))
    assert again.returncode == 3
    assert "ledger.bin" in again.stdout


def test_a_path_that_is_no_utf8_ends_no_run(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff")
    done = subprocess.run(
        [program(), "run", "-s", "naive", "-d", "100ms", *SMALL, "--json", "--out", folder],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    assert "\ufffd" in json.loads(done.stdout)["command"][-1]
