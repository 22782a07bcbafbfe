"""hotcount-load on a private Redis: an audit reads its folder; a worker brings views to SQL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.load_generator import SMALL, program, run, run_json
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server


def managed(strategies: str, folder: Path, *more: str, command: str = "run") -> list[str]:
    arguments = [command, "-s", strategies, "--managed", "redis", "--out", str(folder)]
    return [*arguments, *SMALL, *more]


def audited(folder: Path) -> tuple[int, dict[str, Any]]:
    code, document = run_json("audit", str(folder))
    (found,) = document["runs"]
    return code, found


def test_each_trial_on_a_private_redis_is_audited_from_its_folder(
    temporary: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "all"
    names = "redis/ttl,redis/fixed_window,redis/list,redis/script,redis/cached,redis/views"
    options = ["--rounds", "1", "-d", "100ms", "-w", "4"]
    done = run(*managed(names, folder, *options, command="compare"))
    assert done.returncode == 0, done.stdout + done.stderr
    code, document = run_json("audit", str(folder))
    assert code == 0, document
    assert {each["settings"]["strategy"] for each in document["runs"]} == set(names.split(","))
    for each in document["runs"]:
        first = json.loads(Path(each["folder"], "run.json").read_text())
        assert each["audit"] == first["audit"], each
        assert each["audit"]["acknowledged"] > 0
    assert list(temporary.iterdir()) == []


@pytest.fixture
def limited(temporary: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "limited"
    done = run(*managed("redis/gcra", folder, "-d", "100ms"))
    assert done.returncode == 0, done.stderr
    return folder


def cut(folder: Path) -> None:
    os.truncate(folder / "redis.rdb", (folder / "redis.rdb").stat().st_size // 2)


def empty(folder: Path) -> None:
    os.truncate(folder / "redis.rdb", 0)


def forget(folder: Path) -> None:
    (folder / "redis.rdb").unlink()


def forget_clocks(folder: Path) -> None:
    (folder / "target.json").write_text("{}")


def take_another(folder: Path) -> None:
    run_file = folder / "run.json"
    document = json.loads(run_file.read_text())
    document["settings"]["key_prefix"] = "hotcount-load:another:"
    run_file.write_text(json.dumps(document))


def test_a_dump_that_is_damaged_or_missing_makes_an_audit_impossible(limited: Path) -> None:
    for damage, why in (
        (forget, "no redis.rdb"),
        (empty, "no Redis starts on"),
        (cut, "no Redis starts on"),
        (take_another, "is not of this run"),
        (forget_clocks, "begun_ns"),
    ):
        damaged = limited.with_name(damage.__name__)
        shutil.copytree(limited, damaged)
        damage(damaged)
        again = run("audit", str(damaged))
        assert again.returncode == 3, damage
        assert "audit impossible" in again.stdout
        assert why in again.stdout
        assert "nothing lost" not in again.stdout
    assert run("audit", str(limited)).returncode == 0


def rewritten(folder: Path, rewrite: Callable[[Any], None]) -> None:
    """Changes what the run's Redis held."""
    with tempfile.TemporaryDirectory(prefix="hotcount-") as name:
        shutil.copy(folder / "redis.rdb", Path(name) / "dump.rdb")
        server = RedisServer(Path(name))
        server.start()
        try:
            with server.redis() as redis:
                rewrite(redis)
                redis.execute("SAVE")
            shutil.copy(Path(name) / "dump.rdb", folder / "redis.rdb")
        finally:
            server.stop()


def test_an_audit_from_a_folder_finds_adds_that_are_missing_or_twice_in_its_dump(
    temporary: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert run(*managed("redis/retry", folder, "-d", "100ms")).returncode == 0
    assert audited(folder)[0] == 0

    def change(redis: Any) -> None:
        keys = sorted(redis.execute("KEYS", "hotcount-load:*count:*"))
        redis.execute("DECRBY", keys[0], 2)
        redis.execute("INCRBY", keys[1], 3)

    rewritten(folder, change)
    code, found = audited(folder)
    assert code == 1
    assert (found["audit"]["lost"], found["audit"]["double"]) == (2, 3)


def test_an_audit_from_a_folder_finds_a_set_that_nobody_made(
    temporary: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert run(*managed("redis/script", folder, "-d", "100ms")).returncode == 0
    prefix = json.loads((folder / "run.json").read_text())["settings"]["key_prefix"]
    rewritten(folder, lambda redis: redis.execute("ZADD", f"{prefix}item:4", 1, "user:1"))
    code, found = audited(folder)
    assert code == 1
    assert found["audit"]["rogue_sets"] == 1


@pytest.mark.parametrize("strategy", ["redis/script", "redis/write_behind"])
def test_a_private_redis_saves_what_it_has_when_its_generator_is_killed(
    temporary: Path, tmp_path: Path, strategy: str
) -> None:
    folder = tmp_path / "run"
    # Stopped, it must first go on: the kernel sees to that.
    arguments = managed(strategy, folder, "-d", "60s", "--fault", "300ms:redis.pause+30s")
    generator = subprocess.Popen([program(), *arguments], stderr=subprocess.DEVNULL)
    try:
        generator.wait(0.6)
    except subprocess.TimeoutExpired:
        generator.kill()
    assert generator.wait() == -signal.SIGKILL
    code, found = audited(folder)
    assert code == 0, found
    assert found["state"] == "running"
    assert found["audit"]["acknowledged"] > 0
    assert found["audit"]["unknown"] > 0


@pytest.mark.parametrize(
    "strategy", ["redis/retry", pytest.param("redis/write_behind", marks=pytest.mark.long)]
)
def test_a_redis_that_is_killed_and_started_again_has_lost_and_doubled_nothing(
    temporary: Path, tmp_path: Path, strategy: str
) -> None:
    folder = tmp_path / "run"
    code, document = run_json(
        *managed(strategy, folder, "--fault", "200ms:redis.kill9+200ms", "-d", "700ms")
    )
    assert code == 0, document["reasons"]
    assert document["result"]["faults"] == 1
    assert "appendfsync always" in document["place"]
    audit = document["audit"]
    assert (audit["lost"], audit["double"], audit["ghost"]) == (0, 0, 0)
    assert audit["acknowledged"] > 0
    if strategy == "redis/retry":
        assert audit["queued"] > 0
        assert audit["unknown"] == 0
    assert audited(folder)[0] == 0


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
