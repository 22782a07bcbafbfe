"""The clock of MariaDB and MySQL where their time zone has a summer time."""

from __future__ import annotations

from collections.abc import Iterator

import hotcount
import pytest

from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server

pytestmark = pytest.mark.server

# 2:30 in Berlin, half an hour before the clocks go back from 3:00 to 2:00.
BEFORE = 1_761_438_600


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[MariaDbServer]:
    """A server whose sessions of app stand still at a time that the test says."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    with new_server(config=("--sysdate-is-now",)).started() as server:
        yield server


@pytest.mark.parametrize(
    ("after", "admitted"), [(0, False), (3599, False), (3601, True), (7201, True)]
)
def test_an_hour_is_an_hour_when_the_clocks_go_back(
    berlin: MariaDbServer, after: int, admitted: bool
) -> None:
    name = berlin.create_database()
    berlin.execute("CREATE USER app@localhost")
    berlin.execute(f"GRANT ALL ON {name}.* TO app@localhost")

    def hit(at: int) -> hotcount.Decision:
        berlin.execute(f"SET GLOBAL init_connect = 'SET timestamp = {at}'")
        with hotcount.Database(berlin.url(name, user="app"), timeout=20) as database:
            limiter = hotcount.Limiter(database, "1/hour")
            limiter.create_table()
            return limiter.hit("anna")

    assert hit(BEFORE)
    second = hit(BEFORE + after)
    assert bool(second) == admitted
    if not admitted:
        assert second.retry_after == pytest.approx(3600 - after, abs=0.1)
