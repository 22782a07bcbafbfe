"""MariaDB: what a URL may say, what fails how, deadlines, and what becomes of a lost session."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import BUSY, eventually
from tests.support.listener import Proxy
from tests.support.mariadb_server import MariaDbServer
from tests.support.mariadb_votes import MariaDbSide
from tests.support.mysql_server import is_mysql, new_server
from tests.support.postgres_votes import in_background
from tests.support.servers import free_port
from tests.support.sql_votes import make_votes, open_votes

pytestmark = pytest.mark.server


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


def test_the_same_url_is_the_same_database(maria: MariaDbSide) -> None:
    with hotcount.Database(maria.url) as one, hotcount.Database(maria.url) as other:
        before = one.stats()["statements"]
        hotcount.Votes(other).create_tables()
        assert one.stats()["statements"] > before


@pytest.mark.parametrize("scheme", ["mysql", "mariadb+pymysql", "mysql+mysqldb"])
def test_the_names_that_sqlalchemy_has_for_it_are_taken(maria: MariaDbSide, scheme: str) -> None:
    votes = make_votes(maria.url.replace("mariadb://", f"{scheme}://"))
    assert votes.cast(1, 7).changed


def test_a_server_that_is_not_running_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(hotcount.UnavailableError, match=r"m.sock"):
        hotcount.Database(f"mariadb://root@/db?unix_socket={tmp_path}/m.sock")
    port = free_port()
    with pytest.raises(hotcount.UnavailableError, match=f"127.0.0.1:{port}"):
        hotcount.Database(f"mariadb://root@127.0.0.1:{port}/db")


def test_a_wrong_password_is_an_auth_error_that_does_not_show_it(maria: MariaDbSide) -> None:
    user = maria.account("IDENTIFIED BY 'r%ght:p@ss'")
    right = maria.server.url(maria.database, user=user, password="r%ght:p@ss")
    assert make_votes(right).cast(1, 7).changed
    with pytest.raises(hotcount.AuthError) as caught:
        hotcount.Database(maria.server.url(maria.database, user=user, password="wr0ng"))
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


@pytest.mark.parametrize("right", ["CREATE", "CREATE VIEW", "DROP"])
def test_a_user_who_lacks_a_right_is_told_which_and_casts_no_vote(
    maria: MariaDbSide, right: str
) -> None:
    needed = ["CREATE", "CREATE VIEW", "DROP", "REFERENCES", "SELECT", "INSERT", "UPDATE", "DELETE"]
    user = maria.account(rights=", ".join(each for each in needed if each != right))
    # Sessions keep the rights that they have begun with.
    lacking = maria.votes(user=user, timeout=9)
    with pytest.raises(hotcount.PermissionDeniedError, match=rf": {right} command denied to user"):
        lacking.create_tables()
    with pytest.raises(hotcount.HotcountError):
        lacking.cast(1, 7)
    maria.grant(user, right)
    allowed = maria.votes(user=user, timeout=10)
    allowed.create_tables()
    allowed.add_items([1])
    assert allowed.cast(1, 7).changed
    assert allowed.flush().pending == 0


@pytest.mark.mariadb_only("MySQL's version cannot be set")
@pytest.mark.parametrize("version", ["10.6.2", "10.5.29", "5.5.68"])
def test_a_server_that_is_too_old_is_refused_by_name(version: str) -> None:
    refused = rf"the server is MariaDB {version}-MariaDB-log; hotcount needs 10\.6\.3 or later"
    with (
        new_server(config=(f"--version={version}-MariaDB-log",)).started() as server,
        pytest.raises(hotcount.ConfigError, match=refused),
    ):
        hotcount.Database(server.url(server.create_database()))


def test_a_session_killed_in_mid_transaction_is_unavailable_and_applied_nothing(
    maria: MariaDbSide,
) -> None:
    votes = maria.new("naive")
    with maria.held("SELECT id FROM item WHERE id = 1 FOR UPDATE") as session:
        voter = in_background(lambda: votes.cast(1, 7))
        eventually(lambda: maria.server.row_waits() == 1)
        for number in maria.sessions():
            if number != session.thread_id():
                maria.run(f"KILL {number}")
        assert isinstance(voter(), hotcount.UnavailableError)
    assert int(votes.count(1)) == 0
    assert votes.cast(1, 7).changed


def test_a_stopped_server_costs_the_deadline_only() -> None:
    with new_server().started() as server:
        votes = make_votes(server.url(server.create_database()))
        server.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError):
            votes.cast(1, 7, timeout=0.3)
        assert time.monotonic() - started < 0.3 + BUSY
        server.send_signal(signal.SIGCONT)
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

    def url(self, database: str) -> str:
        return f"mariadb://root@/{database}?unix_socket={self.path}"

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


@pytest.mark.parametrize("cut", [cut_before, cut_after, swallow])
def test_a_commit_without_an_answer_is_unknown_and_its_retry_settles_it(
    mariadb_database: str, cutter: Cutter, strategy: str, cut: Any
) -> None:
    votes = make_votes(cutter.url(mariadb_database), strategy, fold_interval=3600)
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


def test_statements_kept_prepared_are_bounded(maria: MariaDbSide) -> None:
    votes = maria.new()
    votes.add_items(range(90))

    def kept() -> int:
        return int(maria.run("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")[0][1])

    before = kept()
    user = 0
    for size in range(1, 90):
        # As many items as votes: statements of every size, for items, votes and cells.
        votes.cast_many(range(size), range(user, user + size))
        user += size
    # Of one session that writes and one that reads.
    assert kept() - before <= 2 * 256
    assert sum(map(int, votes.count_many(range(89)))) == user


def test_locks_of_a_process_that_stands_still_in_a_transaction_are_taken_from_it(
    maria: MariaDbSide, cutter: Cutter
) -> None:
    """MariaDB ends a transaction that is idle for 5 s, MySQL a session that is idle for that long
    beyond idle_timeout."""
    with (
        open_votes(cutter.url(maria.database), timeout=60, idle_timeout=1) as stopped,
        maria.new("naive", timeout=15) as votes,
    ):
        cutter.at_commit = swallow
        # For the server that is a client that stops before its COMMIT.
        waiting = in_background(lambda: stopped.cast(1, 1))
        eventually(lambda: cutter.cuts == 1)
        assert votes.cast(1, 2).changed
        # MySQL says when it ends a session (4031), and MariaDB closes it without a word.
        known = hotcount.UnavailableError if is_mysql() else hotcount.OutcomeUnknownError
        assert isinstance(waiting(), known)
        assert int(votes.count(1)) == 1
