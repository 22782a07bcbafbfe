"""What a server refuses everybody costs one command for many calls, and what it refuses one key for
is told to that key's callers only."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import hotcount
import pytest
from hotcount import aio

from tests.support.servers import RedisServer

CALLS = 240

Refuse = Callable[[hotcount.Redis], object]

TO_EVERYBODY: dict[str, tuple[Refuse, type[hotcount.HotcountError]]] = {
    "NOREPLICAS": (
        lambda redis: redis.execute("CONFIG", "SET", "min-replicas-to-write", 1),
        hotcount.UnavailableError,
    ),
    "OOM": (lambda redis: redis.execute("CONFIG", "SET", "maxmemory", 1), hotcount.CapacityError),
    "NOPERM of the command": (
        lambda redis: redis.execute("ACL", "SETUSER", "default", "-evalsha", "-incr", "-incrby"),
        hotcount.PermissionDeniedError,
    ),
}


def refused_commands(redis: hotcount.Redis, names: str) -> int:
    """How often the server has refused these commands: evalsha|..."""
    said = redis.execute("INFO", "commandstats").decode()
    counts = re.findall(rf"cmdstat_(?:{names}):.*?rejected_calls=(\d+),failed_calls=(\d+)", said)
    return sum(int(rejected) + int(failed) for rejected, failed in counts)


def commands(redis: hotcount.Redis, names: str) -> int:
    """How many of these the server was asked for, refused or not."""
    said = redis.execute("INFO", "commandstats").decode()
    counts = re.findall(rf"cmdstat_(?:{names}):calls=(\d+),.*?rejected_calls=(\d+)", said)
    return sum(int(calls) + int(rejected) for calls, rejected in counts)


def outcomes_of(
    server: RedisServer, start: Callable[[aio.Redis], Callable[[int], Awaitable[object]]]
) -> list[object]:
    """The results of calls that wait together."""

    async def main() -> list[object]:
        async with aio.Redis(server.url, timeout=20) as redis:
            await redis.ping()
            call = start(redis)
            calls = [call(i) for i in range(CALLS)]
            return list(await asyncio.gather(*calls, return_exceptions=True))

    return asyncio.run(main())


def adding(redis: aio.Redis) -> Callable[[int], Awaitable[object]]:
    counter = aio.Counter(redis)
    return lambda _: counter.add("hot", 2)


def adding_with_a_life(redis: aio.Redis) -> Callable[[int], Awaitable[object]]:
    counter = aio.Counter(redis, ttl=60)
    return lambda i: counter.add(f"key-{i}")


@pytest.mark.parametrize("start", [adding, adding_with_a_life])
@pytest.mark.parametrize("refusal", TO_EVERYBODY)
def test_a_refusal_that_concerns_everybody_is_not_asked_for_again(
    own_redis: RedisServer,
    direct: hotcount.Redis,
    refusal: str,
    start: Callable[[aio.Redis], Callable[[int], Awaitable[object]]],
) -> None:
    outcomes_of(own_redis, start)  # The server knows the script from now on.
    refuse, error = TO_EVERYBODY[refusal]
    refuse(direct)
    names = "incr|incrby" if start is adding else "evalsha"
    before = commands(direct, names)
    outcomes = outcomes_of(own_redis, start)
    assert all(isinstance(outcome, error) for outcome in outcomes), outcomes
    assert commands(direct, names) - before < 20, f"for {CALLS} calls"


def test_one_denied_key_costs_its_caller(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    outcomes_of(own_redis, adding_with_a_life)
    counter = hotcount.Counter(direct, ttl=60)
    keys = [f"key-{i}" for i in range(256)]
    direct.execute("ACL", "SETUSER", "some", "on", ">secret", "+@all", "~count:key-*")
    with hotcount.Redis(own_redis.login("some", "secret"), timeout=20) as redis:
        own = hotcount.Counter(redis, ttl=60)
        before = refused_commands(direct, "evalsha")
        with pytest.raises(hotcount.BatchError) as failure:
            own.add_many([*keys[:100], "denied", *keys[100:255]])
        assert list(failure.value.errors) == [100]
        assert isinstance(failure.value.errors[100], hotcount.PermissionDeniedError)
        assert refused_commands(direct, "evalsha") - before == 3, (
            "the whole, a 16th of it, and the one"
        )
        before = refused_commands(direct, "evalsha")
        with pytest.raises(hotcount.BatchError) as failure:
            own.add_many([f"denied-{i}" for i in range(256)])
        assert len(failure.value.errors) == 256
        assert refused_commands(direct, "evalsha") - before == 1 + 16 + 256
    assert counter.get("key-7") > 0


def test_a_denied_command_is_asked_for_once(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    direct.execute("ACL", "SETUSER", "some", "on", ">secret", "+@all", "~*", "-evalsha", "-eval")
    with hotcount.Redis(own_redis.login("some", "secret"), timeout=20) as redis:
        before = refused_commands(direct, "evalsha")
        with pytest.raises(hotcount.BatchError) as failure:
            hotcount.Counter(redis, ttl=60).add_many([f"key-{i}" for i in range(256)])
        assert len(failure.value.errors) == 256
        assert refused_commands(direct, "evalsha") - before == 1


def test_elements_of_one_key_go_singly(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    direct.execute("SET", "count:text", "no number")
    direct.execute("SET", "count:full", 2**63 - 10)
    with own_redis.redis(timeout=20) as redis:
        counter = hotcount.Counter(redis)
        before = refused_commands(direct, "incr|incrby")
        with pytest.raises(hotcount.BatchError) as failure:
            counter.add_many(["text"] * 50, [2] * 50)
        assert len(failure.value.errors) == 50
        assert refused_commands(direct, "incr|incrby") - before == 1
        with pytest.raises(hotcount.BatchError) as failure:
            counter.add_many(["full"] * 10, [2] * 10)
        assert list(failure.value.errors) == [4, 5, 6, 7, 8, 9]
        assert direct.execute("GET", "count:full") == str(2**63 - 2).encode()
