"""Databases behind a network that resets connections, passes bytes one by one, or is late."""

import threading
import time
from collections.abc import Callable, Iterator

import hotcount
import pytest

from tests.faults.cuts import NOT_APPLIED, UNKNOWN
from tests.faults.proxy import CLIENT_TO_SERVER, FaultProxy
from tests.support.journal_side import JournalSide
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer
from tests.support.together import beside, together

pytestmark = pytest.mark.server

CALLERS = 4
BUSY = 2.0  # What a busy machine adds to a deadline.


@pytest.fixture
def far(
    request: pytest.FixtureRequest, journal_side: JournalSide
) -> Iterator[tuple[FaultProxy, str]]:
    """A way to the database over TCP, and its URL there."""
    if journal_side.dialect == "mysql":
        maria: MariaDbServer = request.getfixturevalue("mariadb_server")
        socket = maria.socket
        place = "mariadb://root@127.0.0.1:{port}/" + request.getfixturevalue("mariadb_database")
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        socket = postgres.folder / ".s.PGSQL.5432"
        schema = journal_side.url.rpartition("search_path%3D")[2]
        options = f"sslmode=disable&options=-csearch_path%3D{schema}"
        place = f"postgresql://{postgres.superuser}@127.0.0.1:{{port}}/postgres?{options}"
    with FaultProxy(socket) as proxy:
        yield proxy, place.format(port=proxy.port)


def live_users(side: JournalSide) -> set[int]:
    with side.session() as session:
        found = session.execute("SELECT user_id FROM vote_live WHERE item_id = 1")
    return {int(row[0]) for row in found}


def make_tables(side: JournalSide) -> None:
    with hotcount.Votes(side.url) as votes:
        votes.create_tables()
        votes.add_items([1])
    hotcount.SlottedCounter(side.url).create_table()


def reset_every_200_ms(proxy: FaultProxy) -> Callable[[threading.Event], object]:
    def breaking(ended: threading.Event) -> None:
        while not ended.wait(0.2):
            proxy.reset_after(300, CLIENT_TO_SERVER)

    return breaking


def test_connections_that_are_reset(far: tuple[FaultProxy, str], journal_side: JournalSide) -> None:
    proxy, url = far
    make_tables(journal_side)
    told: dict[str, set[int]] = {"cast": set(), "unknown": set(), "not applied": set()}
    longest = [0.0]
    with (
        hotcount.Votes(hotcount.Database(url, timeout=5)) as votes,
        hotcount.SlottedCounter(hotcount.Database(url, timeout=5)) as slots,
    ):

        def work(caller: int) -> int:
            until = time.monotonic() + 3
            added = 0
            for user in range(caller, 10**6, CALLERS):
                began = time.monotonic()
                if began > until:
                    break
                try:
                    votes.cast(1, user)
                    told["cast"].add(user)
                except UNKNOWN:
                    told["unknown"].add(user)
                except NOT_APPLIED:
                    told["not applied"].add(user)
                longest[0] = max(longest[0], time.monotonic() - began)
                while True:  # Until it is settled.
                    try:
                        slots.add("hot", op_id=f"{caller} {user}")
                        break
                    except (UNKNOWN, *NOT_APPLIED):
                        pass
                added += 1
            return added

        with beside(reset_every_200_ms(proxy)):
            added = sum(together(work, CALLERS))
        proxy.heal()
        healed = time.monotonic()
        assert votes.cast(1, 10**6).value == 1
        assert time.monotonic() - healed < 2 + BUSY
        told["cast"].add(10**6)
        assert slots.get("hot") == added
        assert int(votes.count(1, consistency="exact")) == len(live_users(journal_side))
    assert proxy.fired >= 5
    assert longest[0] < 5 + BUSY
    live = live_users(journal_side)
    assert told["cast"] <= live, "an acknowledged vote is lost"
    assert live <= told["cast"] | told["unknown"], "a vote that was said not to be applied"


@pytest.mark.parametrize("slow", ["by the byte", "late"])
def test_a_network_that_is_slow_costs_time_and_nothing_else(
    far: tuple[FaultProxy, str], journal_side: JournalSide, slow: str
) -> None:
    proxy, url = far
    make_tables(journal_side)
    if slow == "late":
        proxy.delay(0.05, 0.05)
    else:
        proxy.slices(1)
    with hotcount.Votes(hotcount.Database(url, timeout=30)) as votes:
        casts = together(lambda user: votes.cast(1, user), CALLERS)
        assert all(cast.changed for cast in casts)
        if slow == "late":
            proxy.delay(0.2, 0.2)
            began = time.monotonic()
            with pytest.raises((UNKNOWN, *NOT_APPLIED)):
                votes.cast(1, 100, timeout=0.05)  # An answer up to 0.2 s late is taken.
            assert time.monotonic() - began < 0.05 + BUSY
            proxy.delay(0.05, 0.05)
        votes.cast(1, 100)
        assert int(votes.count(1, consistency="exact")) == CALLERS + 1
    assert live_users(journal_side) == {*range(CALLERS), 100}
