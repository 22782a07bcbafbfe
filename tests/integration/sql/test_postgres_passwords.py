"""PostgreSQL's own ways to ask for a password, over TCP, with each libpq that we know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.commands import output_of
from tests.support.servers import PostgresServer, free_port

pytestmark = pytest.mark.server

PASSWORD = "canary-in-the-mine"
CONNECT = """
import sys, hotcount
try:
    print(hotcount.Database(sys.argv[1], timeout=20).ping(), hotcount.build_info()["libpq"])
except hotcount.HotcountError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def guarded_postgres() -> Iterator[PostgresServer]:
    server = PostgresServer(port=free_port())
    try:
        server.start()
        for method, encryption in (
            ("scram", "scram-sha-256"), ("md5", "md5"), ("clear", "scram-sha-256"),
        ):  # fmt: skip
            server.psql(
                f"SET password_encryption = '{encryption}';"
                f"CREATE ROLE {method}_user LOGIN PASSWORD '{PASSWORD}'"
            )
        rules = server.folder / "data" / "pg_hba.conf"
        kept = rules.read_text()
        rules.write_text(
            "host all scram_user 127.0.0.1/32 scram-sha-256\n"
            "host all md5_user 127.0.0.1/32 md5\n"
            "host all clear_user 127.0.0.1/32 password\n" + kept
        )
        server.psql("SELECT pg_reload_conf()")
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["system", "with require_auth"])
def library_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The system's libpq, or psycopg's, which is 16 or newer."""
    if request.param == "system":
        return ""
    folder = Path(psycopg.__file__).parent.parent / "psycopg_binary.libs"
    (newer,) = folder.glob("libpq-*.so.5*")
    (tmp_path / "libpq.so.5").symlink_to(newer)
    return f"{tmp_path}:{folder}"


def connect(url: str, library_path: str) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path}
    said = output_of(CONNECT, url, env=environment).strip()
    if library_path and said.startswith("True"):
        assert int(said.split()[1].split(".")[0]) >= 16, "it was not that libpq"
    return said


@pytest.mark.parametrize("method", ["scram", "md5"])
@pytest.mark.parametrize("tls", ["disable", "prefer"])
def test_a_challenge_is_answered(
    guarded_postgres: PostgresServer, library_path: str, method: str, tls: str
) -> None:
    login = f"{method}_user:{PASSWORD}"
    url = guarded_postgres.tcp_url(login=login) + f"?sslmode={tls}"
    assert connect(url, library_path).startswith("True")


@pytest.mark.parametrize("method", ["scram", "md5"])
def test_a_wrong_password_is_an_auth_error(
    guarded_postgres: PostgresServer, library_path: str, method: str
) -> None:
    url = guarded_postgres.tcp_url(login=f"{method}_user:wrong-{PASSWORD}")
    said = connect(url, library_path)
    assert said.startswith("AuthError")
    assert PASSWORD not in said


def test_a_server_that_wants_the_password_itself_is_refused(
    guarded_postgres: PostgresServer, library_path: str
) -> None:
    said = connect(guarded_postgres.tcp_url(login=f"clear_user:{PASSWORD}"), library_path)
    assert said.startswith("AuthError")
    assert "clear text" in said
    assert "sslmode=verify-full" in said
    assert PASSWORD not in said


def test_without_a_password_there_is_nothing_to_keep(
    guarded_postgres: PostgresServer, library_path: str
) -> None:
    assert connect(guarded_postgres.tcp_url(), library_path).startswith("True")
