"""MariaDB over TCP and TLS: who is let in, and what a certificate must say."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.servers import free_port

pytestmark = pytest.mark.server


def make_votes(url: str, strategy: str = "naive", **options: Any) -> hotcount.Votes:
    votes = hotcount.Votes(hotcount.Database(url, timeout=20), None, strategy, **options)  # type: ignore[arg-type]
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariaDbServer, Path]]:
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for authority in ("ca", "stranger"):
        openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", f"{authority}.key", "-out", f"{authority}.crt"),
            *("-subj", f"/CN={authority}"),
        )
    openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "s.key", "-out", "s.csr"),
        *("-subj", "/CN=server"),
    )
    (folder / "s.ext").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        *("x509", "-req", "-in", "s.csr", "-CA", "ca.crt", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-out", "s.crt", "-days", "2", "-extfile", "s.ext"),
    )
    server = new_server(
        port=free_port(),
        config=(
            f"--ssl-ca={folder}/ca.crt",
            f"--ssl-cert={folder}/s.crt",
            f"--ssl-key={folder}/s.key",
        ),
    )
    try:
        server.start()
        server.execute("CREATE DATABASE db")
        server.execute("CREATE USER tls@'%' REQUIRE SSL")
        server.execute("GRANT ALL ON db.* TO tls@'%'")
        yield server, folder
    finally:
        server.remove()


def tls_url(server: MariaDbServer, options: str, *, host: str = "localhost") -> str:
    return f"mariadb://tls@{host}:{server.port}/db?{options}"


def test_tls_with_the_right_authority(tls_server: tuple[MariaDbServer, Path]) -> None:
    server, folder = tls_server
    votes = make_votes(tls_url(server, f"ssl_ca={folder}/ca.crt"))
    assert votes.cast(1, 7).counted


def test_tls_unverified_is_for_those_who_ask_for_it(tls_server: tuple[MariaDbServer, Path]) -> None:
    server, _ = tls_server
    assert make_votes(tls_url(server, "ssl_verify=false")).cast(2, 7).counted
    with pytest.raises(hotcount.UnavailableError):
        hotcount.Database(tls_url(server, "ssl=true"))


def test_tls_with_an_untrusted_certificate_or_another_name_is_refused(
    tls_server: tuple[MariaDbServer, Path],
) -> None:
    server, folder = tls_server
    with pytest.raises(hotcount.UnavailableError, match=r"certificate|TLS|SSL"):
        hotcount.Database(tls_url(server, f"ssl_ca={folder}/stranger.crt"))
    with pytest.raises(hotcount.UnavailableError, match=r"certificate|TLS|SSL|match"):
        hotcount.Database(tls_url(server, f"ssl_ca={folder}/ca.crt", host="127.0.0.1"))


def test_without_tls_a_server_that_asks_for_it_refuses(
    tls_server: tuple[MariaDbServer, Path],
) -> None:
    server, _ = tls_server
    with pytest.raises(hotcount.AuthError):
        hotcount.Database(tls_url(server, "ssl=false"))
