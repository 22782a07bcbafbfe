"""The unsafe methods of a counter with a TTL, each with its holes forced, no luck needed.

A hole that a test here no longer finds means that a way has been mended: it is then no longer the
one it is named after. The script stands beside them and has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.gate import Gate
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

KEY = "count:k"
TTL = 300
IMMORTAL = -1

SCRIPT = {"method": "script"}
INCR = {"method": "incr"}
NONE = {"method": "set_nx_incr", "compensation": "none"}
FIRST = {"method": "set_nx_incr", "compensation": "first"}
TTL_ONLY = {"method": "set_nx_incr", "compensation": "ttl"}
BOTH = {"method": "set_nx_incr", "compensation": "both"}


def ways(*options: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "options", options, ids=lambda options: "-".join(options.values())
    )


@pytest.fixture
def direct(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    with own_redis.redis(timeout=20) as redis:
        yield redis


@pytest.fixture
def gate(own_redis: RedisServer, tmp_path: Path) -> Iterator[Gate]:
    with Gate(own_redis.socket, tmp_path / "gate.sock") as gate:
        yield gate


def make(store: Any, options: dict[str, Any]) -> hotcount.Counter:
    return hotcount.Counter(store, ttl=TTL, **options)


def ttl_ms(direct: hotcount.Redis) -> int:
    """Milliseconds; -1 where the key never expires."""
    return int(direct.execute("PTTL", KEY))


def add_in_two_halves(
    gate: Gate,
    options: dict[str, str],
    word: str,
    between: Callable[[], object],
    url: str | None = None,
) -> Any:
    """What an add comes to that stops before the command `word` while `between` happens."""
    with hotcount.Redis(url or gate.url(), timeout=60) as store, ThreadPoolExecutor(1) as pool:
        store.ping()
        gate.hold(word)
        call = pool.submit(make(store, options).add, "k")
        gate.wait()
        between()
        gate.open()
        return call.exception() or call.result()


def expire(direct: hotcount.Redis) -> None:
    """The key expires now."""
    direct.execute("PEXPIRE", KEY, 1)
    while direct.execute("EXISTS", KEY):
        pass


def dying(direct: hotcount.Redis, gate: Gate) -> str:
    """The URL of a user who may not PEXPIRE: it stands for a caller that dies before it does."""
    direct.execute("ACL", "SETUSER", "dying", "on", ">pw", "~*", "&*", "+@all", "-pexpire")
    return gate.url("dying", "pw")


# -- a key that expires between SET NX and INCRBY ---------------------------


def test_set_nx_misses_and_incr_makes_an_immortal_key(gate: Gate, direct: hotcount.Redis) -> None:
    make(direct, SCRIPT).add("k", 5)
    assert add_in_two_halves(gate, NONE, "INCR", lambda: expire(direct)) == 1
    assert ttl_ms(direct) == IMMORTAL
    # And so it stays, whoever comes.
    assert make(direct, NONE).add("k") == 2
    assert ttl_ms(direct) == IMMORTAL


@ways(FIRST, TTL_ONLY, BOTH)
def test_each_compensation_heals_that_where_the_caller_lives_on(
    gate: Gate, direct: hotcount.Redis, options: dict[str, str]
) -> None:
    make(direct, SCRIPT).add("k", 5)
    assert add_in_two_halves(gate, options, "INCR", lambda: expire(direct)) == 1
    assert 0 < ttl_ms(direct) <= TTL * 1000


def test_the_first_compensation_does_not_see_a_key_that_another_caller_made(
    gate: Gate, direct: hotcount.Redis
) -> None:
    make(direct, SCRIPT).add("k", 5)

    def expire_and_be_overtaken() -> None:
        expire(direct)
        # Another such caller, whose INCRBY came first and who dies before its PEXPIRE.
        assert direct.execute("INCRBY", KEY, 1) == 1

    assert add_in_two_halves(gate, FIRST, "INCR", expire_and_be_overtaken) == 2
    assert ttl_ms(direct) == IMMORTAL
    assert make(direct, FIRST).add("k") == 3
    assert ttl_ms(direct) == IMMORTAL
    # The other compensation, and the script, see it at the next add.
    assert make(direct, TTL_ONLY).add("k") == 4
    assert 0 < ttl_ms(direct) <= TTL * 1000


@ways(FIRST, TTL_ONLY, BOTH)
def test_no_compensation_is_made_by_a_caller_that_dies_before_it(
    gate: Gate, direct: hotcount.Redis, options: dict[str, str]
) -> None:
    make(direct, SCRIPT).add("k", 5)
    url = dying(direct, gate)
    end = add_in_two_halves(gate, options, "INCR", lambda: expire(direct), url)
    # It was counted, and nobody may think otherwise: doing it again would count twice.
    assert isinstance(end, hotcount.OutcomeUnknownError)
    assert "was counted" in str(end)
    assert (make(direct, options).get("k"), ttl_ms(direct)) == (1, IMMORTAL)


# -- INCRBY, then PEXPIRE ---------------------------------------------------


def test_incr_leaves_an_immortal_key_when_its_expire_never_arrives(
    gate: Gate, direct: hotcount.Redis
) -> None:
    with hotcount.Redis(dying(direct, gate)) as store:
        with pytest.raises(hotcount.OutcomeUnknownError, match="was counted") as caught:
            make(store, INCR).add("k")
        assert caught.value.code == "NOPERM"
    assert ttl_ms(direct) == IMMORTAL
    # Nobody is the first again.
    assert make(direct, INCR).add("k") == 2
    assert ttl_ms(direct) == IMMORTAL


@ways(INCR, FIRST, BOTH)
def test_a_late_expire_starts_the_ttl_anew(
    gate: Gate, direct: hotcount.Redis, options: dict[str, str]
) -> None:
    def time_passes() -> None:
        direct.execute("PEXPIRE", KEY, TTL * 1000 // 2)

    assert add_in_two_halves(gate, options, "PEXPIRE", time_passes) == 1
    assert ttl_ms(direct) > TTL * 1000 * 3 // 4


def test_a_late_expire_extends_the_ttl_of_the_next_key(gate: Gate, direct: hotcount.Redis) -> None:
    def another_key_is_made() -> None:
        direct.execute("DEL", KEY)
        direct.execute("SET", KEY, 7, "PX", TTL * 1000 // 2)

    assert add_in_two_halves(gate, BOTH, "PEXPIRE", another_key_is_made) == 1
    assert ttl_ms(direct) > TTL * 1000 * 3 // 4


# -- the script -------------------------------------------------------------


def test_the_script_finds_the_key_expired_and_gives_the_new_one_its_ttl(
    gate: Gate, direct: hotcount.Redis
) -> None:
    make(direct, SCRIPT).add("k", 5)
    assert add_in_two_halves(gate, SCRIPT, "EVAL", lambda: expire(direct)) == 1
    assert 0 < ttl_ms(direct) <= TTL * 1000


def test_the_script_counts_nothing_that_it_may_not_expire(
    gate: Gate, direct: hotcount.Redis
) -> None:
    with hotcount.Redis(dying(direct, gate)) as store:
        counter = make(store, SCRIPT)
        # A new key's expiry comes with its value, by SET.
        assert counter.add("k") == 1
        assert 0 < ttl_ms(direct) <= TTL * 1000
        direct.execute("PERSIST", KEY)
        with pytest.raises(hotcount.PermissionDeniedError):
            counter.add("k")
    assert direct.execute("GET", KEY) == b"1"
    # Nor does it touch what is no counter.
    direct.execute("SET", KEY, "no number")
    with pytest.raises(hotcount.WrongTypeError):
        make(direct, SCRIPT).add("k")
    assert (direct.execute("GET", KEY), ttl_ms(direct)) == (b"no number", IMMORTAL)


@pytest.mark.parametrize(
    ("options", "trips"), [(SCRIPT, 1), (INCR, 1), (NONE, 2), (TTL_ONLY, 3), (BOTH, 3)]
)
def test_each_method_takes_the_round_trips_that_are_said_of_it(
    direct: hotcount.Redis, options: dict[str, str], trips: int
) -> None:
    counter = make(direct, options)
    # The first adds: the script's text is known, and the key is there.
    counter.add_many(["k", "k"])
    before = direct.stats()["commands"]
    counter.add("k")
    assert direct.stats()["commands"] - before == trips
