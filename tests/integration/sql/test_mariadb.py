"""MariaDB: its URLs, errors, deadlines and lost sessions, its clock, and TLS."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hotcount
import pytest

from tests.support.certificates import Certificates
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


def swallow(client: socket.socket, server: socket.socket, data: bytes) -> None:
    """Nobody hears of the COMMIT, and nobody says so."""


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


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariaDbServer, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    Certificates(folder).sign("s", "DNS:localhost")
    Certificates(folder, "stranger")
    files = ("ca", "ca.crt"), ("cert", "s.crt"), ("key", "s.key")
    config = tuple(f"--ssl-{name}={folder}/{file}" for name, file in files)
    with new_server(port=free_port(), config=config).started() as server:
        server.execute("CREATE DATABASE db")
        server.execute("CREATE USER tls@'%' REQUIRE SSL")
        server.execute("GRANT ALL ON db.* TO tls@'%'")
        yield server, folder


def tls_url(server: MariaDbServer, options: str, *, host: str = "localhost") -> str:
    return f"mariadb://tls@{host}:{server.port}/db?{options}"


@pytest.mark.parametrize(
    ("options", "host", "error"),
    [
        ("ssl_ca={}/ca.crt", "localhost", None),
        ("ssl_verify=false", "localhost", None),
        ("ssl=true", "localhost", hotcount.UnavailableError),
        ("ssl_ca={}/stranger.crt", "localhost", hotcount.UnavailableError),
        ("ssl_ca={}/ca.crt", "127.0.0.1", hotcount.UnavailableError),
        ("ssl=false", "localhost", hotcount.AuthError),
    ],
    ids=["authority", "unverified", "untrusted", "stranger", "another-name", "no-tls"],
)
def test_a_server_that_wants_tls_is_believed_as_the_url_says(
    tls_server: tuple[MariaDbServer, Path], options: str, host: str, error: type[Exception] | None
) -> None:
    server, folder = tls_server
    url = f"mariadb://tls@{host}:{server.port}/db?{options.format(folder)}"
    if error is None:
        assert make_votes(url).cast(1, 7).counted
        return
    says = r"certificate|TLS|SSL|match" if error is hotcount.UnavailableError else None
    with pytest.raises(error, match=says):
        hotcount.Database(url)
