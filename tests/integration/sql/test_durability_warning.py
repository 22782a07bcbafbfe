"""A server whose settings make a commit mean less: one line in the log for each database opened."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import hotcount
import pytest

from tests.support.mysql_server import new_server
from tests.support.servers import PostgresDatabase, PostgresServer
from tests.support.sqlalchemy_side import BothSides

pytestmark = pytest.mark.server


def said(caplog: pytest.LogCaptureFixture, url: str) -> list[str]:
    """What is logged as votes are cast and counted there."""
    caplog.clear()
    with (
        caplog.at_level(logging.DEBUG, logger="hotcount"),
        hotcount.Database(url, timeout=20) as database,
        hotcount.Votes(database, None, "batched") as votes,
        # The same object of the core.
        hotcount.Database(url, timeout=20) as again,
    ):
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, 1)
        votes.count(1)
        again.ping()
    records = [record for record in caplog.records if record.name == "hotcount"]
    assert all(record.levelno == logging.WARNING for record in records)
    return [record.getMessage() for record in records]


@pytest.fixture(scope="module")
def weak_postgres() -> Iterator[PostgresServer]:
    with PostgresServer().started("fsync=off", "full_page_writes=off") as server:
        yield server


def test_a_postgres_that_does_not_sync_is_named_once(
    weak_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    (line,) = said(caplog, weak_postgres.url())
    assert "fsync=off" in line
    assert "full_page_writes=off" in line
    assert "synchronous_commit" not in line
    assert str(weak_postgres.folder) in line or "postgresql" in line


@pytest.mark.parametrize("where", ["role", "url"])
def test_commits_that_do_not_wait_are_named(
    postgres: PostgresDatabase, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    url = postgres.url + "%20-csynchronous_commit%3Doff"
    if where == "role":
        url = postgres.url_for(postgres.role("synchronous_commit = off"))
    (line,) = said(caplog, url)
    assert "synchronous_commit=off" in line
    assert "fsync" not in line


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (("--innodb-flush-log-at-trx-commit=2",), {"innodb_flush_log_at_trx_commit=2"}),
        (("--log-bin", "--sync-binlog=0"), {"sync_binlog=0"}),
        (("--log-bin", "--sync-binlog=1"), set()),
        (("--innodb-doublewrite=OFF",), {"innodb_doublewrite=OFF"}),
    ],
)
def test_a_mariadb_that_does_not_sync_is_named_once(
    config: tuple[str, ...], named: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    with new_server(config=config).started() as server:
        lines = said(caplog, server.url(server.create_database()))
    assert len(lines) == (1 if named else 0)
    settings = {"innodb_flush_log_at_trx_commit", "sync_binlog", "innodb_doublewrite"}
    found = {word for line in lines for word in line.replace(":", " ").split() if "=" in word}
    assert {word for word in found if word.split("=")[0] in settings} == named


def test_a_handler_that_fails_costs_nothing(
    weak_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no log today")

    unraised: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unraised.append)
    monkeypatch.setattr(logging.getLogger("hotcount"), "warning", refuse)
    with hotcount.Database(weak_postgres.url(), timeout=19) as database:
        assert database.ping()
    assert len(unraised) == 1


def test_a_durable_server_logs_no_warning(
    sides: BothSides, caplog: pytest.LogCaptureFixture
) -> None:
    """And no SQLite: whatever its build says, its commits are FULL by our own word."""
    assert said(caplog, sides.url) == []
