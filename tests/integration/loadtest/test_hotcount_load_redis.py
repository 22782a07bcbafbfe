"""hotcount-load on a Redis: one it starts itself, and one that somebody else runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.load_generator import SMALL, program, run, run_json
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

# What it says of itself while it lives and does not once it is gone.
ALLOWANCE_S = 20


@pytest.fixture
def temporary(temporary: Path) -> Iterator[Path]:
    """What the test starts must leave nothing there."""
    yield temporary
    assert list(temporary.iterdir()) == []
    assert servers_in(temporary) == []


def servers_in(folder: Path) -> list[int]:
    """The pids of the servers started in the folder."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            title = (process / "cmdline").read_bytes()
        except OSError:  # It ended while we looked.
            continue
        # It writes its own title: redis-server unixsocket:PATH.
        if b"redis-server" in title and str(folder).encode() in title:
            pids.append(int(process.name))
    return pids


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + ALLOWANCE_S
    while servers_in(folder):
        assert time.monotonic() < deadline, "the private server is still there"
        time.sleep(0.02)


def summaries(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {s["strategy"]: s for part in document["parts"] for s in part["strategies"]}


@pytest.mark.long  # The README has this command too, and its test runs it.
def test_every_strategy_is_compared_and_audited_in_one_command(temporary: Path) -> None:
    code, document = run_json(
        *["compare", "-s", "all", "--managed", "redis", "--rounds", "1", "-d", "300ms"],
        *["--limit", "20/s", *SMALL],
        timeout=110,
    )
    assert code == 0, document["parts"]
    assert [part["name"] for part in document["parts"]] == [
        "votes-closed",
        "counters-closed",
        "limiter-closed",
        "zset-closed",
    ]
    found = summaries(document)
    assert len(found) == 52
    shapes = {name: (set(s), set(s["audit"]), set(s["trials"][0])) for name, s in found.items()}
    for name, summary in found.items():
        assert summary["conclusion"] == "passed", (name, summary["reasons"])
        assert summary["audit"]["passed"], name
        assert summary["audit"]["acknowledged"] > 0, name
        # The same shape, whatever the workload.
        assert shapes[name] == shapes["naive"], name
        # What is promised is kept; what is declared, and nothing else, may be found.
        breaches = sum(
            summary["audit"][finding]
            for finding in (
                *("drift", "wrong_answers", "over_admitted", "wrong_refusals", "keys_without_ttl"),
                *("rogue_sets", "late_writes", "wrong_scores", "told_wrong"),
            )
        )
        assert breaches == summary["audit"]["declared"], name
        if summary["contract"]["exact"]:
            assert breaches == 0, (name, summary["audit"]["examples"])
    # The row of each vote is there; nobody promised a count.
    assert found["insert_only"]["audit"]["counts_equal_live_votes"]
    assert not found["redis/seed_cached"]["contract"]["exact"]
    # Forced, not luck: half of its sets are not there, and it adds to each of them.
    assert found["redis/unguarded_pipeline"]["audit"]["rogue_sets"] > 0
    # Its check admits one more than the limit, on every item that is hot.
    assert found["redis/incr_expire"]["audit"]["over_admitted"] > 0
    assert found["redis/gcra"]["audit"]["refused"] > 0
    assert "Redis" in found["redis"]["place"]
    for part in document["parts"]:
        assert set(part["settings"]) == set(document["parts"][0]["settings"])


# To the first count that is there just then.
ADD_TO_A_COUNT = """
for _, key in ipairs(redis.call('KEYS', 'item_*')) do
    if string.match(key, '^item_%d+$') then return redis.call('INCRBY', key, 1000) end
end
return 0"""


def added_to_a_count(redis: hotcount.Redis) -> bool:
    try:
        return bool(redis.execute("EVAL", ADD_TO_A_COUNT, 0) >= 1000)
    except hotcount.UnavailableError:
        return False  # Its socket is there before it listens.


def test_counts_that_are_off_are_drift_which_the_first_description_allows(
    temporary: Path,
) -> None:
    command = [program(), "run", "-s", "redis/seed_cached", "--managed", "redis", "-d", "1s"]
    with subprocess.Popen([*command, *SMALL, "--json"], stdout=subprocess.PIPE, text=True) as load:
        eventually(lambda: list(temporary.glob("hotcount-redis-*/redis.sock")) != [], 20)
        (socket,) = temporary.glob("hotcount-redis-*/redis.sock")
        with hotcount.Redis(f"redis+unix://{socket}", timeout=20) as redis:
            eventually(lambda: added_to_a_count(redis), 20)
        document = json.loads(load.communicate(timeout=60)[0])
    assert load.returncode == 0
    audit = document["audit"]
    assert audit["drift"] >= 1000
    # So are reads of them while they were off.
    assert audit["declared"] == audit["drift"] + audit["told_wrong"]
    assert audit["lost"] == audit["double"] == 0


@pytest.fixture
def generator(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """One in the middle of a long load on a server of its own."""
    command = [program(), "run", "-s", "redis", "--managed", "redis", "-d", "60s", "-w", "8"]
    command += ["--items", "200", "--warmup", "0", "--progress", "ndjson", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for event in ("load", "sample"):
        while json.loads(process.stderr.readline())["event"] != event:
            pass
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def test_ctrl_c_at_a_terminal_leaves_the_server_for_the_audit(
    temporary: Path, generator: subprocess.Popen[str]
) -> None:
    (server,) = servers_in(temporary)
    assert os.getpgid(server) == server != os.getpgid(generator.pid)
    generator.send_signal(signal.SIGINT)
    out, _ = generator.communicate(timeout=30)
    assert generator.returncode == 3
    document = json.loads(out)
    assert document["reasons"] == ["it was interrupted"]
    assert document["audit"]["passed"]
    assert document["audit"]["acknowledged"] > 0


def test_a_killed_generator_takes_its_server_along(
    temporary: Path, generator: subprocess.Popen[str]
) -> None:
    assert len(servers_in(temporary)) == 1
    generator.kill()
    generator.communicate(timeout=30)
    wait_until_gone(temporary)
    # Nobody was left to remove these.
    for folder in temporary.iterdir():
        shutil.rmtree(folder)


def test_the_canonical_comparison_has_redis_where_it_is_installed(temporary: Path) -> None:
    code, document = run_json("--rounds", "1", "-d", "100ms", *SMALL)
    # A machine that is busy with other things may not do anything in so short a time.
    assert code in {0, 3}
    names = [part["name"] for part in document["parts"]]
    assert names == ["hot", "closed", "counters", "limiter", "zset"]
    assert document["notes"] == []
    for name in ("redis", "redis/gcra", "redis/script"):
        assert summaries(document)[name]["audit"]["passed"]


def keys_of_runs(server: RedisServer) -> list[bytes]:
    with server.redis() as redis:
        keys: list[bytes] = redis.execute("KEYS", "hotcount-load:*")
        return keys


@pytest.mark.parametrize(
    "strategy", ["redis", "redis/ttl", "redis/list", "redis/script", "redis/cached"]
)
def test_a_run_leaves_no_key_on_somebodys_server(own_redis: RedisServer, strategy: str) -> None:
    with own_redis.redis() as redis:
        redis.execute("SET", "item:1", "theirs")
    code, document = run_json(
        "run", "-s", strategy, "--redis", own_redis.url, "-d", "200ms", *SMALL
    )
    assert code == 0, document["reasons"]
    assert document["audit"]["acknowledged"] > 0
    assert str(own_redis.socket) in document["place"]
    assert keys_of_runs(own_redis) == []
    with own_redis.redis() as redis:
        assert redis.execute("GET", "item:1") == b"theirs"


@pytest.mark.parametrize("strategy", ["redis/incr", "redis/ttl"])
def test_keys_whose_adders_never_came_to_their_expiry_are_counted(
    own_redis: RedisServer, strategy: str
) -> None:
    # As if each of them died before PEXPIRE: it is not allowed to them.
    with own_redis.redis() as redis:
        redis.execute("ACL", "SETUSER", "mortal", "on", ">pw", "~*", "&*", "+@all", "-pexpire")
    code, document = run_json(
        *["run", "-s", strategy, "--redis", own_redis.login("mortal", "pw"), "-d", "300ms"],
        *["--life", "60s", "--items", "50", "--mix", "vote=1", "-w", "4"],
    )
    assert code == 0, document["reasons"]
    audit = document["audit"]
    if strategy == "redis/ttl":
        assert audit["acknowledged"] > 0
        assert audit["keys_without_ttl"] == 0, "its SET sets the expiry too"
        return
    assert audit["keys_without_ttl"] == audit["declared"] == 50
    per_million = 50 / audit["acknowledged"] * 1e6
    assert audit["keys_without_ttl_per_million"] == pytest.approx(per_million)


def test_a_bystander_is_timed_beside_the_load(temporary: Path) -> None:
    arguments = ["compare", "-s", "script,ttl_gate", "--managed", "redis", "--rounds", "1"]
    arguments += ["--bystander", "--gate", "30ms", "-d", "200ms", *SMALL]
    code, document = run_json(*arguments)
    assert code == 0
    for summary in summaries(document).values():
        assert summary["bystander_us"]["count"] > 0
        assert 0 < summary["bystander_us"]["p50"] <= summary["bystander_us"]["p99"]
        assert summary["commands_per_operation"] > 1
    assert document["parts"][0]["settings"]["gate_s"] == 0.03


def test_sets_are_built_anew_beside_their_upserts(temporary: Path) -> None:
    arguments = ["run", "-s", "script", "--managed", "redis", "--rebuild-every", "1ms"]
    code, document = run_json(*arguments, *["-d", "500ms", "--processes", "2", *SMALL])
    assert code == 0, document["reasons"]
    assert document["result"]["builds"]["published"] > 0
    assert document["result"]["builds"]["failed"] == 0
    audit = document["audit"]
    assert (audit["lost"], audit["wrong_scores"], audit["keys_without_ttl"]) == (0, 0, 0)
    assert audit["acknowledged"] > 0


def test_adds_that_waited_for_a_redis_that_stood_still_are_all_counted(temporary: Path) -> None:
    code, document = run_json(
        *["run", "-s", "redis/retry", "--managed", "redis", "--outage", "600ms"],
        *["-d", "1500ms", "--timeout", "100ms", *SMALL],
    )
    assert code == 0, document["reasons"]
    assert document["audit"]["queued"] > 0
    assert (document["audit"]["lost"], document["audit"]["double"]) == (0, 0)
    assert document["audit"]["sum_of_counters"] > 0


def test_callers_that_are_killed_leave_their_calls_unanswered_and_the_audit_right(
    temporary: Path,
) -> None:
    code, document = run_json(
        *["run", "-s", "redis/ttl", "--managed", "redis", "--life", "20ms", "-d", "1s"],
        *["--processes", "2", "--kill-every", "50ms", *SMALL],
    )
    assert code == 0, document["reasons"]
    assert document["result"]["kills"] > 0
    assert document["audit"]["unknown"] > 0
    assert document["audit"]["keys_without_ttl"] == 0


@pytest.mark.parametrize("method", ["script", "ttl_gate"])
def test_batches_of_callers_that_are_stopped_are_audited(temporary: Path, method: str) -> None:
    code, document = run_json(
        *["run", "-s", method, "--managed", "redis", "--gate", "5ms", "--batch", "100"],
        *["--processes", "2", "--stall", "40ms", "-d", "600ms", *SMALL],
    )
    assert code == 0, document["reasons"]
    assert document["result"]["stalls"] > 0
    assert document["audit"]["acknowledged"] > 1000
    assert document["contract"]["exact"] == (method == "script")
    assert document["audit"]["rogue_sets"] == 0 or method == "ttl_gate"


@pytest.fixture
def redis_behind_a_long_path() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="hotcount-load-") as folder:
        below = Path(folder) / ("x" * (95 - len(folder)))
        below.mkdir()
        server = RedisServer(below)
        try:
            yield server.start()
        finally:
            server.stop()


@pytest.mark.parametrize("which", ["own_redis", "redis_behind_a_long_path"])
def test_counters_on_a_server_can_be_audited_again(
    request: pytest.FixtureRequest, which: str, tmp_path: Path
) -> None:
    own_redis: RedisServer = request.getfixturevalue(which)
    out = tmp_path / "run"
    arguments = ["run", "-s", "redis", "--redis", own_redis.url, "--out", str(out)]
    done = run(*arguments, "-d", "200ms", *SMALL)
    assert done.returncode == 0, done.stderr
    code, document = run_json("audit", str(out))
    assert code == 0, document
    assert document["runs"][0]["audit"]["acknowledged"] > 0
    # Somebody adds to one of its keys, and takes from another.
    first, second = keys_of_runs(own_redis)[:2]
    with own_redis.redis() as redis:
        redis.execute("INCRBY", first, 3)
        redis.execute("DECRBY", second, 2)
    code, document = run_json("audit", str(out), "--redis", own_redis.url)
    assert code == 1
    audit = document["runs"][0]["audit"]
    assert (audit["double"], audit["lost"]) == (3, 2)


def test_a_password_is_not_written_down(own_redis: RedisServer, tmp_path: Path) -> None:
    with own_redis.redis() as redis:
        redis.execute("ACL", "SETUSER", "anna", "on", ">s3cr3tpw", "~*", "&*", "+@all")
    out = tmp_path / "run"
    url = own_redis.login("anna", "s3cr3tpw")
    done = run("run", "-s", "redis", "--redis", url, "--out", str(out), "-d", "100ms", *SMALL)
    assert done.returncode in {0, 3}, done.stderr
    written = json.loads((out / "run.json").read_text())
    assert "***" in written["settings"]["redis_url"]
    assert "s3cr3tpw" not in json.dumps(written)
    again = run("audit", str(out))
    assert again.returncode == 3
    assert "--redis" in again.stdout
    assert run("audit", str(out), "--redis", url).returncode == 0


def test_an_audit_of_data_that_ended_with_its_run_is_refused_by_name(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run("run", "-s", "memory/gcra", "--out", str(out), "-d", "100ms", *SMALL)
    assert done.returncode in {0, 3}
    assert "cannot be audited again" in done.stderr
    assert json.loads((out / "run.json").read_text())["audit"]["passed"]
    again = run("audit", str(out))
    assert again.returncode == 3
    assert "audit impossible: memory/gcra: the counts are in the memory" in again.stdout
    # Nothing is said of what was not looked at.
    assert "nothing lost" not in again.stdout
