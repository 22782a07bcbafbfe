"""rediss://: the right certificate is accepted, every wrong one refused."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hotcount
import hotcount.aio
import pytest

from tests.support.certificates import Certificates
from tests.support.programs import captured
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("tls"))
    made.sign("good", "DNS:localhost,IP:127.0.0.1")
    made.sign("elsewhere", "DNS:example.invalid")
    made.sign("expired", "DNS:localhost,IP:127.0.0.1", expired=True)
    made.sign("client", "DNS:client")
    Certificates(made.folder, "stranger")  # Signs for itself only.
    return made


class TlsServer(RedisServer):
    def __init__(self, folder: Path, certificates: Certificates, name: str, *, ask: bool) -> None:
        self.tls_port = free_port()
        super().__init__(
            folder,
            config=(
                *("--tls-port", str(self.tls_port)),
                *("--tls-cert-file", str(certificates.path(f"{name}.crt"))),
                *("--tls-key-file", str(certificates.path(f"{name}.key"))),
                *("--tls-ca-cert-file", str(certificates.path("ca.crt"))),
                *("--tls-auth-clients", "yes" if ask else "no"),
            ),
        )

    def tls_url(self, host: str = "localhost", **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"rediss://{host}:{self.tls_port}?{query}"


@pytest.fixture
def good_server(tmp_path: Path, certificates: Certificates) -> Iterator[TlsServer]:
    with TlsServer(tmp_path, certificates, "good", ask=False).started() as server:
        yield server


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_that_holds_is_accepted(
    good_server: TlsServer, certificates: Certificates, host: str
) -> None:
    url = good_server.tls_url(host, ca_file=certificates.path("ca.crt"))
    with hotcount.Redis(url, timeout=5) as redis:
        counter = hotcount.Counter(redis)
        assert list(counter.add_many([f"k{n}" for n in range(500)])) == [1] * 500
        redis.execute("SET", "big", "x" * 3_000_000)
        assert redis.execute("GET", "big") == b"x" * 3_000_000


@pytest.mark.parametrize(
    ("name", "reason"),
    [("elsewhere", "mismatch"), ("expired", "expired"), ("stranger", "self.signed")],
)
def test_a_certificate_that_does_not_hold_is_refused_and_the_error_says_why(
    tmp_path: Path, certificates: Certificates, name: str, reason: str
) -> None:
    said = f"certificate does not hold for 'localhost'.*{reason}"
    with TlsServer(tmp_path, certificates, name, ask=False).started() as server:
        url = server.tls_url(ca_file=certificates.path("ca.crt"))
        with hotcount.Redis(url, timeout=5) as redis:
            with pytest.raises(hotcount.UnavailableError, match=said):
                redis.ping()
            with pytest.raises(hotcount.UnavailableError, match=said):
                redis.execute("NOT.KNOWN")

        async def in_a_loop() -> None:
            async with hotcount.aio.Redis(url, timeout=5) as redis:
                await redis.ping()

        with pytest.raises(hotcount.UnavailableError, match=said):
            asyncio.run(in_a_loop())


def test_a_failed_handshake_leaves_a_healthy_connection_of_the_same_thread_alone(
    good_server: TlsServer, certificates: Certificates
) -> None:
    trusting = good_server.tls_url(ca_file=certificates.path("ca.crt"))
    with (
        hotcount.Redis(trusting, timeout=5) as healthy,
        hotcount.Redis(good_server.tls_url(), timeout=5) as refusing,
    ):
        counter = hotcount.Counter(healthy)
        for number in range(1, 6):
            assert counter.add("k") == number
            with pytest.raises(hotcount.UnavailableError, match="certificate"):
                refusing.ping()
        assert healthy.stats()["connects"] == 1

    async def in_a_loop() -> object:
        async with hotcount.aio.Redis(trusting, timeout=5) as healthy:
            for _ in range(3):
                await healthy.ping()
                async with hotcount.aio.Redis(good_server.tls_url(), timeout=5) as refusing:
                    with pytest.raises(hotcount.UnavailableError, match="certificate"):
                        await refusing.ping()
            return healthy.stats()["connects"]

    assert asyncio.run(in_a_loop()) == 1


@pytest.mark.parametrize("size", [70_000, 20_000_000])
@pytest.mark.parametrize("by", ["thread", "loop"])
def test_a_long_command_is_sent_to_its_end_though_the_server_paused_and_nobody_else_calls(
    good_server: TlsServer, certificates: Certificates, size: int, by: str
) -> None:
    """20 MB fill what the kernel takes for a server that does not read."""
    url = good_server.tls_url(ca_file=certificates.path("ca.crt"))
    with hotcount.Redis(url, timeout=20) as redis:
        value = b"x" * size

        async def in_a_loop() -> object:
            async with hotcount.aio.Redis(url, timeout=20) as same:
                await same.ping()
                sent = same.stats()["bytes_sent"]
                call = asyncio.ensure_future(same.execute("SET", "k", value))
                good_server.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.1)
                asyncio.get_running_loop().run_in_executor(None, go_on_once_stuck)
                assert same.stats()["bytes_sent"] >= sent
                return await call

        def go_on_once_stuck() -> None:
            seen: float = -1
            while (sent := redis.stats()["bytes_sent"]) != seen:
                seen = sent
                time.sleep(0.1)
            good_server.send_signal(signal.SIGCONT)

        try:
            if by == "loop":
                assert asyncio.run(in_a_loop()) == b"OK"
            else:
                redis.ping()
                good_server.send_signal(signal.SIGSTOP)
                goes_on = threading.Thread(target=go_on_once_stuck)
                goes_on.start()
                assert redis.execute("SET", "k", value) == b"OK"
                goes_on.join()
        finally:
            good_server.send_signal(signal.SIGCONT)
        assert redis.execute("STRLEN", "k") == size


def test_a_certificate_of_an_untrusted_authority_is_refused(good_server: TlsServer) -> None:
    # Without ca_file the system's authorities count, and ours is none of them.
    with (
        hotcount.Redis(good_server.tls_url(), timeout=5) as redis,
        pytest.raises(hotcount.UnavailableError),
    ):
        redis.ping()


def test_a_server_that_asks_for_a_certificate_gets_ours(
    tmp_path: Path, certificates: Certificates
) -> None:
    with TlsServer(tmp_path, certificates, "good", ask=True).started() as server:
        ca_file = certificates.path("ca.crt")
        with (
            hotcount.Redis(server.tls_url(ca_file=ca_file), timeout=5) as redis,
            pytest.raises(hotcount.UnavailableError),
        ):
            redis.ping()
        url = server.tls_url(
            ca_file=ca_file,
            cert_file=certificates.path("client.crt"),
            key_file=certificates.path("client.key"),
        )
        with hotcount.Redis(url, timeout=5) as redis:
            redis.ping()


def test_plain_text_to_a_tls_port_and_tls_to_a_plain_one_fail_typed(
    good_server: TlsServer, certificates: Certificates, tmp_path: Path
) -> None:
    with (
        hotcount.Redis(f"redis://127.0.0.1:{good_server.tls_port}", timeout=2) as redis,
        pytest.raises(hotcount.UnavailableError),
    ):
        redis.ping()
    folder = tmp_path / "plain"
    folder.mkdir()
    with RedisServer(folder, port=free_port()).started() as plain:
        url = f"rediss://127.0.0.1:{plain.port}?ca_file={certificates.path('ca.crt')}"
        with hotcount.Redis(url, timeout=2) as redis, pytest.raises(hotcount.HotcountError):
            redis.ping()


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(hotcount.ConfigError, match="TLS"):
        hotcount.Redis(f"rediss://localhost?ca_file={tmp_path / 'missing.pem'}")
    with pytest.raises(hotcount.ConfigError, match="come together"):
        hotcount.Redis("rediss://localhost?cert_file=c.pem")


WITHOUT_OPENSSL = """
import hotcount
print(hotcount.build_info()["tls"], hotcount.Counter("memory://").add("k"))
try:
    hotcount.Redis("rediss://localhost")
except hotcount.ConfigError as error:
    print(error)
"""


def test_without_openssl_a_rediss_url_names_the_package(tmp_path: Path) -> None:
    (tmp_path / "libssl.so.3").touch()  # Found first, and no library.
    done = captured(
        [sys.executable, "-c", WITHOUT_OPENSSL], env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    )
    assert (done.returncode, done.stderr) == (0, "")
    info, said = done.stdout.splitlines()
    assert info == "not found 1"
    assert "rediss needs OpenSSL" in said
    assert "apt install libssl3" in said
