"""Page views counted by gunicorn's workers of one thread, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.servers import PostgresDatabase, RedisServer, free_port
from tests.support.together import together

pytestmark = [pytest.mark.server, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
WORKERS = 3


class Site:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._port = port

    def add(self, ack: str) -> int:
        """Which process it was that has acknowledged it."""
        with urlopen(f"http://127.0.0.1:{self._port}/add?ack={ack}", timeout=30) as answer:
            said: dict[str, Any] = json.load(answer)
            return int(said["pid"])

    def answers(self) -> bool:
        assert self.process.poll() is None
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/", timeout=30):
                return True
        except OSError:
            return False


@contextmanager
def gunicorn(database: str, cache: str, folder: Path, interval: float) -> Iterator[Site]:
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--no-control-socket", "--preload"]
    command += ["--workers", str(WORKERS), "--bind", f"127.0.0.1:{port}"]
    with (folder / "gunicorn.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "tests.support.views_app:app"],
            cwd=ROOT,
            env={
                **os.environ,
                "HOTCOUNT_TEST_DATABASE": database,
                "HOTCOUNT_TEST_CACHE": cache,
                "HOTCOUNT_TEST_INTERVAL": str(interval),
            },
            stdout=log,
            stderr=log,
        )
    try:
        site = Site(process, port)
        eventually(site.answers, 60)
        yield site
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("ack", ["cache", "local", "sql"])
def test_of_a_worker_that_is_killed_only_its_local_adds_are_lost(
    postgres_database: PostgresDatabase, own_redis: RedisServer, tmp_path: Path, ack: str
) -> None:
    url = postgres_database.url
    with hotcount.WriteBehindCounter(url, own_redis.url) as views:
        views.create_tables()
        # Longer than the test: a worker flushes its local adds when it ends, or not at all.
        with gunicorn(url, own_redis.url, tmp_path, interval=60) as site:
            served: list[int] = []
            failed: list[OSError] = []

            def ask(_: int) -> None:
                for _ in range(30):
                    try:
                        served.append(site.add(ack))
                    except OSError as error:
                        failed.append(error)

            while len(set(served)) < WORKERS:
                together(ask, 6)
            assert failed == []
            victim = served[0]
            os.kill(victim, signal.SIGKILL)
            together(ask, 6)
        # An add whose request failed may be counted.
        lost = served.count(victim) if ack == "local" else 0
        assert len(served) - lost <= int(views.get(ack)) <= len(served) - lost + len(failed)
        views.sync_worker().run_once()
        assert views.get(ack).pending == 0
