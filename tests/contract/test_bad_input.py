"""Malformed keys, members and numbers: every store gives the same answer."""

import unicodedata
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import Limiter, LiveSets, Upsert

from tests.support.stores import Store

# Each is a key of its own. With braces that make no hash tag only versions are refused.
KEYS: list[str | bytes] = [
    " ", "\0", "a\0", "a\0b", "\r\n", "a\r\nSET x y", "a:b", "a%3Ab", "%", "%:a", "*", "a*", "[a]",
    "\\", '"', "'", "a b", "$5", "{a}", "{a}b", "{", "}", "a}b", "{}", "{}a",
    unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"),
    b"\xff\xfe", b"\xc3", "😀", "x" * 1000, "é" * 500,
]  # fmt: skip
TOO_LONG: list[str | bytes] = ["x" * 1001, "é" * 501, b"\xff" * 1001, "x" * 2**20]
NO_TEXT: list[Any] = [1, 1.5, None, True, bytearray(b"a"), ["a"], object()]


@pytest.fixture
def limiter(counter_store: Store) -> hotcount.Limiter:
    return hotcount.Limiter(counter_store, "2/hour")


def test_every_key_is_a_set_of_its_own(sets: hotcount.LiveSets) -> None:
    for number, key in enumerate(KEYS):
        sets.create(key, 60, {"a": number})
    for number, key in enumerate(KEYS):
        assert sets.upsert(key, "b", number) is Upsert.APPLIED
        assert sets.top(key, 9) == [("b", float(number)), ("a", float(number))], key
    report = sets.sweep("*", dry_run=True)
    assert (report.scanned, report.found) == (len(KEYS), 0)


def test_every_key_is_limited_apart(limiter: hotcount.Limiter) -> None:
    for key in KEYS:
        assert limiter.hit(key, 2), key
    assert list(limiter.hit_many(KEYS).allowed) == [False] * len(KEYS)


def test_every_member_is_a_member_of_its_own(sets: hotcount.LiveSets) -> None:
    sets.create("k", 60, {"first": -1})
    rows = [("k", key, number) for number, key in enumerate(KEYS)]
    assert sets.upsert_many(rows) == [Upsert.APPLIED] * len(KEYS)
    assert [member for member, _ in sets.top("k", len(KEYS))] == KEYS[::-1]
    for number, key in enumerate(KEYS):
        assert sets.rank("k", key) == len(KEYS) - 1 - number
        assert sets.upsert("k", key, number, version=1) is Upsert.APPLIED
        assert sets.remove("k", key, version=2) is Upsert.APPLIED
        assert sets.upsert("k", key, number, version=2) is Upsert.STALE
    assert sets.top("k", 9) == [("first", -1.0)]


@pytest.mark.parametrize("bad", ["", b"", *TOO_LONG, "\ud800"])
def test_a_name_of_a_wrong_length_is_refused(sets: LiveSets, limiter: Limiter, bad: Any) -> None:
    sets.create("k", 60, {"a": 1})
    of_key: list[Callable[[], object]] = [
        lambda: sets.upsert(bad, "a", 1),
        lambda: sets.top(bad, 1),
        lambda: sets.create(bad, 60, {"a": 1}),
        lambda: limiter.hit(bad),
        lambda: limiter.peek(bad),
        lambda: limiter.reset(bad),
    ]
    for call in of_key:
        with pytest.raises(hotcount.ConfigError, match="key"):
            call()
    of_member: list[Callable[[], object]] = [
        lambda: sets.upsert("k", bad, 1),
        lambda: sets.remove("k", bad),
        lambda: sets.rank("k", bad),
        lambda: sets.create("k", 60, {bad: 1}),
    ]
    for call in of_member:
        with pytest.raises(hotcount.ConfigError, match="member"):
            call()
    errors = limiter.hit_many(["good", bad, "good"], errors="return").errors
    assert [(i, type(error)) for i, error in errors.items()] == [(1, hotcount.ConfigError)]
    assert limiter.peek("good").remaining == 0, "the others were done"
    assert sets.top("k", 9) == [("a", 1.0)]


@pytest.mark.parametrize("bad", NO_TEXT)
def test_a_name_of_another_type_is_a_type_error(sets: LiveSets, limiter: Limiter, bad: Any) -> None:
    for call, name in (
        (lambda: sets.upsert(bad, "a", 1), "key"),
        (lambda: sets.upsert("k", bad, 1), "member"),
        (lambda: sets.sweep(bad), "match"),
        (lambda: limiter.hit(bad), "key"),
        (lambda: limiter.hit(("a", bad)), "key"),
    ):
        with pytest.raises(TypeError, match=name):
            call()


@pytest.mark.parametrize("bad", [True, np.bool_(False), Decimal(1), "1", 1.0, None, 1j])
def test_a_version_or_cost_that_is_no_int(sets: LiveSets, limiter: Limiter, bad: Any) -> None:
    sets.create("k", 60, {"a": 1})
    if bad is not None:
        with pytest.raises(TypeError, match="version"):
            sets.upsert("k", "a", 2, version=bad)
    with pytest.raises(TypeError, match="cost"):
        limiter.hit("k", bad)
    assert sets.top("k", 1) == [("a", 1.0)]
    assert limiter.peek("k").remaining == 2


@pytest.mark.parametrize("bad", [-(2**63) - 1, 2**63, 10**30])
def test_a_number_beyond_64_bits_is_refused(sets: LiveSets, limiter: Limiter, bad: int) -> None:
    sets.create("k", 60, {"a": 1})
    for call, name in (
        (lambda: sets.upsert("k", "a", 2, version=bad), "version"),
        (lambda: sets.remove("k", "a", version=bad), "version"),
        (lambda: sets.top("k", bad), "n"),
        (lambda: sets.range("k", 0, bad), "stop"),
        (lambda: limiter.hit("k", bad), "cost"),
    ):
        with pytest.raises(hotcount.ConfigError, match=name):
            call()
    assert sets.top("k", 1) == [("a", 1.0)]


def test_numpys_integers_are_integers(sets: hotcount.LiveSets, limiter: hotcount.Limiter) -> None:
    one: Any = np.int64(1)
    large: Any = np.int64(2**53 + 1)
    two: Any = np.uint8(2)
    sets.create("k", 60, {"a": one})
    assert sets.upsert("k", "a", two, version=large) is Upsert.APPLIED
    assert sets.upsert("k", "a", 3, version=2**53 + 1) is Upsert.STALE
    assert sets.upsert("k", "a", 4, version=2**53 + 2) is Upsert.APPLIED
    assert limiter.hit("k", two).remaining == 0


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 1e-9, 0.0009, 1e10, 10**400])
def test_a_ttl_of_a_set_out_of_range_is_a_config_error(sets: hotcount.LiveSets, ttl: float) -> None:
    with pytest.raises(hotcount.ConfigError, match="ttl"):
        sets.create("k", ttl, {"a": 1})
    assert sets.upsert("k", "a", 1) is Upsert.ABSENT


VIEWS = ["sqlite:///:memory:", "redis://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("cls", "arguments", "names", "instead"),
    [
        ("Counter", ["memory://"], ["method", "compensation"], "hotcount-load.*ways\\.py"),
        ("Limiter", ["memory://", "5/minute"], ["increx"], "align='first'"),
        ("Votes", ["sqlite:///:memory:"], ["commit_workers"], "workers is"),
        ("SlottedCounter", ["sqlite:///:memory:"], ["max_batch", "max_queue"], "the next one"),
        ("WriteBehindCounter", VIEWS, ["max_batch", "max_queue", "page"], "at most 100,000"),
        ("WriteBehindCounter", VIEWS, ["horizon"], "7 days"),
        ("LiveSets", ["memory://"], ["keep"], "an hour"),
        ("Redis", ["redis://127.0.0.1:1"], ["max_in_flight"], "16,384"),
        ("Redis", ["redis://127.0.0.1:1"], ["spin"], "while that has paid"),
        ("Redis", ["redis://127.0.0.1:1"], ["max_reply_bytes"], "512 MB"),
        ("Database", ["sqlite:///:memory:"], ["tcp_user_timeout"], "a URL of PostgreSQL"),
    ],
)
def test_an_option_that_left_is_a_config_error_that_says_what_to_use(
    cls: str, arguments: list[str], names: list[str], instead: str
) -> None:
    for name in names:
        with pytest.raises(hotcount.ConfigError, match=f"{name} is no option: .*{instead}"):
            getattr(hotcount, cls)(*arguments, **{name: 1})
