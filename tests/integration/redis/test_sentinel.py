"""redis+sentinel:// URLs: what they take, whom they ask, and what their errors say."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import _doctor

from tests.support.certificates import Certificates
from tests.support.redis_sentinel import SERVICE, SentinelTrio
from tests.support.servers import free_port
from tests.support.together import in_child


@pytest.fixture(scope="module")
def trio() -> Iterator[SentinelTrio]:
    """Whose Sentinels no test stops."""
    with SentinelTrio().started() as trio:
        yield trio


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://h1:1,h2", "names a service behind the hosts"),
        ("redis+sentinel://h1:1,h2/", "names a service behind the hosts"),
        ("redis+sentinel://h1/a%20b/0", "names a service behind the hosts"),
        ("redis+sentinel:///votes", "lacks its hosts"),
        ("redis+sentinel://h1/votes/x", "database is not a number"),
        ("redis+sentinel://h1/votes/1?db=2", "the database is given twice"),
        ("redis+sentinel://h1,h1:26379/votes", "h1:26379 is given twice"),
        ("redis+sentinel://H1,h1/votes", "h1:26379 is given twice"),
        ("redis+sentinel://h%31/votes", "percent"),
        ("redis+sentinel://h1,/votes", "host 2 of 2 is empty"),
        ("redis+sentinel://u@h1/votes", "a user without a password"),
        ("redis+sentinel://h1/votes?ca_file=x", "unknown option 'ca_file'"),
        ("redis+sentinel://h1/votes?sentinel_tls=1", r"hotcount\.Redis\(url, sentinel_tls="),
    ],
)
def test_a_bad_url_is_a_config_error_that_says_what_to_write(url: str, says: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=says):
        hotcount.connect(url)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (("u", ""), hotcount.ConfigError, "sentinel_credentials has an empty password"),
        ("secret", TypeError, "sentinel_credentials must be a tuple of user and password, not str"),
        (("u",), TypeError, "a tuple of user and password"),
        (("u", 5), TypeError, r"sentinel_credentials\[1\] must be str"),
    ],
)
def test_bad_credentials_are_refused_by_name(given: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        hotcount.Redis("redis+sentinel://h/votes", sentinel_credentials=given)


def test_credentials_of_sentinels_are_for_their_urls_and_stay_hidden() -> None:
    with pytest.raises(hotcount.ConfigError, match=r"sentinel_credentials.*redis\+sentinel"):
        hotcount.Redis("redis://h", sentinel_credentials=("", "canary"))
    with pytest.raises(hotcount.ConfigError, match=r"sentinel_tls.*redis\+sentinel"):
        hotcount.Redis("redis+cluster://h", sentinel_tls=False)
    url = "redis+sentinel://app:canary@h1:1,[::1]:2/votes/3"
    with hotcount.Redis(url, sentinel_credentials=("s", "canary")) as redis:
        assert "canary" not in repr(redis)
        assert "redis+sentinel://app:***@h1:1,[::1]:2/votes/3" in repr(redis)
        assert redis.sentinel_credentials == ("s", "***")
        assert redis.sentinel_tls is True


@pytest.mark.server
@pytest.mark.parametrize("options", [{}, {"protocol": 2}])
def test_the_primary_is_found_by_any_order_of_hosts(
    trio: SentinelTrio, options: dict[str, Any]
) -> None:
    turned = ",".join(reversed(trio.hosts.split(",")))
    with (
        hotcount.Redis(trio.url, timeout=20, **options) as one,
        hotcount.Redis(f"valkey+sentinel://{turned}/{SERVICE}", timeout=20, **options) as other,
    ):
        hotcount.Counter(one).reset("k")
        assert hotcount.Counter(one).add("k") == 1
        assert hotcount.Counter(other).add("k") == 2
        assert one.stats()["connects"] == other.stats()["connects"] == 1, "they share a connection"
        assert one.ping()
        assert one.ready()
        assert one.execute("ROLE")[0] == b"master"


@pytest.mark.server
def test_one_of_three_that_is_away_makes_no_difference(trio: SentinelTrio) -> None:
    hosts = [f"127.0.0.1:{free_port()}", *trio.hosts.split(",")[:2]]
    with hotcount.Redis(f"redis+sentinel://{','.join(hosts)}/{SERVICE}", timeout=20) as redis:
        assert redis.ping()


@pytest.mark.server
def test_errors_name_the_reason(trio: SentinelTrio) -> None:
    ports = [free_port(), free_port()]
    away = [f"127.0.0.1:{port}" for port in ports]
    one = trio.hosts.split(",")[0]
    cases: list[tuple[str, type[hotcount.HotcountError], str]] = [
        (f"{','.join(away)}/{SERVICE}", hotcount.UnavailableError, "none of the 2 Sentinels"),
        (
            f"{','.join([*away, one])}/{SERVICE}",
            hotcount.UnavailableError,
            "no majority of the Sentinels: 1 of 3 answer",
        ),
        (f"{trio.hosts}/other", hotcount.ConfigError, "watch no service of this name"),
        (
            f"127.0.0.1:{trio.servers[0].port},127.0.0.1:{trio.servers[1].port}/{SERVICE}",
            hotcount.ConfigError,
            r"is no Sentinel.* redis://.* redis\+cluster://",
        ),
    ]
    for rest, error, says in cases:
        with hotcount.Redis(f"redis+sentinel://{rest}", timeout=1) as redis:
            with pytest.raises(error, match=says) as caught:
                hotcount.Counter(redis).add("k")
            assert not isinstance(caught.value, hotcount.OutcomeUnknownError)
            with pytest.raises(error, match=says):
                redis.ping()


def sockets_to(ports: set[int]) -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
            if each.getpeername()[1] in ports:
                found.append(int(name))
    return found


@pytest.mark.server
def test_a_forked_child_keeps_no_socket_of_its_parent_to_a_sentinel(trio: SentinelTrio) -> None:
    ports = {int(host.rpartition(":")[2]) for host in trio.hosts.split(",")}

    with hotcount.Redis(trio.url, timeout=20) as redis:
        assert redis.ping()
        before = sockets_to(ports)
        assert before

        def child() -> tuple[list[int], bool, list[int]]:
            return sockets_to(ports), redis.ping(), sockets_to(ports)

        inherited, answered, own = in_child(child)
        assert (inherited, answered) == ([], True)
        assert own
        assert set(before) <= set(sockets_to(ports)), "those of the parent stay open"
        assert redis.ping()


@pytest.mark.server
def test_a_plain_url_of_a_sentinel_says_what_to_write(trio: SentinelTrio) -> None:
    with (
        hotcount.Redis(f"redis://{trio.hosts.split(',')[0]}", timeout=20) as redis,
        pytest.raises(hotcount.ConfigError, match=r"redis\+sentinel://host:26379"),
    ):
        redis.ping()
    with (
        hotcount.Redis(f"redis+cluster://{trio.hosts}", timeout=20) as redis,
        pytest.raises(hotcount.ConfigError, match=r"redis\+sentinel://127"),
    ):
        hotcount.Counter(redis).add("k")


@pytest.mark.server
def test_logins_and_tls_of_servers_and_sentinels(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.sign("server", "IP:127.0.0.1")
    ca = certificates.path("ca.crt")
    made = SentinelTrio(
        password="server-secret",
        sentinel_password="sentinel-secret",
        tls=certificates,
    )
    with made.started() as trio:
        rest = f"@{trio.hosts}/{SERVICE}"
        url = f"rediss+sentinel://:server-secret{rest}?ca_file={ca}"
        login = ("", "sentinel-secret")
        with hotcount.Redis(url, timeout=20, sentinel_credentials=login) as redis:
            assert hotcount.Counter(redis).add("k") == 1
            trio.fail_over()
            trio.await_primary(1)
            assert hotcount.Counter(redis).add("k") == 2
        asked: list[str] = []

        def credentials_of_server() -> tuple[str, str]:
            asked.append("once")
            return "", "server-secret"

        bare = f"rediss+sentinel://{trio.hosts}/{SERVICE}?ca_file={ca}"
        with hotcount.Redis(
            bare, timeout=20, sentinel_credentials=login, credentials=credentials_of_server
        ) as redis:
            assert hotcount.Counter(redis).get("k") == 2
            assert asked, "for the server, and not for the Sentinels"
        for credentials in (None, ("", "wrong-secret")):
            with (
                hotcount.Redis(url, timeout=20, sentinel_credentials=credentials) as redis,
                pytest.raises(hotcount.AuthError, match="sentinel_credentials") as refused,
            ):
                redis.ping()
            assert "secret" not in str(refused.value)
        wrong = f"rediss+sentinel://:wrong{rest}?ca_file={ca}"
        with (
            hotcount.Redis(wrong, timeout=20, sentinel_credentials=login) as redis,
            pytest.raises(hotcount.AuthError, match="WRONGPASS"),
        ):
            redis.ping()
        # TLS to the Sentinels alone is off: they answer nothing.
        with (
            hotcount.Redis(url, timeout=2, sentinel_credentials=login, sentinel_tls=False) as redis,
            pytest.raises(hotcount.UnavailableError, match="none of the 3 Sentinels"),
        ):
            redis.ping()


PAGE = Path(__file__).parents[3] / "docs/how-to/sentinel.md"


@pytest.mark.server
def test_the_page_about_sentinel_does_what_it_shows(
    trio: SentinelTrio, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    placed = first.replace("sentinel1:26379,sentinel2:26379,sentinel3:26379", trio.hosts)
    assert placed != first
    exec(placed, {})
    assert capsys.readouterr().out == "1\n"
    # Opened alone: no Sentinel has that login.
    certificates = Certificates(tmp_path)
    opened = second.replace("/etc/ssl/redis-ca.pem", str(certificates.path("ca.crt")))
    exec(opened, {"hotcount": hotcount})


@pytest.mark.server
def test_the_doctor_looks_at_each_sentinel(trio: SentinelTrio) -> None:
    def found(hosts: str) -> list[tuple[str, str]]:
        url = f"redis+sentinel://{hosts}/{SERVICE}/0"
        return [(each.check, each.state) for each in _doctor.examine(url, 1, {})]

    all_three = found(trio.hosts)
    assert ("sentinels", "ok") in all_three
    assert ("role", "ok") in all_three, "what it says of the primary follows"
    assert all_three.count(("acknowledged", "ok")) == 7, "what an answer of each feature is worth"
    two = ",".join(trio.hosts.split(",")[:2])
    assert ("sentinels", "warning") in found(two), "the URL does not name all"
    away = found(f"{two},127.0.0.1:{free_port()}")
    assert ("sentinel", "warning") in away
    nobody = found(f"127.0.0.1:{free_port()}")
    assert nobody == [("sentinel", "unknown"), ("reachable", "unknown")]
