"""`hotcount sync` without a cache that counts: folds the journal that no other process folds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.commands import run, syncing, told_to_stop
from tests.support.eventually import eventually
from tests.support.servers import PostgresServer, RedisServer
from tests.support.sqlalchemy_side import BothSides


def make_votes(database: hotcount.Database, **options: Any) -> hotcount.Votes:
    """Votes whose process has folded once and does not again."""
    votes = hotcount.Votes(database, fold_interval=3600, **options)
    votes.create_tables()
    votes.add_items([1, 2])
    votes.cast(2, 1)
    votes.flush()
    return votes


def stored(server: BothSides, item: int = 1) -> int:
    return int(server.run(f"SELECT vote_count FROM item WHERE id = {item}")[0][0])


def sync(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("sync", *arguments)


def test_sync_once_folds_everything_and_says_so(server: BothSides) -> None:
    votes = make_votes(server.database)
    votes.cast_many([1, 1, 2], [1, 2, 2])
    assert stored(server) == 0
    done = sync("--db", server.url, "--once", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"settled": True, "rounds": 1, "failed": 0, "folded": 2}
    assert (stored(server), stored(server, 2)) == (2, 2)
    again = sync("--db", server.url, "--once")
    assert (again.returncode, again.stdout) == (0, "rounds 1, failed 0, folded 0\n")


def test_sync_once_says_that_an_item_was_held_all_the_time(server: BothSides) -> None:
    votes = make_votes(server.database)
    votes.cast(1, 1)
    with server.engine.begin() as other:
        other.execute(sa.text("SELECT id FROM item WHERE id = 1 FOR UPDATE")).all()
        done = sync("--db", server.url, "--once", "--timeout", "1", "--json")
        assert done.returncode == 1, done.stderr
        assert not json.loads(done.stdout)["settled"]
        assert int(votes.count(1)) == 1
    assert sync("--db", server.url, "--once").returncode == 0
    assert stored(server) == 1


def test_sync_folds_until_it_is_told_to_stop(server: BothSides) -> None:
    votes = make_votes(server.database)
    with syncing("--json", "--db", server.url) as (process, _):
        for user in range(1, 4):
            votes.cast(1, user)
            eventually(lambda user=user: stored(server) == user)  # type: ignore[misc]
        said, _ = told_to_stop(process)
    assert process.returncode == 0
    assert json.loads(said)["folded"] == 3


def test_a_server_that_is_away_for_a_while_is_folded_on_when_it_is_back(
    own_postgres: PostgresServer,
) -> None:
    url = own_postgres.url()
    with hotcount.Database(url, timeout=20) as database:
        votes = make_votes(database)
        with syncing("--json", "--db", url) as (process, line):
            assert "until interrupted" in line()
            own_postgres.stop()
            assert line().startswith("hotcount sync: ")
            own_postgres.start()
            votes.cast(1, 1)
            eventually(lambda: own_postgres.psql("SELECT vote_count FROM item WHERE id = 1") == "1")
            said, _ = told_to_stop(process)
        assert process.returncode == 0
        assert json.loads(said)["failed"] > 0


def test_sync_with_a_cache_publishes_its_folds(
    server: BothSides, redis_server: RedisServer
) -> None:
    with hotcount.Redis(redis_server.url, timeout=20) as redis:
        votes = make_votes(server.database, cache=redis)
        votes.count(1)
        votes.cast(1, 1)
        assert (int(votes.count(1)), votes.count(1).source) == (0, "cache")
        at = ("--db", server.url, "--cache", redis_server.url)
        assert sync(*at, "--strategy", "batched", "--once").returncode == 0
        assert (int(votes.count(1)), votes.count(1).source) == (1, "cache")


def test_sync_folds_slotted_votes_of_any_names_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/votes.db"
    names = {"item_table": "post", "vote_user": "fan", "vote_value": "points", "vote_version": "v"}
    with hotcount.Votes(url, strategy="slotted", user_type=str, **names) as votes:  # type: ignore[arg-type]
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, "anna")
    options = [f"--{name.replace('_', '-')}={value}" for name, value in names.items()]
    done = sync("--db", url, "--strategy", "slotted", "--once", "--user-type", "str", *options)
    assert (done.returncode, done.stdout) == (0, "rounds 1, failed 0, folded 1\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--db", "sqlite:///:memory:"), "nothing to fold"),
        (("--db", "postgresql:///x", "--strategy", "cached"), "needs --cache"),
        (("--db", "postgresql:///x", "--strategy", "naive"), "invalid choice"),
        (("--db", "postgresql:///x", "--cache", "memory://", "--strategy", "batched"), "server's"),
        (("--db", "postgresql:///x", "--cache", "redis://h", "--strategy", "slotted"), "cache"),
    ],
)
def test_bad_usage_is_refused(arguments: tuple[str, ...], says: str) -> None:
    done = sync(*arguments, "--once")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
