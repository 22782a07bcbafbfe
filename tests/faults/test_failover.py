"""A database of several hosts: its primary ends, its standby is promoted, and calls go on there.

With --mysql the rows of MariaDB are MySQL's.
"""

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import psycopg
import pytest
from hotcount._votes_base import Strategy

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import BUSY, eventually
from tests.support.failover import ENDS, Pair, promotion, started
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql
from tests.support.servers import PostgresServer
from tests.support.together import in_thread

pytestmark = pytest.mark.server

KINDS = pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
STRATEGIES = pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])

PAGE = Path(__file__).parents[2] / "docs/how-to/failover.md"


@pytest.fixture
def pair(kind: str) -> Iterator[Pair]:
    with started(kind) as made:
        yield made


def open_votes(pair: Pair, strategy: Strategy = "batched", timeout: float = 20) -> hotcount.Votes:
    database = hotcount.Database(pair.url(), timeout=timeout)
    votes = hotcount.Votes(database, strategy=strategy)
    votes.create_tables()
    votes.add_items([1, 2])
    return votes


@pytest.mark.mariadb_only("the MySQL that is fetched has no semi-synchronous replication")
@KINDS
@pytest.mark.parametrize("end", ENDS)
def test_a_promotion_under_load_loses_and_doubles_nothing(pair: Pair, end: str) -> None:
    made = promotion(pair, end, rate=500, seconds=1)
    print(made)
    assert made.acknowledged > 200
    assert (made.lost, made.doubled) == (0, 0)
    assert made.not_applied == 0, made.errors
    # Each is settled at the new primary.
    assert made.unknown == 0
    assert made.after_promotion < 2 + BUSY


@KINDS
@STRATEGIES
def test_calls_of_every_strategy_go_on_at_the_standby(pair: Pair, strategy: Strategy) -> None:
    with open_votes(pair, strategy) as votes:
        for user in range(8):
            votes.cast(1, user)
        pair.end_primary("kill")
        late = [in_thread(partial(votes.cast, 1, user)) for user in range(100, 108)]
        pair.promote()
        assert all(call().changed for call in late)
        assert int(votes.count(1, consistency="exact")) == 16
        assert votes.reconcile(dry_run=True) == []
    assert sorted(pair.column("SELECT user_id FROM vote_live")) == [*range(8), *range(100, 108)]


@KINDS
async def test_counters_limits_and_loops_go_on_at_the_promoted_standby(pair: Pair) -> None:
    database = hotcount.Database(pair.url(), timeout=20)
    counter = hotcount.SlottedCounter(database)
    counter.create_table()
    limiter = hotcount.Limiter(database, "100/day")
    limiter.create_table()
    async with hotcount.aio.Database(pair.url(), timeout=20) as loops:
        votes = hotcount.aio.Votes(loops)
        await votes.create_tables()
        await votes.add_items([1])
        counter.add("k")
        assert limiter.hit("k")
        await votes.cast(1, 1)
        pair.end_primary("kill")
        promoted = in_thread(pair.promote)
        assert (await votes.cast(1, 2)).changed
        promoted()
        counter.add("k")
        assert counter.get("k") == 2
        assert limiter.hit("k").remaining == 98
        assert int(await votes.count(1, consistency="exact")) == 2


@KINDS
def test_a_cached_count_is_saved_at_the_promoted_standby(pair: Pair) -> None:
    database = hotcount.Database(pair.url(), timeout=20)
    with hotcount.Votes(database, hotcount.Memory(), "cached") as votes:
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, 1)
        pair.end_primary("kill")
        promoted = in_thread(pair.promote)
        assert votes.cast(1, 2).changed
        promoted()
        votes.sync_worker().run_once()
        assert int(votes.count(1, consistency="exact")) == 2
        assert votes.reconcile(dry_run=True) == []
    assert pair.column("SELECT vote_count FROM item") == [2]


@KINDS
@STRATEGIES
def test_a_primary_that_is_demoted_is_left_within_the_call(pair: Pair, strategy: Strategy) -> None:
    """Its sessions stay open and say 25006, or 1290."""
    with open_votes(pair, strategy) as votes:
        for user in range(4):
            votes.cast(1, user)
        pair.demote_primary()
        late = [in_thread(partial(votes.cast, 1, user)) for user in range(100, 104)]
        time.sleep(0.2)
        pair.promote()
        assert all(call().changed for call in late)
        assert int(votes.count(1, consistency="exact")) == 8
    users = pair.column("SELECT user_id FROM vote_live")
    assert sorted(users) == [*range(4), *range(100, 104)]


@KINDS
@pytest.mark.parametrize("silent", [False, True])
def test_a_standby_alone_is_waited_for_and_then_named(pair: Pair, kind: str, silent: bool) -> None:
    with open_votes(pair) as votes:
        votes.cast(1, 1)
        pair.end_primary("black_hole" if silent else "kill")
        with pytest.raises(hotcount.HotcountError):
            votes.cast(1, 2, timeout=2)  # It may have been on its way.
        begun = time.monotonic()
        dials = pair.proxies[1].connections
        with pytest.raises(hotcount.UnavailableError, match="no host takes writes") as caught:
            votes.cast(1, 3, timeout=2)
        assert time.monotonic() - begun < 2 + BUSY
        message = str(caught.value)
        assert f"127.0.0.1:{pair.ports[1]}: is a standby or read-only" in message
        assert f"127.0.0.1:{pair.ports[0]}: " in message
        assert "nothing was applied" in message
        assert pair.proxies[1].connections - dials < 40, "with pauses"
        # The first call of another process waits too. MySQL takes a password that the account does
        # not have for a wrong one.
        secret = "" if kind == "mariadb" and is_mysql() else "canary"
        with pytest.raises(hotcount.UnavailableError, match="no host takes writes") as first:
            hotcount.Database(pair.url(password=secret), timeout=1)
        assert "canary" not in str(first.value)
        promoted = in_thread(pair.promote)
        votes.cast(1, 3)
        promoted()
    assert 3 in pair.column("SELECT user_id FROM vote_live")


@KINDS
@pytest.mark.parametrize("direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT])
@STRATEGIES
def test_a_commit_that_is_lost_is_settled(pair: Pair, strategy: Strategy, direction: int) -> None:
    """Cut before the server has it, and after: both ways the caller is told what became of it."""
    proxy = pair.proxies[0]
    with open_votes(pair, strategy) as votes:
        votes.cast(1, 1)
        # Some within the shortest answer, some in the longest transaction.
        for user, passed in enumerate([*range(12), *range(12, 300, 16)], 10):
            proxy.cut_after(passed, direction)
            cast = votes.cast(1, user)
            assert (cast.changed, cast.previous, cast.value) == (True, 0, 1), user
            proxy.heal()
        assert proxy.fired > 5
        assert int(votes.count(1, consistency="exact")) == 31
        assert votes.reconcile(dry_run=True) == []


@KINDS
def test_what_became_of_a_lost_commit_waits_for_its_session(pair: Pair) -> None:
    """The server still runs it: to call it not applied would be wrong a moment later."""
    proxy = pair.proxies[0]
    with open_votes(pair, "slotted") as votes, locked_item(pair, 1) as unlock:
        call = in_thread(lambda: votes.cast(1, 7, timeout=15))
        eventually(lambda: waits_for_row(pair))
        connections = proxy.connections
        proxy.cut()
        eventually(lambda: proxy.connections > connections)
        time.sleep(0.2)  # It asks for the session again and again.
        unlock()
        assert call().changed
        assert int(votes.count(1, consistency="exact")) == 1


@KINDS
def test_an_add_with_an_op_id_is_counted_once_across_a_promotion(pair: Pair) -> None:
    with hotcount.Database(pair.url(), timeout=20) as database:
        counter = hotcount.SlottedCounter(database)
        counter.create_table()
        stop = threading.Event()
        told: list[int] = []

        def add(thread: int) -> None:
            for number in range(10**9):
                if stop.is_set():
                    return
                counter.add("k", op_id=f"{thread}:{number}")
                told.append(1)

        adders = [in_thread(partial(add, thread)) for thread in range(8)]
        eventually(lambda: len(told) > 50)
        pair.end_primary("kill")
        pair.promote()
        before = len(told)
        eventually(lambda: len(told) > before + 50)
        stop.set()
        for adder in adders:
            adder()
        assert counter.get("k") == len(told)


@KINDS
def test_a_primary_that_comes_back_as_it_was_is_left_alone(pair: Pair) -> None:
    """Calls stay with the new primary; the old one, made read only, is never written to."""
    with open_votes(pair) as votes:
        votes.cast(1, 1)
        pair.end_primary("stop")
        pair.promote()
        votes.cast(1, 2)
        pair.servers.primary.send_signal(signal.SIGCONT)
        for user in range(3, 20):
            votes.cast(1, user)
        assert int(votes.count(1, consistency="exact")) == 19
    assert sorted(pair.column("SELECT user_id FROM vote_live")) == [*range(1, 20)]


@KINDS
@STRATEGIES
def test_a_commit_of_a_replaced_primary_is_not_success(kind: str, strategy: Strategy) -> None:
    """The first of two calls finds the promoted standby. The other's statement reaches the old
    primary only then, which commits it and answers."""
    with started(kind, synchronous=False) as pair, open_votes(pair, strategy) as votes:
        old = pair.proxies[0]
        old.hold()
        warm = [in_thread(partial(votes.cast, 1, user)) for user in range(4)]
        time.sleep(0.3)  # Each dials a session of its own; a fold takes one now and then.
        old.heal()
        assert all(call().changed for call in warm)
        eventually(lambda: len(pair.column("SELECT user_id FROM vote_live")) == len(warm))
        old.hold(CLIENT_TO_SERVER)
        first = in_thread(lambda: votes.cast(1, 100))
        time.sleep(0.05)
        pair.promote()
        second = in_thread(lambda: votes.cast(2, 101))
        assert first().changed
        old.heal()
        assert second().changed
        assert {100, 101} <= set(pair.column("SELECT user_id FROM vote_live"))
        assert list(map(int, votes.count_many([1, 2], consistency="exact"))) == [5, 1]


@KINDS
def test_callers_that_wait_for_long_ask_for_another_primary_one_at_a_time(pair: Pair) -> None:
    callers = 16
    database = hotcount.Database(pair.url(), timeout=30, max_writers=callers)
    with hotcount.Votes(database, strategy="naive") as votes:
        votes.create_tables()
        votes.add_items([1])
        with locked_item(pair, 1) as unlock:
            dials = pair.proxies[1].connections
            calls = [in_thread(partial(votes.cast, 1, user)) for user in range(callers)]
            time.sleep(3.5)
            # Each by itself: three times.
            assert 2 <= pair.proxies[1].connections - dials < 2 * callers
            unlock()
            assert all(call().changed for call in calls)
        assert int(votes.count(1, consistency="exact")) == callers


@contextlib.contextmanager
def locked_item(pair: Pair, item: int) -> Iterator[Any]:
    """Another session holds the item's row until what this yields is called."""
    primary = pair.servers.primary
    session: Any
    if isinstance(primary, MariaDbServer):
        session = primary.connect(pair.database)
    else:
        session = psycopg.connect(pair.servers.primary_url)
    session.cursor().execute(f"SELECT id FROM item WHERE id = {item} FOR UPDATE")
    try:
        yield session.rollback
    finally:
        session.close()


def waits_for_row(pair: Pair) -> bool:
    primary = pair.servers.primary
    if isinstance(primary, MariaDbServer):
        return primary.row_waits() > 0
    sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return int(primary.psql(sql)) > 0


def test_hosts_of_two_clusters_are_refused_at_the_first_dial_of_the_second() -> None:
    with started("postgresql") as pair:
        stranger = PostgresServer(is_stranger=True)
        try:
            stranger.start()
            with FaultProxy(stranger.folder / ".s.PGSQL.5432") as proxy:
                url = pair.url(pair.ports[0], proxy.port)
                with hotcount.Database(url, timeout=5) as database:
                    votes = hotcount.Votes(database)
                    votes.create_tables()
                    votes.add_items([1])
                    votes.cast(1, 1)
                    pair.end_primary("kill")
                    expected = f"{proxy.port} is of another cluster than 127.0.0.1:{pair.ports[0]}"
                    with contextlib.suppress(hotcount.HotcountError):
                        votes.cast(1, 2)  # It may have been on its way.
                    with pytest.raises(hotcount.ConfigError, match=expected):
                        votes.cast(1, 2)
                assert (
                    stranger.psql("SELECT count(*) FROM pg_tables WHERE tablename = 'vote'") == "0"
                )
        finally:
            stranger.remove()


def test_a_socket_and_an_ipv6_address_stand_in_one_url() -> None:
    with started("postgresql") as pair:
        folder = str(pair.servers.primary.folder).replace("/", "%2F")
        search = f"options=-csearch_path%3D{pair.schema}"
        url = f"postgresql://hotcount@{folder},[::1]:1/postgres?{search}"
        with hotcount.Database(url, timeout=5) as database:
            votes = hotcount.Votes(database)
            votes.create_tables()
            votes.add_items([1])
            assert votes.cast(1, 1).changed


def test_the_page_about_failover_does_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    with started("postgresql") as pair:
        (url,) = re.findall(r'"(postgresql://.*?)"', block)
        placed = pair.url(options="&" + url.partition("?")[2])
        exec(block.replace(url, placed), {})
    assert capsys.readouterr().out == "True\n"
