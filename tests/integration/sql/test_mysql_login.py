"""MySQL's default way to log in, caching_sha2_password, over TCP, TLS and a Unix socket.

The server knows an answer to its challenge once the account has shown its password over TLS or a
Unix socket. Before that it asks for the password itself, which hotcount keeps.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import hotcount
import pymysql  # type: ignore[import-untyped]
import pytest

from tests.support.eventually import BUSY, eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mariadb_votes import MariaDbSide
from tests.support.mysql_server import new_server
from tests.support.servers import free_port
from tests.support.together import beside, together

pytestmark = [pytest.mark.server, pytest.mark.mysql_only]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDbServer]:
    with new_server(port=free_port()).started() as server:
        yield server


def fingerprint(server: MariaDbServer) -> str:
    """Of the certificate that MySQL has made for itself."""
    certificate = (server.folder / "data" / "server-cert.pem").read_text()
    der = ssl.PEM_cert_to_DER_cert(certificate.rstrip("\0"))  # MySQL 8.0 ends it with one.
    return hashlib.sha1(der).hexdigest()


@dataclass
class Account:
    """One that has not logged in yet, with a database of its own."""

    server: MariaDbServer
    name: str
    database: str
    password: str = "sec/ret"

    @property
    def tcp(self) -> str:
        login = f"{self.name}:{self.password.replace('/', '%2F')}"
        return self.server.tcp_url(self.database, login=login)

    @property
    def pinned(self) -> str:
        return f"{self.tcp}?ssl_fingerprint={fingerprint(self.server)}"

    @property
    def socket(self) -> str:
        return self.server.url(self.database, user=self.name, password=self.password)


@pytest.fixture
def account(server: MariaDbServer) -> Account:
    account = Account(server, f"app{next(_numbers)}", server.create_database())
    server.execute(
        f"CREATE USER {account.name} IDENTIFIED WITH caching_sha2_password BY %s",
        (account.password,),
    )
    server.execute(f"GRANT ALL ON {account.database}.* TO {account.name}")
    return account


def opens(url: str) -> None:
    """A session of its own: databases of one URL share theirs."""
    with hotcount.Database(url, timeout=20) as database:
        assert database.ping()


def is_refused(url: str) -> None:
    with pytest.raises(hotcount.AuthError) as caught:
        hotcount.Database(url, timeout=20)
    for words in ("first login of the account", "?ssl_fingerprint=HEX", "Unix socket"):
        assert words in str(caught.value)


def with_pymysql_over_tls(account: Account) -> None:
    pymysql.connect(
        host="127.0.0.1",
        port=account.server.port,
        user=account.name,
        password=account.password,
        ssl={"ca": str(account.server.folder / "data" / "ca.pem"), "check_hostname": False},
    ).close()


LOGINS: dict[str, Callable[[Account], None]] = {
    "over pinned TLS": lambda account: opens(account.pinned),
    "over a Unix socket": lambda account: opens(account.socket),
    "of another client": with_pymysql_over_tls,
}


@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS.keys())
def test_the_first_login_is_refused_over_tcp_and_works_after_one(
    account: Account, login: Callable[[Account], None]
) -> None:
    is_refused(account.tcp)
    is_refused(account.tcp)
    login(account)
    opens(account.tcp)


def test_a_login_that_stays_refused_is_not_tried_without_a_pause(account: Account) -> None:
    """MySQL refuses a host that breaks 100 handshakes in a row."""

    def broken() -> int:
        return int(account.server.execute("SHOW GLOBAL STATUS LIKE 'Aborted_connects'")[0][1])

    opens(account.pinned)
    with hotcount.Database(account.tcp, timeout=20, idle_timeout=0.05) as database:
        account.server.execute("FLUSH PRIVILEGES")
        before, refused, end = broken(), 0, time.monotonic() + 2.5
        while time.monotonic() < end:
            try:
                database.ping()
            except hotcount.AuthError:
                refused += 1
            time.sleep(0.01)
        assert refused > 20
        assert broken() - before <= 6
        opens(account.pinned)
        eventually(lambda: pings(database))


def test_a_child_forked_while_threads_log_in_over_tls_logs_in_too(account: Account) -> None:
    """libmariadb sets TLS up under a lock, which the child would find locked for ever."""

    def log_in(ended: threading.Event) -> None:
        while not ended.is_set():
            opens(account.pinned)

    with beside(*[log_in] * 4):
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # Ends a child that hangs.
                hotcount.Database(account.pinned, timeout=10).close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0


def pings(database: hotcount.Database) -> bool:
    try:
        return bool(database.ping())
    except hotcount.AuthError:
        return False


def restart(account: Account) -> None:
    account.server.stop()
    account.server.start()


FORGETS: dict[str, Callable[[Account], object]] = {
    "FLUSH PRIVILEGES": lambda account: account.server.execute("FLUSH PRIVILEGES"),
    "the same password once more": lambda account: account.server.execute(
        f"ALTER USER {account.name} IDENTIFIED BY %s", (account.password,)
    ),
    "a restart": restart,
}


@pytest.mark.parametrize("forget", FORGETS.values(), ids=FORGETS.keys())
def test_a_server_that_has_forgotten_the_login_refuses_the_next_one(
    account: Account, forget: Callable[[Account], object]
) -> None:
    opens(account.pinned)
    opens(account.tcp)
    forget(account)
    is_refused(account.tcp)
    opens(account.pinned)
    opens(account.tcp)


def test_a_wrong_password_is_an_auth_error_before_and_after_the_first_login(
    account: Account,
) -> None:
    wrong = Account(account.server, account.name, account.database, password="wr0ng")
    is_refused(wrong.tcp)
    opens(account.pinned)
    is_refused(wrong.tcp)
    for url in (wrong.pinned, wrong.socket):
        with pytest.raises(hotcount.AuthError) as caught:
            hotcount.Database(url)
        assert caught.value.code == "1045"
        assert "wr0ng" not in str(caught.value)
    opens(account.tcp)  # They have not made the server forget it.


def test_many_sessions_vote_over_tcp_and_the_worker_folds(account: Account) -> None:
    opens(account.pinned)
    with hotcount.Database(account.tcp, timeout=20, max_writers=8) as database:
        votes = hotcount.Votes(database, fold_interval=0.05)
        votes.create_tables()
        votes.add_items([1])
        together(lambda user: votes.cast(1, user), 16)
        assert int(votes.count(1)) == 16
        count = f"SELECT vote_count FROM {account.database}.item"
        eventually(lambda: account.server.execute(count) == [(16,)])


def test_a_session_that_a_call_has_left_is_ended_from_another_one(account: Account) -> None:
    opens(account.pinned)
    with hotcount.Database(account.tcp, timeout=20) as database:
        votes = hotcount.Votes(database, None, "naive")
        votes.create_tables()
        votes.add_items([1])
        held = "SELECT id FROM item WHERE id = 1 FOR UPDATE"
        with MariaDbSide(account.server, account.database).held(held):
            started = time.monotonic()
            with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
                votes.cast(1, 7, timeout=0.3)
            assert time.monotonic() - started < 0.3 + BUSY
            eventually(lambda: account.server.row_waits() == 0, 1)
        assert votes.cast(1, 7).changed


def test_the_certificate_of_mysqls_own_making_names_no_host(account: Account) -> None:
    authority = account.server.folder / "data" / "ca.pem"
    with pytest.raises(hotcount.UnavailableError, match=r"SSL|TLS"):
        hotcount.Database(f"{account.tcp}?ssl_ca={authority}")


def test_sha256_password_is_refused_over_tcp_and_works_over_pinned_tls(account: Account) -> None:
    account.server.execute(
        f"ALTER USER {account.name} IDENTIFIED WITH sha256_password BY %s", (account.password,)
    )
    for _ in range(2):
        with pytest.raises(hotcount.AuthError, match="the password was not sent"):
            hotcount.Database(account.tcp)
        opens(account.pinned)
