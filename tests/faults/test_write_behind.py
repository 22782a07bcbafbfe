"""write_behind beside kills of voters, workers, Redis: losses only where the contract says so."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.servers import PostgresServer, RedisServer
from tests.support.write_behind_storm import Storm

pytestmark = pytest.mark.server

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    servers: list[RedisServer] = []

    def start(*config: str) -> RedisServer:
        folder = tmp_path / f"redis{len(servers)}"
        folder.mkdir()
        servers.append(RedisServer(folder, config=config).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def acknowledged(storm: Storm, more: int) -> None:
    """Goes on until so many more votes are acknowledged."""
    begun = storm.ledger.acknowledgements
    eventually(lambda: storm.ledger.acknowledgements >= begun + more, 30)


def restart(redis: RedisServer) -> None:
    redis.kill()
    redis.start()


def make(tmp_path: Path, redis: RedisServer) -> Storm:
    storm = Storm(f"sqlite:///{tmp_path}/votes.db", redis, items=12)
    storm.start("voter")
    storm.start("worker")
    storm.start("worker")
    acknowledged(storm, 100)
    return storm


def test_kills_of_voters_and_workers_lose_nothing(
    tmp_path: Path, start_redis: Callable[..., RedisServer]
) -> None:
    storm = make(tmp_path, start_redis())
    for kind in ("worker", "voter", "worker"):
        storm.kill(kind)
        acknowledged(storm, 100)
        storm.age()
    storm.check()


def test_kills_of_a_redis_that_syncs_every_write_lose_nothing(
    tmp_path: Path, start_redis: Callable[..., RedisServer]
) -> None:
    redis = start_redis(*ALWAYS)
    storm = make(tmp_path, redis)
    for _ in range(2):
        restart(redis)
        acknowledged(storm, 100)
    storm.check()


@pytest.mark.parametrize("how", ["no persistence", "FLUSHALL"])
def test_a_redis_that_loses_its_data_loses_what_waited_and_nothing_that_comes_later(
    tmp_path: Path, start_redis: Callable[..., RedisServer], how: str
) -> None:
    redis = start_redis()
    storm = make(tmp_path, redis)
    for _ in range(2):
        if how == "FLUSHALL":
            storm.lose(lambda: storm.run_in_redis("FLUSHALL"))
        else:
            storm.lose(lambda: restart(redis))
        acknowledged(storm, 100)
    storm.check()


@pytest.mark.long
@pytest.mark.parametrize("fsync", ["always", "everysec", "none"])
def test_a_storm_of_5000_votes_a_second(
    start_redis: Callable[..., RedisServer], own_postgres: PostgresServer, fsync: str
) -> None:
    """10,000 items by Zipf, 4 workers, kills of all; how many updates of counts a vote costs."""
    redis = start_redis(*{"always": ALWAYS, "everysec": EVERYSEC, "none": ()}[fsync])
    database = own_postgres.create_database()
    storm = Storm(database.url, redis, items=10_000, rate=2500, interval=0.2)
    for kind in ("voter", "voter", "worker", "worker", "worker", "worker"):
        storm.start(kind)
    began = time.monotonic()
    draw = random.Random(18)
    kills: dict[str, int] = {}
    while time.monotonic() - began < 60:
        time.sleep(draw.uniform(1, 3))
        what = draw.choices(
            ["worker", "voter", "redis", "FLUSHALL"], [6, 3, 1, 0 if fsync == "always" else 1]
        )[0]
        kills[what] = kills.get(what, 0) + 1
        if what in ("worker", "voter"):
            storm.kill(what)
        elif fsync == "always":
            restart(redis)
        elif what == "redis":
            storm.lose(lambda: restart(redis))
        else:
            storm.lose(lambda: storm.run_in_redis("FLUSHALL"))
    seconds = time.monotonic() - began
    storm.check()
    acked = storm.ledger.acknowledgements
    updates = int(
        own_postgres.psql(
            "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'item'",
            schema=database.schema,
        )
    )
    print(
        f"appendfsync {fsync}: {acked / seconds:,.0f} votes/s acknowledged, kills {kills}, "
        f"{updates / acked:.4f} count UPDATEs per vote"
    )
    assert updates / acked < 0.05
