"""One load in parts, by agents; and what is left of it when one of them vanishes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.load_agents import (
    FAILED,
    HELLO,
    PING,
    addresses,
    agents,
    receive,
    said_to,
    send,
)
from tests.support.load_generator import (
    READ,
    SMALL,
    VOTE,
    program,
    read_ledger,
    run,
    run_json,
)
from tests.support.servers import RedisServer

# Far more than it takes; a machine may be busy.
PATIENCE_S = 60


def kept(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return document


def windows(folder: Path) -> tuple[int, int]:
    """When the first call of the ledger was sent and the last one, in ns after the common start."""
    sent = [operation.sent_ns for operation in read_ledger(folder / "ledger.bin")]
    return min(sent), max(sent)


@pytest.mark.server
def test_two_agents_carry_one_schedule_and_its_audit_passes(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with agents(2) as two:
        code, document = run_json(
            *["run", "-s", "redis", "--redis", own_redis.url, "--agents", addresses(two)],
            *["-r", "1000", "--arrival", "uniform", "-d", "300ms", "--out", str(folder), *SMALL],
        )
    assert document["audit"]["passed"], document
    # A machine that is busy with other things may not carry the rate, and then says so.
    assert code == (0 if document["result"]["offered"]["carried"] else 3), document["reasons"]
    assert document["result"]["offered"]["scheduled"] == 300
    parts = document["agents"]
    assert [part["address"] for part in parts] == [agent.address for agent in two]
    assert [part["problem"] for part in parts] == [None, None]
    assert (
        sum(part["operations"] for part in parts)
        == document["result"]["operations"]["sent_in_whole_run"]
    )
    # One machine has one clock: the offset measured is within its own error.
    for part in parts:
        assert 0 < part["clock_error_us"] <= document["clock_error_us"]
        assert abs(part["clock_offset_us"]) <= part["clock_error_us"]
    first, last = windows(folder)
    assert 0 <= first <= last < 300e6 + 500e6, "no call was sent outside of the common window"
    code, found = run_json("audit", str(folder))
    assert code == 0, found


@pytest.mark.server
def test_processes_send_inside_one_window(own_redis: RedisServer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    load = ["run", "-s", "redis", "--redis", own_redis.url, "-d", "200ms", "--processes", "4"]
    code, document = run_json(*load, "--out", str(folder), *SMALL)
    assert code == 0, document
    first, last = windows(folder)
    assert 0 <= first <= last < 200e6, "in a closed loop nobody calls after the end"
    rows = (folder / "series.csv").read_text().splitlines()
    assert len(rows) >= 2
    assert document["result"]["window_s"] == pytest.approx(0.2)


@pytest.mark.server
def test_an_agent_that_is_killed_ends_the_load_with_its_name(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with agents(2) as two:
        load = subprocess.Popen(
            [program(), "run", "-s", "redis", "--redis", own_redis.url, "--json"]
            + ["--agents", addresses(two), "-d", "60s", "--out", str(folder), *SMALL],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with own_redis.redis() as redis:
            eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
        two[1].process.kill()
        out, err = load.communicate(timeout=PATIENCE_S)
        assert load.returncode == 3, err
    document = json.loads(out)
    for each in (document, kept(folder)):
        assert each["conclusion"] == "inconclusive"
        assert each["audit"] is None
        named = f"agent {two[1].address}: it hung up"
        assert any(reason.startswith("the load stopped: " + named) for reason in each["reasons"])
        kept_part, lost_part = (agent["problem"] for agent in each["agents"])
        assert kept_part is None
        assert lost_part.startswith(named)
        assert each["result"]["operations"]["ok"] > 0, "what the other one measured"
    audit = run("audit", str(folder))
    assert audit.returncode == 3
    assert "the ledger lacks what some agents did" in audit.stdout


@pytest.mark.server
def test_what_the_others_did_in_an_open_loop_is_audited_when_an_agent_is_killed(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with agents(2) as two:
        load = subprocess.Popen(
            [program(), "run", "-s", "redis", "--redis", own_redis.url, "--out", str(folder)]
            + ["--agents", addresses(two), "-d", "60s", "-r", "1000", "--timeout", "200ms"]
            + [*SMALL, "--mix", "vote=1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with own_redis.redis() as redis:
            eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
        two[1].process.kill()
        out, err = load.communicate(timeout=PATIENCE_S)
        assert load.returncode == 3, err
    assert "no audit of that part is possible, and the rest was audited" in out
    assert "of what 1 of 2 agents had to send" in out
    document = kept(folder)
    assert document["conclusion"] == "inconclusive"
    assert document["audit"]["passed"]
    assert document["audit"]["acknowledged"] > 0
    code, found = run_json("audit", str(folder))
    assert code == 3
    (again,) = found["runs"]
    assert again["audit"]["passed"]
    named = f"no audit of the part of agent {two[1].address} is possible"
    assert any(reason.startswith(named) for reason in again["reasons"])
    # What the other one was told is counted, and is not there any more.
    with own_redis.redis() as redis:
        for key in redis.execute("KEYS", "hotcount-load:*count:*"):
            redis.execute("SET", key, 0)
    code, found = run_json("audit", str(folder))
    assert code == 1
    assert found["runs"][0]["audit"]["lost"] == document["audit"]["acknowledged"]


@pytest.mark.server
def test_a_coordinator_that_is_killed_frees_its_agents(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with agents(1) as one, own_redis.redis() as redis:
        command = [program(), "run", "-s", "redis", "--redis", own_redis.url, "-d", "60s"]
        command += ["--agents", one[0].address, "--out", str(folder), *SMALL]
        load = subprocess.Popen(command)
        eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
        busy = run(*command[1 : -len(SMALL) - 2], *SMALL)
        assert busy.returncode == 3
        assert f"agent {one[0].address}: it is busy with another load" in busy.stderr
        load.kill()
        load.communicate()
        eventually(lambda: one[0].children() == [], PATIENCE_S)
        assert run(*command[1:6], "--agents", one[0].address, "-d", "50ms", *SMALL).returncode == 0
    audit = run("audit", str(folder))
    assert audit.returncode == 3
    assert "the ledger lacks what the agents did" in audit.stdout


@contextmanager
def an_agent_that(answers: Callable[[socket.socket], None]) -> Iterator[str]:
    """A stand-in that does this with its first connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                answers(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


def greets_as_another_version(peer: socket.socket) -> None:
    receive(peer)
    send(peer, HELLO, {"version": "0.0.1, protocol 1"})


def talks_http(peer: socket.socket) -> None:
    receive(peer)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hangs_up(peer: socket.socket) -> None:
    receive(peer)


def fails_while_it_prepares(peer: socket.socket) -> None:
    _, hello = receive(peer)
    send(peer, HELLO, {"version": hello["version"]})
    receive(peer)
    send(peer, FAILED, {"message": "no such table"})
    while peer.recv(1 << 16):
        pass


@pytest.mark.server
@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (greets_as_another_version, "it is hotcount-load 0.0.1, protocol 1, and this is "),
        (talks_http, "it sends what no frame begins with"),
        (hangs_up, "it hung up"),
        (fails_while_it_prepares, "no such table"),
    ],
)
def test_what_is_no_agent_of_this_version_is_refused_by_name(
    answers: Callable[[socket.socket], None], says: str, redis_server: RedisServer
) -> None:
    with an_agent_that(answers) as address:
        done = run("run", "-s", "redis", "--redis", redis_server.url, "--agents", address, *SMALL)
    assert done.returncode == 3
    assert f"agent {address}: {says}" in done.stderr


def test_an_agent_refuses_strangers_and_goes_on(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("correct horse\n")
    with agents(1, "--token-file", str(secret)) as (agent,):
        refused = "it wants another token: --token-file names the same secret on both sides"
        for token in ("", "correct hors", "correct horse battery"):
            answer = said_to(agent.address, HELLO, {"version": "x", "token": token})
            assert answer == (FAILED, {"message": refused})
        kind, body = said_to(agent.address, HELLO, {"version": "x", "token": "correct horse"})
        assert kind == FAILED
        assert body["message"].startswith("it is of another version: the agent is hotcount-load ")
        for stranger in (b"[" * 4000, b"null", b"\xff" * 100):
            assert said_to(agent.address, HELLO, stranger)[0] == FAILED
        assert said_to(agent.address, PING, b"1")[0] == FAILED
        assert said_to(agent.address, HELLO, b"x" * 5000)[0] == FAILED
        assert agent.process.poll() is None


def test_an_agent_beyond_this_machine_wants_a_token() -> None:
    done = run("agent", "--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "--token-file" in done.stderr


REFUSED = [
    (["-s", "memory"], "share no memory"),
    (["-s", "batched"], "share no file"),
    (["-s", "redis/per_second_key", "--managed", "redis"], "the caller's clock"),
    (["-s", "redis", "--managed", "redis", "-w", "1"], "--workers is 1; it takes 2"),
    (["-s", "exec:true"], "leave out exec: and --trace"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_what_agents_cannot_share_is_refused(options: list[str], says: str) -> None:
    done = run("run", *options, "--agents", "127.0.0.1:1,127.0.0.1:2")
    assert done.returncode == 2
    assert says in done.stderr


# -- the same verdict, whoever drives ------------------------------------------------------------

DRIVERS = ["one", "processes", "agents"]


@contextmanager
def driven_by(name: str) -> Iterator[list[str]]:
    """The options for it."""
    if name == "agents":
        with agents(2) as two:
            yield ["--agents", addresses(two)]
    else:
        yield [] if name == "one" else ["--processes", "4"]


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
def test_every_workload_passes_whoever_drives_it(driver: str, strategy: str, servers: str) -> None:
    with driven_by(driver) as options:
        code, document = run_json(
            *["run", "-s", strategy, "--managed", servers, "-d", "1s", "--timeout", "20s"],
            *[*options, *SMALL],
            timeout=PATIENCE_S,
        )
    assert code == 0, document["reasons"]
    assert document["audit"]["acknowledged"] > 0


@pytest.mark.long
@pytest.mark.server
def test_what_waits_in_an_agent_is_in_the_audit() -> None:
    """views_local acknowledges what its process alone has: the agent hands it over at the end."""
    with agents(2) as two:
        code, document = run_json(
            *["run", "-s", "redis/views_local", "--managed", "redis,postgres", "-d", "1s"],
            *["--agents", addresses(two), *SMALL],
            timeout=PATIENCE_S,
        )
    assert code == 0, document["reasons"]


@pytest.mark.long
@pytest.mark.server
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_lost_vote_is_found_whoever_drives(
    driver: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    with driven_by(driver) as options, own_redis.redis() as redis:
        command = [program(), "run", "-s", "redis", "--redis", own_redis.url, "-d", "2s", "--json"]
        load = subprocess.Popen(
            [*command, "--out", str(tmp_path / "run"), *options, *SMALL], stdout=subprocess.PIPE
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
def test_five_percent_of_timeouts_are_inconclusive_whoever_drives(driver: str) -> None:
    """A twentieth of the schedule falls into a pause of the server that outlasts each call."""
    with driven_by(driver) as options:
        code, document = run_json(
            *["run", "-s", "redis", "--managed", "redis", "-r", "200", "--arrival", "uniform"],
            *["-d", "4s", "--fault", "1s:redis.pause+200ms", "--timeout", "20ms"],
            *["--max-errors", "0.1%", *options, *SMALL],
            timeout=PATIENCE_S,
        )
    assert code == 3
    operations = document["result"]["operations"]
    assert operations["failed"] + operations["unknown"] >= 20, operations
    assert any(reason.startswith("errors: ") for reason in document["reasons"])


@pytest.mark.long
@pytest.mark.server
def test_an_agent_that_stands_still_is_given_up_after_five_seconds(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with agents(2) as two:
        load = subprocess.Popen(
            [program(), "run", "-s", "redis", "--redis", own_redis.url, "--json"]
            + ["--agents", addresses(two), "-d", "60s", "--out", str(folder), *SMALL],
            stdout=subprocess.PIPE,
        )
        with own_redis.redis() as redis:
            eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
        (child,) = two[0].children()
        os.kill(child, signal.SIGSTOP)
        try:
            out, _ = load.communicate(timeout=PATIENCE_S - 20)
        finally:
            os.kill(child, signal.SIGCONT)
        assert load.returncode == 3
        document = json.loads(out)
        assert f"agent {two[0].address}: it was not heard for 5 s" in document["reasons"][0]
        eventually(lambda: two[0].children() == [], PATIENCE_S)


@pytest.mark.long
@pytest.mark.server
def test_a_coordinator_that_stands_still_is_left_after_five_seconds(own_redis: RedisServer) -> None:
    with agents(1) as one, own_redis.redis() as redis:
        command = [program(), "run", "-s", "redis", "--redis", own_redis.url, "-d", "60s"]
        load = subprocess.Popen([*command, "--agents", one[0].address, *SMALL])
        eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
        load.send_signal(signal.SIGSTOP)
        try:
            eventually(lambda: one[0].children() == [], PATIENCE_S)
        finally:
            load.send_signal(signal.SIGCONT)
        assert load.wait(timeout=PATIENCE_S) == 3


@pytest.mark.long
@pytest.mark.server
def test_an_interrupted_load_brings_the_parts_back(own_redis: RedisServer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with agents(2) as two:
        load = subprocess.Popen(
            [program(), "run", "-s", "redis", "--redis", own_redis.url, "--json"]
            + ["--agents", addresses(two), "-d", "60s", "--out", str(folder), *SMALL],
            stdout=subprocess.PIPE,
        )
        with own_redis.redis() as redis:
            eventually(lambda: bool(redis.execute("DBSIZE") > 50), PATIENCE_S)
        load.send_signal(signal.SIGINT)
        out, _ = load.communicate(timeout=PATIENCE_S)
    document = json.loads(out)
    assert load.returncode == 3
    assert document["reasons"] == ["it was interrupted"]
    assert document["audit"]["passed"]
    assert run("audit", str(folder)).returncode == 0
    kinds = {operation.kind for operation in read_ledger(folder / "ledger.bin")}
    assert VOTE in kinds
    assert READ not in kinds
