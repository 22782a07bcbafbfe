"""Page views counted by gunicorn's workers of one thread, one of which is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hotcount
import pytest

from tests.support.gunicorn_server import WORKERS, gunicorn
from tests.support.servers import PostgresDatabase, RedisServer
from tests.support.together import together

pytestmark = [pytest.mark.server, pytest.mark.long]


@pytest.mark.parametrize("ack", ["cache", "local", "sql"])
def test_of_a_worker_that_is_killed_only_its_local_adds_are_lost(
    postgres_database: PostgresDatabase, own_redis: RedisServer, tmp_path: Path, ack: str
) -> None:
    url = postgres_database.url
    with hotcount.WriteBehindCounter(url, own_redis.url) as views:
        views.create_tables()
        # Longer than the test: a worker flushes its local adds when it ends, or not at all.
        options = {"DATABASE": url, "CACHE": own_redis.url, "INTERVAL": "60"}
        with gunicorn("views_app:app", tmp_path, **options) as site:
            served: list[int] = []
            failed: list[OSError] = []

            def ask(_: int) -> None:
                for _ in range(30):
                    try:
                        served.append(site.get(f"/add?ack={ack}")["pid"])
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
