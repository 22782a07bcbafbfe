"""What was erased under write_behind stays erased: after a snapshot, a takeover, a switch."""

import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount import Votes

from tests.faults.proxy import CLIENT_TO_SERVER, FaultProxy
from tests.support.eventually import eventually, stand_still
from tests.support.redis_pair import RedisPair
from tests.support.servers import RedisServer
from tests.support.sqlalchemy_side import BACKENDS, BothSides
from tests.support.together import beside

pytestmark = pytest.mark.server

Voters = dict[Any, list[tuple[Any, int]]]


class Snapshot:
    """A Redis that is killed, and goes on from a snapshot."""

    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder).start()
        self.url = self.server.url

    def keep(self) -> None:
        self.run("SAVE")

    def go_back(self) -> None:
        self.server.kill()
        self.server.start()

    def answers(self) -> bool:
        with suppress(hotcount.HotcountError):
            return self.run("PING") is not None
        return False

    def run(self, *command: str | int | bytes) -> Any:
        with hotcount.Redis(self.url, timeout=20) as redis:
            return redis.execute(*command)

    def stop(self) -> None:
        self.server.stop()


class StaleReplica(Snapshot):
    """A primary that is killed, and a replica in its place that had stopped to follow it."""

    def __init__(self, folder: Path) -> None:
        self.pair = RedisPair(folder)
        self.url = self.pair.proxy.url
        self.go_back = self.pair.fail_over  # type: ignore[method-assign]
        self.stop = self.pair.stop  # type: ignore[method-assign]

    def keep(self) -> None:
        self.run("SET", "kept", "all before")
        eventually(lambda: self.pair.standby.execute("EXISTS", "kept") == 1)
        self.pair.promote()


PASTS = {"snapshot": Snapshot, "stale replica": StaleReplica}


@pytest.fixture
def past(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Snapshot]:
    past = PASTS[getattr(request, "param", "snapshot")](tmp_path)
    yield past
    past.stop()


def open_votes(url: str, past: Snapshot, **options: Any) -> hotcount.Votes:
    """As a process that has just begun."""
    return hotcount.Votes(
        hotcount.Database(url, timeout=20),
        hotcount.Redis(past.url, timeout=20),
        "write_behind",
        **options,
    )


def go_back(sides: BothSides, past: Snapshot) -> hotcount.Votes:
    past.go_back()
    eventually(past.answers)  # Clients of one address share a connection, which is a new one now.
    return open_votes(sides.url, past)


@pytest.fixture
def votes(sides: BothSides, past: Snapshot) -> hotcount.Votes:
    votes = open_votes(sides.url, past)
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


def streams(past: Snapshot, what: str = "waiting:*") -> list[bytes]:
    return sorted(
        key for key in past.run("KEYS", what) if not key.endswith((b":closed", b":least"))
    )


def age(past: Snapshot) -> None:
    """As if workers had had for 30 s what they have."""
    for key in streams(past):
        if past.run("TYPE", key) == b"stream" and past.run("XINFO", "GROUPS", key):
            for entry, owner, *_ in past.run("XPENDING", key, "workers", "-", "+", 1000):
                past.run("XCLAIM", key, "workers", owner, 0, entry, "IDLE", 30_001, "JUSTID")


def users_in_redis(past: Snapshot) -> set[bytes]:
    """Whose votes any stream has, of any name, those of refused votes too."""
    return {fields[3] for key in streams(past) for _, fields in past.run("XRANGE", key, "-", "+")}


def drained(votes: hotcount.Votes, *items: Any) -> Voters:
    """Who has voted for what, once all that waits is in SQL."""
    for worker in (votes.sync_worker(), votes.sync_worker()):
        worker.run_once()
    report = votes.flush(timeout=20)
    assert (report.pending, report.at_risk) == (0, 0)
    assert votes.reconcile(dry_run=True) == []
    return {item: votes.voters(item, limit=10_000) for item in items}


# -- a Redis that goes back to what it was ---------------------------------------------------------

# What deletes votes, and which of those below it leaves.
ERASURES: dict[str, tuple[Callable[[hotcount.Votes], object], Voters]] = {
    "erase_user": (lambda votes: votes.erase_user(7), {1: [(8, 2)], 2: [(8, 5)]}),
    "remove_item": (lambda votes: votes.remove_item(1), {1: [], 2: [(7, 1), (8, 5)]}),
    "prune": (lambda votes: votes.prune(2**62), {1: [(8, 2)], 2: [(7, 1), (8, 5)]}),
}


def test_a_flush_sees_old_streams(sides: BothSides, past: Snapshot, votes: hotcount.Votes) -> None:
    votes.cast(1, 7)
    votes.sync_worker().run_once()
    past.keep()  # Streams without votes.
    votes.flush(timeout=20)
    votes = go_back(sides, past)
    votes.flush(timeout=20)
    votes.cast(1, 8)
    batched = hotcount.Votes(hotcount.Database(sides.url, timeout=20), strategy="batched")
    with pytest.raises(hotcount.ConfigError, match="may wait in Redis"):
        batched.create_tables()


@pytest.mark.parametrize("erasure", ERASURES)
@pytest.mark.parametrize("past", PASTS, indirect=True)
def test_what_was_erased_stays_erased_when_redis_goes_back(
    sides: BothSides, past: Snapshot, votes: hotcount.Votes, erasure: str
) -> None:
    erase, left = ERASURES[erasure]
    votes.cast_many([1, 1, 2, 2], [7, 8, 7, 8], [3, 2, 1, 5])
    past.keep()
    votes.retract(1, 7)
    erase(votes)
    votes.cast(1, 9, 4)
    assert drained(votes, 1) == {1: [*left[1], (9, 4)]}
    again = go_back(sides, past)
    # What is cast now counts, whoever casts it.
    again.cast_many([1, 3], [10, 7], [1, 6])
    expected = {1: [*left[1], (9, 4), (10, 1)], 2: left[2], 3: [(7, 6)]}
    assert drained(again, 1, 2, 3) == expected
    again.cast(1, 7, 2)
    assert drained(again, 1)[1] == [(7, 2), *expected[1]]


def test_votes_count_behind_a_late_clock(sides: BothSides, past: Snapshot, votes: Votes) -> None:
    votes.cast_many([1, 1], [7, 8])
    past.keep()
    (stream,) = streams(past)
    (*_, (entry, _)) = past.run("XRANGE", stream, "-", "+")
    ahead = int(entry.split(b"-")[0]) + 366 * 86_400_000
    past.run("XADD", stream, f"{ahead}-5", "i", "1", "u", "8", "v", "2")
    votes.erase_user(7)
    again = go_back(sides, past)
    assert drained(again, 1) == {1: [(8, 2)]}
    again.cast_many([1, 1], [7, 8], [3, 4])
    assert drained(again, 1) == {1: [(7, 3), (8, 4)]}


def test_an_erasure_beside_votes(sides: BothSides, past: Snapshot, votes: hotcount.Votes) -> None:
    voter = open_votes(sides.url, past, max_pending=100)
    worker = open_votes(sides.url, past, interval=0.01).sync_worker()
    stood = [0]

    def vote(over: threading.Event) -> None:
        while not over.is_set():
            try:
                stood.append(voter.cast(1, 8, stood[-1] + 1).value)
            except hotcount.CapacityError:
                over.wait(0.002)

    with beside(vote, worker.run):
        for _ in range(5):
            votes.cast(1, 7)
            assert (votes.erase_user(7), votes.get(1, 7)) == (1, 0)
    assert drained(votes, 1) == {1: [(8, stood[-1])]}


# -- a page that arrives after others have taken it over -------------------------------------------

LATE = "late-voter"

WORKER = """
import hotcount, sys
votes = hotcount.Votes(
    hotcount.Database(sys.argv[1], timeout=60), sys.argv[2], "write_behind", user_type=str
)
worker = votes.sync_worker()
worker.run_once()
print("ready", flush=True)
try:
    while not worker.run_once().scanned:
        pass
except hotcount.HotcountError:
    pass
print("done", flush=True)
"""


@contextmanager
def working(url: str, past: Snapshot) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A process that works until it has had a page; what it says."""
    command = [sys.executable, "-c", WORKER, url, past.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == b"ready\n"
            yield program, program.stdout
        finally:
            program.kill()


class HeldPage(FaultProxy):
    """Before a database: holds what names the late voter until heal(), and what follows it."""

    def _allowance(self, data: bytes, direction: int) -> tuple[bytes, bool]:
        if direction == CLIENT_TO_SERVER and not self.fired and LATE.encode() in data:
            self.hold(CLIENT_TO_SERVER)
            self.fired += 1
            self._open[CLIENT_TO_SERVER].wait()
        return super()._allowance(data, direction)


def server_of(sides: BothSides) -> tuple[Path, Callable[[FaultProxy], str]]:
    """Its socket; the URL by which a proxy before it is reached."""
    found = re.search("(host|unix_socket)=([^&]*)", sides.url)
    assert found is not None
    if sides.dialect == "postgresql":
        return Path(found[2]) / ".s.PGSQL.5432", lambda proxy: sides.url.replace(
            found[0], f"host=127.0.0.1&port={proxy.port}"
        )
    begins = sides.url.partition("?")[0]
    return Path(found[2]), lambda proxy: begins.replace("@/", f"@127.0.0.1:{proxy.port}/")


SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE application_name = 'hotcount'",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE db = DATABASE()",
}


@pytest.mark.parametrize("worker", ["is killed", "goes on"])
@pytest.mark.parametrize("sides", BACKENDS[1:], indirect=True)
def test_a_page_that_arrives_late_is_in_vain(sides: BothSides, past: Snapshot, worker: str) -> None:
    socket, through = server_of(sides)

    def sessions() -> set[int]:
        with sides.engine.connect() as connection:
            return set(connection.execute(sa.text(SESSIONS[sides.dialect])).scalars())

    votes = begin_by_name(sides.url, past)
    own = sessions()
    with HeldPage(socket) as proxy, working(through(proxy), past) as (program, says):
        votes.cast(1, LATE)
        eventually(lambda: proxy.fired > 0)
        late = sessions() - own
        if worker == "is killed":
            program.kill()
            program.wait()
        age(past)
        # The page's transaction may be in its way. Nothing is promised then.
        erased = 0
        with suppress(hotcount.HotcountError):
            erased = int(votes.erase_user(LATE, timeout=2))
        proxy.heal()
        if worker == "is killed":
            eventually(lambda: not sessions() & late)
        else:
            assert says.readline() == b"done\n"
    if not erased:
        votes.erase_user(LATE)
    assert (votes.get(1, LATE), drained(votes, 1)) == (0, {1: [("early", 1)]})


@pytest.mark.parametrize("sides", BACKENDS[1:], indirect=True)
def test_of_votes_during_an_erasure_no_older_one_stands(sides: BothSides, past: Snapshot) -> None:
    votes = begin_by_name(sides.url, past)
    votes.cast(1, LATE, 3)
    drained(votes)
    socket, through = server_of(sides)
    with (
        HeldPage(socket) as late,
        HeldPage(socket) as deleting,
        working(through(late), past) as (_, says),
    ):
        eraser = open_votes(through(deleting), past, user_type=str)
        erasing = threading.Thread(target=eraser.erase_user, args=[LATE])
        erasing.start()
        eventually(lambda: deleting.fired > 0)
        votes.cast(1, LATE, 1)
        eventually(lambda: late.fired > 0)
        votes.cast(1, LATE, 2)
        assert votes.sync_worker().run_once().saved == 1
        deleting.heal()
        erasing.join()
        late.heal()
        assert says.readline() == b"done\n"
    # Cast after the erasure had begun: it stays, and the older one that came last changes nothing.
    assert drained(votes, 1) == {1: [("early", 1), (LATE, 2)]}


def test_a_page_of_a_worker_that_stood_still_is_in_vain(tmp_path: Path, past: Snapshot) -> None:
    url = f"sqlite:///{tmp_path}/votes.db"
    votes = begin_by_name(url, past)
    with working(url, past) as (program, says):
        with closing(sqlite3.connect(tmp_path / "votes.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            votes.cast(1, LATE)
            (stream,) = streams(past)
            eventually(lambda: past.run("XPENDING", stream, "workers")[0] == 1)
            stand_still(program.pid)
        age(past)
        assert votes.erase_user(LATE) == 1
        program.send_signal(signal.SIGCONT)
        assert says.readline() == b"done\n"
    assert drained(votes, 1) == {1: [("early", 1)]}


def begin_by_name(url: str, past: Snapshot) -> hotcount.Votes:
    votes = open_votes(url, past, user_type=str)
    votes.create_tables()
    votes.add_items([1])
    votes.cast(1, "early")
    return votes


# -- ids that a column takes for one ---------------------------------------------------------------

# Columns of items and of users, and two spellings that they take for one and whose bytes are far
# apart. PostgreSQL's for items are refused by create_tables().
SAME = "VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
ALIKE = {
    "sqlite": ("TEXT COLLATE RTRIM", "TEXT COLLATE RTRIM", "post", "post "),
    "postgresql": ('TEXT COLLATE "C"', "TEXT COLLATE same_case", "Renee", "renee"),
    "mariadb": (SAME, SAME, "cafe", "café"),
}


@pytest.fixture
def alike(sides: BothSides, past: Snapshot) -> tuple[hotcount.Votes, str, str]:
    items, users, one, other = ALIKE[sides.dialect]
    with sides.engine.begin() as connection:
        if sides.dialect == "postgresql":
            connection.exec_driver_sql(
                "CREATE COLLATION same_case (provider = icu, locale = 'und-u-ks-level2',"
                " deterministic = false)"
            )
        connection.exec_driver_sql(
            f"CREATE TABLE item (id {items} NOT NULL PRIMARY KEY, vote_count BIGINT DEFAULT 0)"
        )
        connection.exec_driver_sql(
            f"CREATE TABLE vote (item_id {items} NOT NULL, user_id {users} NOT NULL, "
            "val BIGINT NOT NULL, prev BIGINT NOT NULL DEFAULT 0, version BIGINT, "
            "PRIMARY KEY (item_id, user_id))"
        )
    votes = open_votes(sides.url, past, item_type=str, user_type=str)
    votes.create_tables()
    votes.add_items([one])
    return votes, one, other


@pytest.mark.parametrize("sides", BACKENDS[::2], indirect=True)
def test_of_3000_users_the_newer_cast_stands(alike: tuple[hotcount.Votes, str, str]) -> None:
    votes, one, other = alike
    users = [f"user {number:04}" for number in range(3000)]
    # Redis gives votes of one millisecond numbers, for each stream its own.
    casts = [
        cast
        for user in users
        for cast in ((one, "x", 0), (one, user, 1), (other, user, 2), (one, "x", 0))
    ]
    votes.cast_many(*(list(column) for column in zip(*casts, strict=True)))
    assert drained(votes, one) == {one: [(user, 2) for user in users]}


@pytest.mark.parametrize("sides", BACKENDS[::2], indirect=True)
def test_a_removal_of_any_spelling(alike: tuple[hotcount.Votes, str, str], past: Snapshot) -> None:
    votes, one, other = alike
    votes.cast(one, "a")
    (stream,) = streams(past)
    past.run("XREADGROUP", "GROUP", "workers", "dead", "STREAMS", stream, ">")
    with pytest.raises((hotcount.DeadlineError, hotcount.OutcomeUnknownError)):
        votes.remove_item(other, timeout=0.3)
    age(past)
    assert votes.remove_item(other) == 1
    assert drained(votes, one) == {one: []}


def test_an_erasure_of_any_spelling(alike: tuple[hotcount.Votes, str, str], past: Snapshot) -> None:
    votes, one, other = alike
    votes.cast_many([one, "missing", one], [one, one, "x"])
    votes.sync_worker().run_once()
    votes.cast(one, one, 2)
    assert votes.erase_user(other) == 1
    assert (drained(votes, one), votes.stats()["refused_votes"]) == ({one: [("x", 1)]}, 0)
    assert one.encode() not in users_in_redis(past)


# -- refused votes, and names of before ------------------------------------------------------------


def switch_away_and_back(sides: BothSides, votes: hotcount.Votes) -> None:
    assert votes.flush(timeout=20).at_risk == 0
    hotcount.Votes(hotcount.Database(sides.url, timeout=20)).create_tables()
    votes.create_tables()


@pytest.mark.parametrize("past", PASTS, indirect=True)
def test_erase_user_clears_names(sides: BothSides, past: Snapshot, votes: hotcount.Votes) -> None:
    for item in (1, 2):
        votes = open_votes(sides.url, past)
        votes.cast_many([item, item, 99, 99], [7, 8, 7, 8])
        if item == 2:
            past.keep()  # Votes wait.
        votes.sync_worker().run_once()
        switch_away_and_back(sides, votes)
    again = go_back(sides, past)
    again.cast(3, 7)
    assert {b"7", b"8"} <= users_in_redis(past)
    assert int(again.erase_user(7)) == 3
    # No worker reads streams of other names: what waited there has been written or is lost.
    assert b"7" not in users_in_redis(past)
    assert drained(again, 1, 2, 3) == {1: [(8, 1)], 2: [(8, 1)], 3: []}


def test_refused_votes_are_forgotten_after_30_days(past: Snapshot, votes: hotcount.Votes) -> None:
    day = 86_400_000
    for user in (7, 8):
        votes.cast(99, user)
        assert votes.sync_worker().run_once().refused == 1
        (stream,) = streams(past, "*:refused")
        assert 29 * day < past.run("PTTL", stream) <= 30 * day
        past.run("PEXPIRE", stream, day)
    assert users_in_redis(past) == {b"7", b"8"}
    votes.flush()
    past.run("PEXPIRE", stream, 0)
    assert votes.stats()["refused_votes"] == 0
