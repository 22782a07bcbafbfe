"""A Locust fleet, one master and two workers, whose ledger hotcount-load audits."""

from __future__ import annotations

import importlib.util
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import hotcount
import pytest

from tests.support.load_generator import read_ledger, run
from tests.support.programs import captured

# Not importorskip(): Locust patches the process that imports it, and pytest's own threads with it.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="extra: fleet"),
]

ITEMS = 20

SHARED = """
import os, sqlite3
import hotcount

URL = {url!r}
votes = hotcount.Votes(URL, strategy="naive")

def sql(query):
    with sqlite3.connect(URL.removeprefix("sqlite:///")) as database:
        return database.execute(query).fetchall()
"""

DRIVER = (
    SHARED
    + """
from hotcount import load
load.driver(
    cast=lambda item, user, value: votes.cast(item, user, value),
    read=lambda item: votes.count(item).value,
    rows=lambda: sql("SELECT item_id, user_id, val FROM vote"),
    counts=lambda: sql("SELECT id, vote_count FROM item"),
)
"""
)

LOCUSTFILE = (
    SHARED
    + """
import locust
from hotcount.integrations.locust import VoteUser

class Voter(VoteUser):
    ledger = {ledger!r}
    items = {items}
    mix = {{"vote": 60, "unvote": 20, "read": 20}}

    def cast(self, item, user, value):
        return votes.cast(item, user, value)

    def read(self, item):
        return votes.count(item).value

# A fleet ends when it has made enough calls, or one has failed.
class Ending(locust.LoadTestShape):
    def tick(self):
        done = self.runner.stats.total.num_requests
        failed = self.runner.stats.total.num_failures
        return None if done >= 400 or failed else (8, 8)
"""
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_fleet_of_two_workers_is_audited_from_its_folder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'votes.sqlite3'}"
    ledger = tmp_path / "fleet"
    with hotcount.Votes(url, strategy="naive") as votes:
        votes.create_tables()
        votes.add_items(range(1, ITEMS + 1))
    (tmp_path / "driver.py").write_text(DRIVER.format(url=url))
    locustfile = tmp_path / "locustfile.py"
    locustfile.write_text(LOCUSTFILE.format(url=url, ledger=str(ledger), items=ITEMS))
    port = free_port()
    base = [sys.executable, "-m", "locust", "-f", str(locustfile)]
    # A stranger's settings, and a terminal's, are not the test's.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCUST_")}
    master = subprocess.Popen(
        [
            *(*base, "--headless", "--master", "--expect-workers", "2"),
            *("--master-bind-host", "127.0.0.1", "--master-bind-port", str(port)),
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    workers = [
        subprocess.Popen(
            [*base, "--worker", "--master-host", "127.0.0.1", "--master-port", str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        said, _ = master.communicate(timeout=100)
        for worker in workers:
            worker.wait(timeout=30)
    finally:
        for process in [master, *workers]:
            process.kill()
            process.wait()
    assert master.returncode == 0, said
    assert len(list(ledger.glob("ledger-part-*.bin"))) == 2

    merging = [sys.executable, "-m", "hotcount.load", "merge", str(ledger), "--items", str(ITEMS)]
    driver = f"{sys.executable} {tmp_path / 'driver.py'}"
    done = captured([*merging, "--driver", driver])
    assert done.returncode == 0, done.stderr
    writes = read_ledger(ledger / "ledger.bin")
    assert len(writes) >= 200
    audited = run("audit", str(ledger))
    assert audited.returncode == 0, audited.stdout
    # The audit is one: it finds what is taken away.
    with sqlite3.connect(tmp_path / "votes.sqlite3") as database:
        one = "SELECT item_id, user_id FROM vote WHERE val = 1 LIMIT 1"
        gone = database.execute(f"DELETE FROM vote WHERE (item_id, user_id) IN ({one})")
        assert gone.rowcount == 1
    audited = run("audit", str(ledger))
    assert audited.returncode == 1, audited.stdout


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({}, "VoteUser.ledger is ''; it takes a folder"),
        ({"ledger": "x", "items": 0}, "VoteUser.items is 0; it takes 1 to 1000000"),
        ({"ledger": "x", "zipf": 21}, "VoteUser.zipf is 21; it takes 0 to 20"),
        ({"ledger": "x", "mix": {"look": 1}}, "it takes shares of vote, unvote and read"),
        ({"ledger": "x", "dup": 2}, "VoteUser.dup is 2; it takes 0 to 1"),
    ],
)
def test_bad_attributes_of_a_user_are_named(attributes: dict[str, object], says: str) -> None:
    code = (
        "from hotcount.integrations.locust import VoteUser\n"
        f"type('Voter', (VoteUser,), {attributes!r})"
    )
    done = captured([sys.executable, "-c", code])
    assert done.returncode == 1
    assert "ConfigError: " in done.stderr
    assert says in done.stderr
