"""What a server keeps of op_ids: no hash grows so large that freeing it stops the server."""

from __future__ import annotations

from collections.abc import Iterator

import hotcount
import pytest

from tests.support.servers import RedisServer

# What stands in counter.hpp.
FULL = 4096
# Twice what the first two hashes hold, and some more.
MANY = 2 * FULL + 5000


@pytest.fixture
def direct(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    with own_redis.redis(timeout=60) as direct:
        yield direct


def add_many(redis: hotcount.Redis, key: str, ids: list[str], keep: float = 3600) -> list[int]:
    """One add for each op_id, a few hundred in a trip."""
    from concurrent.futures import ThreadPoolExecutor

    counter = hotcount.Counter(redis, op_keep=keep)
    with ThreadPoolExecutor(64) as pool:
        return list(pool.map(lambda op_id: counter.add(key, op_id=op_id), ids))


def hashes(direct: hotcount.Redis) -> dict[bytes, int]:
    return {key: direct.execute("HLEN", key) for key in direct.execute("KEYS", "*:ops.*")}


@pytest.mark.parametrize("key", ["k", "{tag}k"])
def test_no_hash_of_op_ids_takes_more_than_its_share(direct: hotcount.Redis, key: str) -> None:
    ids = [f"id:{number}" for number in range(MANY)]
    values = add_many(direct, key, ids)
    assert sorted(values) == list(range(1, MANY + 1))
    held = hashes(direct)
    assert sum(held.values()) == MANY
    assert max(held.values()) <= FULL
    assert len(held) > 1000, "what the first two do not take is spread"
    assert all(direct.execute("PTTL", name) > 3_600_000 / 2 for name in held)
    # All are known, wherever they went.
    assert add_many(direct, key, ids) == values
    assert hotcount.Counter(direct).get(key) == MANY
    assert hashes(direct) == held


def test_hashes_that_were_made_together_do_not_end_together(direct: hotcount.Redis) -> None:
    add_many(direct, "k", [f"id:{number}" for number in range(FULL + 3000)])
    ends = sorted(direct.execute("PTTL", name) for name in hashes(direct) if name.count(b".") == 2)
    assert ends[0] > 3_600_000, "each result is remembered for op_keep"
    assert ends[-1] <= 2 * 3_600_000
    # In each of 20 parts of the half hour that they are spread over, no more than a fifth ends.
    step = (ends[-1] - ends[0]) / 20
    assert step > 60_000
    for part in range(20):
        low = ends[0] + part * step
        assert sum(low <= end <= low + step for end in ends) < len(ends) / 5


def test_an_id_costs_about_what_is_said_of_it(direct: hotcount.Redis) -> None:
    """counter.hpp: about 110 bytes; the marks of a hash that holds few come on top."""
    ids = [hotcount.new_op_id() for _ in range(FULL)]
    add_many(direct, "k", ids)
    used = direct.execute("MEMORY", "USAGE", "{count:k}:ops.0", "SAMPLES", 0)
    assert 60 < used / FULL < 160


def test_a_hash_that_an_older_version_filled_is_read_and_takes_no_more(
    direct: hotcount.Redis,
) -> None:
    name = "{count:k}:ops.0"
    fields = [word for number in range(2 * FULL) for word in (f"old:{number}", "7")]
    direct.execute("HSET", name, *fields, "tried", "")
    direct.execute("PEXPIRE", name, 7_000_000)
    counter = hotcount.Counter(direct, op_keep=3600)
    assert counter.add("k", op_id="old:5") == 7
    assert counter.add("k", op_id="new") == 1
    assert counter.add("k", op_id="new") == 1
    with pytest.raises(hotcount.ConfigError, match="op_id tried has a result of a removed format"):
        counter.add("k", op_id="tried")
    assert counter.add("k", op_id="new") == 1
    assert direct.execute("HLEN", name) == 2 * FULL + 1


def test_the_add_after_a_full_hash_has_expired_begins_anew(direct: hotcount.Redis) -> None:
    counter = hotcount.Counter(direct, op_keep=3600)
    add_many(direct, "k", [f"id:{number}" for number in range(FULL + 10)])
    # As time would: what is left of their lives is less than an op_id is remembered for.
    for name in hashes(direct):
        direct.execute("PEXPIRE", name, 3_000_000)
    before = counter.get("k")
    assert counter.add("k", op_id="later") == before + 1
    assert direct.execute("HEXISTS", "{count:k}:ops.1", "later") == 1
    # The ids from before are known until they expire.
    assert counter.add("k", op_id=f"id:{FULL + 5}") <= before
    assert counter.get("k") == before + 1
