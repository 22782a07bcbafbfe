"""Dials of MariaDB that fail beside threads that open files: each file stays its owner's.

libmariadb closes the socket of some refused dials twice, and the second time the number may be
another thread's. What it is held to here is that no file of ours is closed by anybody else.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hotcount
import pytest

from tests.support.fired import fired
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.servers import free_port
from tests.support.together import beside

pytestmark = pytest.mark.server

SECONDS = 3.0
DIALLERS = 4
OPENERS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDbServer]:
    made = new_server(port=free_port())
    made.start()
    made.execute("CREATE DATABASE app")
    yield made
    made.remove()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Each refusal of hundreds would be shown with a failure."""
    caplog.set_level("CRITICAL", "hotcount")


def nobody_listens(folder: Path) -> str:
    path = folder / "left.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    return f"mariadb://root@/app?unix_socket={path}"


def is_absent(folder: Path) -> str:
    return f"mariadb://root@/app?unix_socket={folder / 'absent.sock'}"


def tcp_refuses(_: Path) -> str:
    return f"mariadb://root@127.0.0.1:{free_port()}/app"


def has_no_way(_: Path) -> str:
    return "mariadb://root@255.255.255.255:3306/app"  # connect() fails at once.


def check_files(path: Path, ended: threading.Event, lost: list[str]) -> None:
    """Opens the file again and again, and closes it a moment later."""
    own = path.stat()
    while not ended.is_set():
        opened = os.open(path, os.O_RDONLY)
        try:
            if not os.path.samestat(os.fstat(opened), own):
                lost.append(f"{opened} is another file")
                continue
            os.close(opened)
        except OSError as error:
            lost.append(f"{opened}: {error}")


def dial(url: str, timeout: float, ended: threading.Event, told: list[str]) -> None:
    while not ended.is_set():
        try:
            hotcount.Database(url, timeout=timeout).close()
            told.append("connected")
        except hotcount.HotcountError as error:
            told.append(f"{type(error).__name__}: {error}")


def check(url: str, words: str, folder: Path, timeout: float = 5) -> None:
    path = folder / "ours"
    path.write_text("ours")
    lost: list[str] = []
    told: list[str] = []
    openers = [lambda ended: check_files(path, ended, lost)] * OPENERS
    with beside(*openers, *[lambda ended: dial(url, timeout, ended, told)] * DIALLERS):
        time.sleep(SECONDS)
    assert told
    assert [text for text in told if words not in text] == []
    fired("dial refused", len(told))
    assert lost == []


@pytest.mark.parametrize("place", [nobody_listens, is_absent, tcp_refuses, has_no_way])
def test_a_refused_dial_closes_no_file(place: Callable[[Path], str], tmp_path: Path) -> None:
    check(place(tmp_path), "UnavailableError", tmp_path)


@pytest.mark.parametrize(
    ("kind", "words"), [("password", "AuthError"), ("tls", "(2026, "), ("silent", "DeadlineError")]
)
def test_a_login_that_fails_closes_no_file_of_others(
    server: MariaDbServer, kind: str, words: str, tmp_path: Path
) -> None:
    if kind == "password":
        return check(server.url("app", user="nobody", password="wrong"), words, tmp_path)
    if kind == "tls":
        return check(server.tcp_url("app") + "?ssl=true", words, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check(f"mariadb://root@127.0.0.1:{port}/app", words, tmp_path, timeout=0.3)
    return None


def test_a_dial_over_a_unix_socket_is_one_connection_of_the_server(server: MariaDbServer) -> None:
    def connections() -> int:
        ((_, count),) = server.execute("SHOW GLOBAL STATUS LIKE 'Connections'")
        return int(count)

    before = connections()
    with hotcount.Database(server.url("app")) as database:
        assert database.ready()
    # That session, and the one that asks.
    assert connections() - before == 2
