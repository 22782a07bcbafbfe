"""Hosts in URLs: read as urllib reads them, or refused; never another host."""

from __future__ import annotations

import itertools
from urllib.parse import urlsplit

import hotcount
import pytest

HOSTS = [
    *("h", "H.example", "127.0.0.1", "h.", "a-b_c.d", "größe.example"),
    *("[::1]", "[fe80::1%eth0]", "[fe80::1%25eth0]", "[::ffff:1.2.3.4]", "[::1", "::1]", "[]"),
    *("[v1.x]", "[h]", "[::1]x", "[1.2.3.4]", "[fe80::1%]", "[fe80::1%a/b]", "::1", "a:b", "a:1:2"),
    *("h%6fst", "h%00", "h%2F", "h%23", "h%40evil", "a%", "a%zz"),
    *("h\0", "h\t", "h\n", "h\r", "h i", "h\x7f", "h\\", "h#x", "#", "h#@evil", "h;x", "h,x"),
    *("h`", "h{", "h}", "h|", "h<", "h>", 'h"', "h^", "a[b]", "a]b"),
]
BEFORE = ["", "u@", "u:p@", "u%23:p%40@", "a#b@", "a?b@", "a/b@", "a\\b@", "u@v@", "[u@", "\0@"]
AFTER = ["", ":6380", ":", ":x", ":0", ":06381", ":6380/0", "/1", "?db=1", "#f", "/0#f", ":1#@evil"]
URLS = ["".join(parts) for parts in itertools.product(BEFORE, HOSTS, AFTER)]


def host_of(url: str) -> str:
    """Where a client of the URL goes, as its errors have it."""
    redis = hotcount.Redis(url)
    redis.close()
    with pytest.raises(hotcount.ClosedError) as caught:
        redis.ping()
    return str(caught.value).removeprefix("redis ").removesuffix(" is closed").rpartition(":")[0]


def urllib_host(url: str) -> str | None:
    """None where urllib refuses the URL."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname or "127.0.0.1"


def test_no_url_leads_to_another_host_than_urllib_says() -> None:
    read = refused = 0
    for rest in URLS:
        url = f"redis://{rest}"
        try:
            host = host_of(url)
        except hotcount.ConfigError:
            refused += 1
            continue
        expected = urllib_host(url)
        assert expected is not None, url
        assert host.lower() == expected.lower(), url
        read += 1
    assert read > 200
    assert refused > 1000


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("redis://good#@evil", "#"),
        ("redis://h#x/0", "#"),
        ("redis://u:[p]@h", "bracket"),
        ("redis://:p#w@h", "#"),
        ("redis://h%00x", "NUL"),
        ("redis://h%2fx", "percent"),
        ("redis://[fe80::1%25eth0]", "zone"),
        ("redis://[nonsense]", "IPv6"),
        ("redis://h\tx", "control"),
        ("postgresql://h\0x/db", "control"),
        ("mysql://h#x/db", "#"),
        ("redis://a:1,b:2", r"redis:// takes one host, not 2; .*redis\+sentinel"),
        ("postgresql://a:1,b:2/db?target_session_attrs=prefer-standby", "none of read-write, "),
        ("mariadb://a:1,b:2/db?target_session_attrs=first", "none of read-write, primary"),
        ("mariadb://a:1/db?target_session_attrs=any", "with several hosts also target_session"),
        ("postgresql://a,b:5432,a:5432/db", "host 3, a:5432, is host 1 again"),
        ("mysql://[::1]:3306,b,[::1]/db", r"host 3, \[::1\], is host 1 again"),
        ("postgresql://a,b/db?port=1", "each has its own: h1:5432,h2:5432"),
        ("postgresql://a,b/db?host=c", "host is given twice"),
        ("mysql://a,b/db?unix_socket=/tmp/s", "both a host .* and a unix_socket"),
        ("mariadb://a,b;x/db", "semicolon"),
        ("postgresql://a,/db", "host 2 of 2 is empty"),
        ("mysql://h%6fst/db", "percent"),
        ("redis+unix:///tmp/a%00b", "NUL"),
        ("redis+unix:///" + 200 * "s", "longer"),
    ],
)
def test_a_refused_value_is_named(url: str, part: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=part):
        hotcount.connect(url)


@pytest.mark.parametrize("host", ["::1", "fe80::1%eth0"])
def test_an_ipv6_host_is_read_without_its_brackets(host: str) -> None:
    assert host_of(f"redis://[{host}]:6380/0") == host
