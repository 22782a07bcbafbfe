"""MariaDB over TCP and TLS: who is let in, and what a certificate must say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hotcount
import pytest

from tests.support.certificates import Certificates
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.servers import free_port
from tests.support.sql_votes import make_votes

pytestmark = pytest.mark.server


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
