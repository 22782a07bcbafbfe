"""The ways of description 4 to count under a key with a TTL, each with its holes forced.

A hole that a test here no longer finds means that a way has been mended: it is then no longer the
one it is named after. hotcount.Counter stands beside them and has none.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import pytest
import redis
from hotcount import Redis

from notebooks import ways
from tests.support.gate import Gate
from tests.support.servers import RedisServer

KEY = "count:k"
TTL = 300
IMMORTAL = -1

Way = Callable[..., int]
INCR: Way = ways.incr
NONE: Way = partial(ways.set_nx_incr, first=False, ttl=False)
FIRST: Way = partial(ways.set_nx_incr, ttl=False)
TTL_ONLY: Way = partial(ways.set_nx_incr, first=False)
BOTH: Way = ways.set_nx_incr
NAMES = {
    id(INCR): "incr",
    id(NONE): "none",
    id(FIRST): "first",
    id(TTL_ONLY): "ttl",
    id(BOTH): "both",
}


def each(*chosen: Way) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", chosen, ids=lambda way: NAMES[id(way)])


@pytest.fixture
def gate(own_redis: RedisServer, tmp_path: Path) -> Iterator[Gate]:
    with Gate(own_redis.socket, tmp_path / "gate.sock") as gate:
        yield gate


def script(store: hotcount.Redis) -> hotcount.Counter:
    return hotcount.Counter(store, ttl=TTL)


def ttl_ms(direct: hotcount.Redis) -> int:
    """Milliseconds; -1 where the key never expires."""
    return int(direct.execute("PTTL", KEY))


def in_two_halves(
    gate: Gate, add: Callable[[], int], word: str, between: Callable[[], object]
) -> Any:
    """What an add comes to that stops before the command `word` while `between` happens."""
    with ThreadPoolExecutor(1) as pool:
        gate.hold(word)
        call = pool.submit(add)
        gate.wait()
        between()
        gate.open()
        return call.exception() or call.result()


def add_in_two_halves(
    gate: Gate, way: Way, word: str, between: Callable[[], object], **login: str
) -> Any:
    with redis.Redis(unix_socket_path=str(gate.path), socket_timeout=60, **login) as client:
        client.ping()
        return in_two_halves(gate, partial(way, client, KEY, TTL * 1000), word, between)


def expire(direct: hotcount.Redis) -> None:
    """The key expires now."""
    direct.execute("PEXPIRE", KEY, 1)
    while direct.execute("EXISTS", KEY):
        pass


# A user who may not PEXPIRE stands for a caller that dies before it does.
DYING = {"username": "dying", "password": "pw"}


def make_dying(direct: hotcount.Redis) -> None:
    direct.execute("ACL", "SETUSER", "dying", "on", ">pw", "~*", "&*", "+@all", "-pexpire")


def test_set_nx_makes_immortal_keys(gate: Gate, direct: hotcount.Redis, plain: redis.Redis) -> None:
    script(direct).add("k", 5)
    assert add_in_two_halves(gate, NONE, "INCR", lambda: expire(direct)) == 1
    assert ttl_ms(direct) == IMMORTAL
    # And so it stays, whoever comes.
    assert NONE(plain, KEY, TTL * 1000) == 2
    assert ttl_ms(direct) == IMMORTAL


@each(FIRST, TTL_ONLY, BOTH)
def test_a_compensation_heals_a_live_caller(gate: Gate, direct: hotcount.Redis, way: Way) -> None:
    script(direct).add("k", 5)
    assert add_in_two_halves(gate, way, "INCR", lambda: expire(direct)) == 1
    assert 0 < ttl_ms(direct) <= TTL * 1000


def test_the_first_compensation_is_blind(gate: Gate, direct: Redis, plain: redis.Redis) -> None:
    script(direct).add("k", 5)

    def expire_and_be_overtaken() -> None:
        expire(direct)
        # Another such caller, whose INCR came first and who dies before its PEXPIRE.
        assert direct.execute("INCRBY", KEY, 1) == 1

    assert add_in_two_halves(gate, FIRST, "INCR", expire_and_be_overtaken) == 2
    assert ttl_ms(direct) == IMMORTAL
    assert FIRST(plain, KEY, TTL * 1000) == 3
    assert ttl_ms(direct) == IMMORTAL
    # The other compensation, and the script, see it at the next add.
    assert TTL_ONLY(plain, KEY, TTL * 1000) == 4
    assert 0 < ttl_ms(direct) <= TTL * 1000


@each(FIRST, TTL_ONLY, BOTH)
def test_no_compensation_of_a_dead_caller(gate: Gate, direct: hotcount.Redis, way: Way) -> None:
    script(direct).add("k", 5)
    make_dying(direct)
    end = add_in_two_halves(gate, way, "INCR", lambda: expire(direct), **DYING)
    assert isinstance(end, redis.exceptions.NoPermissionError)
    # It was counted, and is an error: made again, it counts twice.
    assert (direct.execute("GET", KEY), ttl_ms(direct)) == (b"1", IMMORTAL)


def test_incr_leaves_no_expiry(own_redis: RedisServer, direct: Redis, plain: redis.Redis) -> None:
    make_dying(direct)
    with (
        redis.Redis(unix_socket_path=str(own_redis.socket), **DYING) as dying,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        INCR(dying, KEY, TTL * 1000)
    assert ttl_ms(direct) == IMMORTAL
    # Nobody is the first again.
    assert INCR(plain, KEY, TTL * 1000) == 2
    assert ttl_ms(direct) == IMMORTAL


@each(INCR, FIRST, BOTH)
def test_a_late_expire_starts_the_ttl_anew(gate: Gate, direct: hotcount.Redis, way: Way) -> None:
    def time_passes() -> None:
        direct.execute("PEXPIRE", KEY, TTL * 1000 // 2)

    assert add_in_two_halves(gate, way, "PEXPIRE", time_passes) == 1
    assert ttl_ms(direct) > TTL * 1000 * 3 // 4


def test_a_late_expire_extends_the_ttl_of_the_next_key(gate: Gate, direct: hotcount.Redis) -> None:
    def another_key_is_made() -> None:
        direct.execute("DEL", KEY)
        direct.execute("SET", KEY, 7, "PX", TTL * 1000 // 2)

    assert add_in_two_halves(gate, BOTH, "PEXPIRE", another_key_is_made) == 1
    assert ttl_ms(direct) > TTL * 1000 * 3 // 4


def test_the_script_gives_the_new_key_its_ttl(gate: Gate, direct: hotcount.Redis) -> None:
    script(direct).add("k", 5)
    with hotcount.Redis(gate.url(), timeout=60) as store:
        store.ping()
        add = partial(script(store).add, "k")
        assert in_two_halves(gate, add, "EVAL", lambda: expire(direct)) == 1
    assert 0 < ttl_ms(direct) <= TTL * 1000


def test_the_script_counts_nothing_it_may_not_expire(gate: Gate, direct: hotcount.Redis) -> None:
    make_dying(direct)
    with hotcount.Redis(gate.url("dying", "pw")) as store:
        counter = script(store)
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
        script(direct).add("k")
    assert (direct.execute("GET", KEY), ttl_ms(direct)) == (b"no number", IMMORTAL)
