"""MariaDB: what a URL may say, what fails how, deadlines, and what becomes of a lost session."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import BUSY, eventually
from tests.support.listener import Proxy
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import is_mysql, new_server
from tests.support.postgres_votes import in_background
from tests.support.servers import free_port
from tests.support.together import in_child, together

pytestmark = pytest.mark.server


def make_votes(url: str, strategy: str = "naive", **options: Any) -> hotcount.Votes:
    votes = hotcount.Votes(hotcount.Database(url, timeout=20), None, strategy, **options)  # type: ignore[arg-type]
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


@pytest.fixture
def url(mariadb_server: MariaDbServer, mariadb_database: str) -> str:
    return mariadb_server.url(mariadb_database)


@pytest.fixture
def own_mariadb() -> Iterator[MariaDbServer]:
    """A server for one test, which may stop and kill it."""
    server = new_server()
    try:
        yield server.start()
    finally:
        server.remove()


# -- URLs -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("mariadb://root@127.0.0.1", "names no database"),
        ("mariadb://root@127.0.0.1/", "names no database"),
        ("mariadb://root@127.0.0.1/db?colour=red", "'colour'"),
        ("mysql://root@127.0.0.1/db?charset=latin1", "option charset"),
        ("mariadb://root@127.0.0.1/db?ssl=maybe", "option ssl is neither"),
        ("mariadb://root@127.0.0.1/db?ssl=false&ssl_ca=/ca.crt", "ssl=false"),
        ("mariadb://root@db.example/db?unix_socket=/s", "db.example"),
        ("mariadb://root@127.0.0.1;tls-verify-peer=0/db", "semicolon"),
        (
            "mysql://root@127.0.0.1/db?server_public_key=/k.pem",
            "server_public_key.*ssl_fingerprint",
        ),
        (f"mysql://root@127.0.0.1/db?ssl_fingerprint={'0' * 39}", "option ssl_fingerprint"),
        (f"mysql://root@127.0.0.1/db?ssl_fingerprint={'g' * 40}", "option ssl_fingerprint"),
        (f"mysql://root@127.0.0.1/db?ssl_fingerprint={'0' * 40}&ssl_ca=/c", "together with ssl_ca"),
        (f"mysql://root@127.0.0.1/db?ssl_fingerprint={'0' * 40}&ssl=false", "ssl=false"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_by_name(url: str, named: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=named):
        hotcount.Database(url)


def test_the_same_url_is_the_same_database(url: str) -> None:
    with hotcount.Database(url) as one, hotcount.Database(url) as other:
        before = one.stats()["statements"]
        hotcount.Votes(other).create_tables()
        assert one.stats()["statements"] > before


@pytest.mark.parametrize("scheme", ["mysql", "mariadb+pymysql", "mysql+mysqldb"])
def test_the_names_that_sqlalchemy_has_for_it_are_taken(url: str, scheme: str) -> None:
    votes = make_votes(url.replace("mariadb://", f"{scheme}://"))
    assert votes.cast(1, 7).changed


# -- who may not enter ------------------------------------------------------


def test_a_server_that_is_not_running_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(hotcount.UnavailableError, match=r"m.sock"):
        hotcount.Database(f"mariadb://root@/db?unix_socket={tmp_path}/m.sock")
    port = free_port()
    with pytest.raises(hotcount.UnavailableError, match=f"127.0.0.1:{port}"):
        hotcount.Database(f"mariadb://root@127.0.0.1:{port}/db")


def test_a_wrong_password_is_an_auth_error_that_does_not_show_it(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    user = f"u_{mariadb_database}"
    mariadb_server.execute(f"CREATE USER {user}@localhost IDENTIFIED BY 'r%ght:p@ss'")
    mariadb_server.execute(f"GRANT ALL ON {mariadb_database}.* TO {user}@localhost")
    right = mariadb_server.url(mariadb_database, user=user, password="r%ght:p@ss")
    assert make_votes(right).cast(1, 7).changed
    with pytest.raises(hotcount.AuthError) as caught:
        hotcount.Database(mariadb_server.url(mariadb_database, user=user, password="wr0ng"))
    assert caught.value.code == "1045"
    assert "wr0ng" not in str(caught.value)


def test_a_database_that_is_not_there_is_named(mariadb_server: MariaDbServer) -> None:
    with pytest.raises(hotcount.DatabaseError, match="not_there") as caught:
        hotcount.Database(mariadb_server.url("not_there"))
    assert caught.value.code == "1049"


def test_a_server_that_never_greets_costs_the_deadline_only(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match="while connecting"):
            hotcount.Database(f"mariadb://root@/db?unix_socket={tmp_path}/s", timeout=0.3)
        assert 0.3 <= time.monotonic() - started < 0.3 + BUSY


def test_a_user_with_read_rights_only_counts_and_is_refused_votes(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    make_votes(mariadb_server.url(mariadb_database)).cast(1, 7)
    user = f"r_{mariadb_database}"
    mariadb_server.execute(f"CREATE USER {user}@localhost")
    mariadb_server.execute(f"GRANT SELECT ON {mariadb_database}.* TO {user}@localhost")
    url = mariadb_server.url(mariadb_database, user=user)
    readers = hotcount.Votes(hotcount.Database(url), None, "naive")
    assert int(readers.count(1)) == 1
    with pytest.raises(hotcount.PermissionDeniedError, match="denied") as caught:
        readers.cast(1, 8)
    assert caught.value.code == "1142"


@pytest.mark.parametrize("right", ["CREATE", "CREATE VIEW", "DROP"])
def test_a_user_who_lacks_a_right_is_told_which_and_casts_no_vote(
    mariadb_server: MariaDbServer, mariadb_database: str, right: str
) -> None:
    user = f"w_{mariadb_database}"
    needed = ["CREATE", "CREATE VIEW", "DROP", "REFERENCES", "SELECT", "INSERT", "UPDATE", "DELETE"]
    mariadb_server.execute(f"CREATE USER {user}@localhost")

    def votes(timeout: float, *rights: str) -> hotcount.Votes:
        granted = ", ".join(rights)
        mariadb_server.execute(f"GRANT {granted} ON {mariadb_database}.* TO {user}@localhost")
        # Sessions keep the rights that they have begun with.
        url = mariadb_server.url(mariadb_database, user=user)
        return hotcount.Votes(hotcount.Database(url, timeout=timeout))

    lacking = votes(9, *(each for each in needed if each != right))
    with pytest.raises(hotcount.PermissionDeniedError, match=rf": {right} command denied to user"):
        lacking.create_tables()
    with pytest.raises(hotcount.HotcountError):
        lacking.cast(1, 7)
    allowed = votes(10, *needed)
    allowed.create_tables()
    allowed.add_items([1])
    assert allowed.cast(1, 7).changed
    assert allowed.flush().pending == 0


@pytest.mark.mariadb_only("MySQL's version cannot be set")
@pytest.mark.parametrize("version", ["10.6.2", "10.5.29", "5.5.68"])
def test_a_server_that_is_too_old_is_refused_by_name(version: str) -> None:
    server = new_server(config=(f"--version={version}-MariaDB-log",))
    try:
        url = server.start().url(server.create_database())
        refused = rf"the server is MariaDB {version}-MariaDB-log; hotcount needs 10\.6\.3 or later"
        with pytest.raises(hotcount.ConfigError, match=refused):
            hotcount.Database(url)
    finally:
        server.remove()


# -- deadlines --------------------------------------------------------------


@contextmanager
def row_locked(server: MariaDbServer, database: str, item: int = 1) -> Iterator[Any]:
    with closing(server.connect(database)) as session, session.cursor() as cursor:
        cursor.execute("SELECT id FROM item WHERE id = %s FOR UPDATE", (item,))
        yield session
        session.rollback()


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])
def test_a_row_that_stays_locked_costs_the_deadline_and_nothing_more(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    votes = make_votes(mariadb_server.url(mariadb_database), strategy)
    with row_locked(mariadb_server, mariadb_database):
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, timeout=0.3)
        assert 0.3 <= time.monotonic() - started < 0.3 + BUSY
        # The session that waited is gone, and with it the locks that it held while it did.
        eventually(lambda: mariadb_server.row_waits() == 0, 3)
        assert votes.cast(2, 7, timeout=5).changed
    assert votes.cast(1, 7).changed
    assert int(votes.count(1)) == 1


def test_a_lock_let_go_in_time_costs_only_the_wait(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    votes = make_votes(mariadb_server.url(mariadb_database))
    with row_locked(mariadb_server, mariadb_database) as session:
        voter = threading.Thread(target=votes.cast, args=(1, 7))
        voter.start()
        eventually(lambda: mariadb_server.row_waits() == 1)
        session.rollback()
        voter.join()
    assert int(votes.count(1)) == 1


# -- sessions that end ------------------------------------------------------


def test_a_session_killed_in_mid_transaction_is_unavailable_and_applied_nothing(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    votes = make_votes(mariadb_server.url(mariadb_database))
    failures: list[BaseException] = []

    def cast() -> None:
        try:
            votes.cast(1, 7)
        except hotcount.HotcountError as failure:
            failures.append(failure)

    with row_locked(mariadb_server, mariadb_database) as session:
        voter = threading.Thread(target=cast)
        voter.start()
        eventually(lambda: mariadb_server.row_waits() == 1)
        for number in mariadb_server.sessions(mariadb_database):
            if number != session.thread_id():
                mariadb_server.execute(f"KILL {number}")
        voter.join()
    assert [type(failure) for failure in failures] == [hotcount.UnavailableError]
    assert int(votes.count(1)) == 0
    assert votes.cast(1, 7).changed


def test_idle_sessions_that_the_server_ended_fail_no_call(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    votes = make_votes(mariadb_server.url(mariadb_database))
    together(lambda user: votes.cast(1, user), 8)
    votes.count(1)
    for number in mariadb_server.sessions(mariadb_database):
        mariadb_server.execute(f"KILL {number}")
    eventually(lambda: mariadb_server.sessions(mariadb_database) == [])
    for user in range(8):
        assert not votes.cast(1, user).changed
    assert int(votes.count(1)) == 8


@pytest.mark.parametrize("strategy", ["naive", "batched"])
def test_votes_go_on_after_the_server_was_away(own_mariadb: MariaDbServer, strategy: str) -> None:
    own_mariadb.execute("CREATE DATABASE db")
    votes = make_votes(own_mariadb.url("db"), strategy)
    votes.cast(1, 1)
    own_mariadb.kill()
    with pytest.raises(hotcount.UnavailableError):
        votes.cast(1, 2)
    own_mariadb.start()
    assert votes.cast(1, 2).changed
    assert int(votes.count(1)) == 2


def test_a_stopped_server_costs_the_deadline_only(own_mariadb: MariaDbServer) -> None:
    own_mariadb.execute("CREATE DATABASE db")
    votes = make_votes(own_mariadb.url("db"))
    own_mariadb.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(hotcount.DeadlineError):
        votes.cast(1, 7, timeout=0.3)
    assert time.monotonic() - started < 0.3 + BUSY
    own_mariadb.send_signal(signal.SIGCONT)
    votes.cast(1, 7)
    assert int(votes.count(1)) == 1


class Cutter(Proxy):
    """Does to the first commit what a test asks for. A commit is what has the word: COMMIT, or a
    parameter of a statement that ends in one."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.path = folder / "cut"
        self.at_commit: Callable[[socket.socket, socket.socket, bytes], None] | None = None
        self.word = b"COMMIT"
        self.cuts = 0
        super().__init__(server, self.path)

    def from_client(self, client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        act = self.at_commit
        if act is not None and self.word in data:
            self.at_commit = None
            self.cuts += 1
            act(client, upstream, data)
        else:
            upstream.sendall(data)


@pytest.fixture
def cutter(mariadb_server: MariaDbServer) -> Iterator[Cutter]:
    # Not pytest's folder: a socket's path has room for 107 characters.
    with Cutter(mariadb_server.folder, mariadb_server.socket) as made:
        yield made
    made.path.unlink()


def cut_before(client: socket.socket, server: socket.socket, data: bytes) -> None:
    client.shutdown(socket.SHUT_RDWR)
    server.shutdown(socket.SHUT_RDWR)


def cut_after(client: socket.socket, server: socket.socket, data: bytes) -> None:
    client.shutdown(socket.SHUT_WR)  # The answer goes nowhere.
    server.sendall(data)


def swallow(client: socket.socket, server: socket.socket, data: bytes) -> None:
    """Nobody hears of the COMMIT, and nobody says so."""


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])
@pytest.mark.parametrize("cut", [cut_before, cut_after, swallow])
def test_a_commit_without_an_answer_is_unknown_and_its_retry_settles_it(
    mariadb_database: str, cutter: Cutter, strategy: str, cut: Any
) -> None:
    url = f"mariadb://root@/{mariadb_database}?unix_socket={cutter.path}"
    votes = make_votes(url, strategy, fold_interval=3600)
    user = 7_000_000_000_007
    votes.cast(1, 6)
    votes.flush()  # No fold from now on: it would have the item for a moment.
    if strategy != "naive" and not is_mysql():
        cutter.word = user.to_bytes(8, "little")
    cutter.at_commit = cut
    with pytest.raises(hotcount.OutcomeUnknownError, match="may or may not be applied"):
        votes.cast(1, user, timeout=0.5)
    assert cutter.cuts == 1
    # Until the server has noticed, it keeps the lock of a transaction that will not go on.
    assert votes.cast(1, user, timeout=15).counted
    assert not votes.cast(1, user).changed
    assert int(votes.count(1)) == 2
    assert votes.reconcile(dry_run=True) == []


# -- fork -------------------------------------------------------------------


def test_a_child_has_sessions_of_its_own_and_leaves_its_parent_s_alone(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    votes = make_votes(mariadb_server.url(mariadb_database), "batched")
    votes.cast(1, 1)
    before = set(mariadb_server.sessions(mariadb_database))

    def vote() -> bool:
        return bool(votes.cast(1, 2).changed)

    assert in_child(vote)
    assert before <= set(mariadb_server.sessions(mariadb_database))
    assert votes.cast(1, 3).changed
    assert int(votes.count(1)) == 3


PARENT_WITH_CHILD = """
import os, sys, time
import hotcount
votes = hotcount.Votes(hotcount.Database(sys.argv[1]), None, "naive")
votes.cast(1, 1)
votes.count(1)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
time.sleep(600)
"""


def test_a_child_does_not_keep_its_dead_parent_s_sessions_open(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    make_votes(mariadb_server.url(mariadb_database)).cast(1, 2)
    mine = set(mariadb_server.sessions(mariadb_database))
    url = mariadb_server.url(mariadb_database)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT_WITH_CHILD, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert set(mariadb_server.sessions(mariadb_database)) > mine
    parent.kill()
    parent.wait()
    eventually(lambda: set(mariadb_server.sessions(mariadb_database)) <= mine, 5)
    os.kill(child, 0)  # It lives.
    parent.stdin.close()
    parent.stdout.close()


# -- statements -------------------------------------------------------------


def test_statements_kept_prepared_are_bounded(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    votes = make_votes(mariadb_server.url(mariadb_database), "batched")
    votes.add_items(list(range(90)))

    def kept() -> int:
        return int(mariadb_server.execute("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")[0][1])

    before = kept()
    user = 0
    for size in range(1, 90):
        # As many items as votes: statements of every size, for items, votes and cells.
        votes.cast_many(list(range(size)), list(range(user, user + size)))
        user += size
    # Of one session that writes and one that reads.
    assert kept() - before <= 2 * 256
    counts = votes.count_many(list(range(89)))
    assert sum(int(count) for count in counts) == user


def test_locks_of_a_process_that_stands_still_in_a_transaction_are_taken_from_it(
    mariadb_server: MariaDbServer, mariadb_database: str, cutter: Cutter
) -> None:
    """MariaDB ends a transaction that is idle for 5 s, MySQL a session that is idle for that long
    beyond idle_timeout."""
    url = f"mariadb://root@/{mariadb_database}?unix_socket={cutter.path}"
    with (
        hotcount.Database(url, timeout=60, idle_timeout=1) as still,
        hotcount.Database(mariadb_server.url(mariadb_database), timeout=15) as other,
        hotcount.Votes(still, None, "naive") as stopped,
        hotcount.Votes(other, None, "naive") as votes,
    ):
        votes.create_tables()
        votes.add_items([1])
        cutter.at_commit = swallow
        # For the server that is a client that stops before its COMMIT.
        waiting = in_background(lambda: stopped.cast(1, 1))
        eventually(lambda: cutter.cuts == 1)
        assert votes.cast(1, 2).changed
        # MySQL says when it ends a session (4031), and MariaDB closes it without a word.
        known = hotcount.UnavailableError if is_mysql() else hotcount.OutcomeUnknownError
        assert isinstance(waiting(), known)
        assert int(votes.count(1)) == 1
