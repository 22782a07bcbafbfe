"""An add with an op_id and its record are one step: where one is refused the other is not made."""

import itertools
from pathlib import Path

import hotcount
import pytest
from hotcount import Redis

from tests.support.resp_server import ScriptedServer
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

# What the script of op_ids calls, with a life and without.
USED = ["PTTL", "HGET", "HSET", "HDEL", "INCRBY", "PEXPIRE", "SET", "TIME", "GET"]


def stand(direct: hotcount.Redis) -> dict[bytes, object]:
    """What counts: values, and the results that are remembered."""
    found: dict[bytes, object] = {}
    for key in direct.execute("KEYS", "*"):
        if direct.execute("TYPE", key) == b"hash":
            fields = direct.execute("HGETALL", key)
            pairs = (
                fields.items()
                if isinstance(fields, dict)
                else zip(fields[::2], fields[1::2], strict=True)
            )
            for op_id, result in pairs:
                if result != b"":
                    found[key + b" " + op_id] = result
        else:
            found[key] = direct.execute("GET", key)
    return found


@pytest.mark.parametrize("denied", USED)
@pytest.mark.parametrize("also", ["", "HDEL"], ids=["", "and HDEL"])
@pytest.mark.parametrize("ttl", [None, 600])
@pytest.mark.parametrize("value", [None, 3, 2**60])
def test_a_user_who_may_not_do_all_of_it_does_none_of_it(
    own_redis: RedisServer,
    direct: hotcount.Redis,
    denied: str,
    also: str,
    ttl: float | None,
    value: int | None,
) -> None:
    if value is not None:
        hotcount.Counter(direct, ttl=ttl).add("k", value)
    rules = [f"-{command}" for command in {denied, also} - {""}]
    direct.execute("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", *rules)
    op_id = hotcount.new_op_id()
    before = stand(direct)
    with hotcount.Redis(own_redis.login("u", "p"), timeout=20) as redis:
        counter = hotcount.Counter(redis, ttl=ttl)
        refused = False
        try:
            counter.add("k", 2, op_id=op_id)
        except hotcount.PermissionDeniedError:
            refused = True
        if refused:
            assert stand(direct) == before
            if ttl is not None and value is not None:
                assert direct.execute("PTTL", "count:k") > 0
            direct.execute("ACL", "SETUSER", "u", "+@all")
            assert counter.add("k", 2, op_id=op_id) == (value or 0) + 2, "it was not counted"
        assert counter.add("k", 2, op_id=op_id) == (value or 0) + 2
    assert int(direct.execute("GET", "count:k")) == (value or 0) + 2


def test_a_companion_of_another_type_lets_none_in(own_redis: RedisServer, direct: Redis) -> None:
    direct.execute("ACL", "SETUSER", "u", "on", ">p", "+@all", "~count:*")
    with hotcount.Redis(own_redis.login("u", "p"), timeout=20) as redis:
        with pytest.raises(hotcount.PermissionDeniedError):
            hotcount.Counter(redis).add("k", op_id="a")
        assert hotcount.Counter(redis).add("k") == 1, "without an op_id it needs none"
    for number in (0, 1):
        direct.execute("SET", f"{{count:x{number}}}:ops.{number}", "of somebody else")
        with pytest.raises(hotcount.WrongTypeError):
            hotcount.Counter(direct).add(f"x{number}", op_id="a")
        assert direct.execute("EXISTS", f"count:x{number}") == 0


def test_a_counter_of_another_type_is_not_remembered(direct: hotcount.Redis) -> None:
    direct.execute("RPUSH", "count:list", "x")
    direct.execute("SET", "count:word", "seven")
    for ttl in (None, 600):
        counter = hotcount.Counter(direct, ttl=ttl)
        for key in ("list", "word"):
            with pytest.raises(hotcount.WrongTypeError):
                counter.add(key, op_id="a")
    assert sorted(direct.execute("KEYS", "*")) == [b"count:list", b"count:word"]


def test_a_server_that_is_out_of_memory_remembers_nothing(direct: hotcount.Redis) -> None:
    counter = hotcount.Counter(direct)
    assert counter.add("k", 5, op_id="a") == 5
    direct.execute("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(hotcount.CapacityError):
        counter.add("k", 7, op_id="b")
    with pytest.raises(hotcount.CapacityError):
        counter.add("new", 7, op_id="b")
    assert counter.add("k", 5, op_id="a") == 5, "looking it up takes no memory"
    direct.execute("CONFIG", "SET", "maxmemory", 0)
    assert counter.get("k") == 5
    assert direct.execute("EXISTS", "count:new", "{count:new}:ops.0") == 0
    assert counter.add("k", 7, op_id="b") == 12


def test_what_is_remembered_has_an_expiry(direct: hotcount.Redis) -> None:
    counter = hotcount.Counter(direct, op_keep=60)
    for number in range(50):
        counter.add("k", op_id=f"{number}")
        counter.add("{tag}:k", op_id=f"{number}")
    for name in (b"{count:k}:ops.0", b"count:{tag}:k:ops.0t"):
        assert direct.execute("HLEN", name) == 50
        assert 60_000 < direct.execute("PTTL", name) <= 120_000
    assert len(direct.execute("KEYS", "*")) == 4


@pytest.mark.parametrize("key", ["a}b{", "{}a", "{a"])
def test_a_key_without_a_second_name_takes_no_op_id(direct: hotcount.Redis, key: str) -> None:
    counter = hotcount.Counter(direct)
    with pytest.raises(hotcount.ConfigError, match="hash tag"):
        counter.add(key, op_id="a")
    assert counter.add(key) == 1


def test_a_companion_that_lost_its_expiry_gets_another(direct: hotcount.Redis) -> None:
    counter = hotcount.Counter(direct, op_keep=60)
    counter.add("k", op_id="a")
    direct.execute("PERSIST", "{count:k}:ops.0")
    assert counter.add("k", op_id="b") == 2
    assert direct.execute("PTTL", "{count:k}:ops.0") > 0
    assert counter.add("k", op_id="a") == 1
    assert counter.add("k", op_id="b") == 2


def test_a_refusal_of_what_was_sent_again_says_nothing_of_the_first_time(tmp_path: Path) -> None:
    refusal = b"-READONLY You can't write against a read only replica.\r\n"
    answers = itertools.chain([b"*-9\r\n"], itertools.repeat(refusal))
    with ScriptedServer(tmp_path, lambda command: next(answers)) as server:
        counter = hotcount.Counter(hotcount.Redis(server.url, timeout=0.5))
        with pytest.raises(hotcount.OutcomeUnknownError, match="READONLY"):
            counter.add("k", op_id="a")
        counter.close()
