"""The systems of the five descriptions as their authors wrote them, over redis-py.

They are unsafe and not in the library. The notebooks measure them, and tests/races forces the hole
of each. hotcount-load has them as strategies of the same names.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import redis

# -- description 2: rate limiters, "a maximum of ten requests per second" -----------------------
#
# Each returns whether the call is admitted. As the page has it, the check is "greater than".


def per_second_key(client: redis.Redis, ip: str, limit: int = 10) -> bool:
    """WRONG: a key for each second of the caller's clock; it admits one more, and who races."""
    keyname = f"{ip}:{int(time.time())}"
    current = client.get(keyname)
    if current is not None and int(current) > limit:
        return False
    pipe = client.pipeline()
    pipe.incr(keyname, 1)
    pipe.expire(keyname, 10)
    pipe.execute()
    return True


def racy_incr(client: redis.Redis, ip: str, limit: int = 10, seconds: int = 1) -> bool:
    """WRONG: a caller that dies before EXPIRE leaves a key that denies for ever."""
    current = client.get(ip)
    if current is not None and int(current) > limit:
        return False
    if client.incr(ip) == 1:
        client.expire(ip, seconds)
    return True


INCR_EXPIRE = """
local current
current = redis.call("incr",KEYS[1])
if tonumber(current) == 1 then
    redis.call("expire",KEYS[1],ARGV[1])
end
"""


def incr_expire(client: redis.Redis, ip: str, limit: int = 10, seconds: int = 1) -> bool:
    """WRONG: the check stays outside of the script, and a key without an expiry never gets one."""
    current = client.get(ip)
    if current is not None and int(current) > limit:
        return False
    client.register_script(INCR_EXPIRE)(keys=[ip], args=[seconds])
    return True


def racy_list(
    client: redis.Redis, ip: str, limit: int = 10, seconds: int = 1, who: str | None = None
) -> bool:
    """WRONG: whoever pushes after the list has expired is admitted and not counted."""
    caller = ip if who is None else who
    if client.llen(ip) > limit:
        return False
    if not client.exists(ip):
        pipe = client.pipeline()
        pipe.rpush(ip, caller)
        pipe.expire(ip, seconds)
        pipe.execute()
    else:
        client.rpushx(ip, caller)
    return True


# The same list with the check and the push in one step: it has no hole.
LIST = """
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
if redis.call('RPUSH', KEYS[1], ARGV[3]) == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return 1
"""


def list_(client: redis.Redis, ip: str, limit: int = 10, seconds: int = 1) -> bool:
    return bool(client.register_script(LIST)(keys=[ip], args=[limit, seconds, ip]))


# -- description 4: a counter whose key expires ------------------------------------------------


def incr(client: redis.Redis, key: str, ttl_ms: int) -> int:
    """RACY: a caller that dies before PEXPIRE leaves a key that never expires."""
    result = int(client.incr(key))
    if result == 1:
        client.pexpire(key, ttl_ms)
    return result


def set_nx_incr(
    client: redis.Redis, key: str, ttl_ms: int, first: bool = True, ttl: bool = True
) -> int:
    """RACY: the key expires after SET found it, and INCR makes one that never does.

    The compensations: `first` expires the key again after a result of 1, `ttl` if it has no TTL.
    """
    client.set(key, "0", nx=True, px=ttl_ms)
    result = int(client.incr(key))
    if first and result == 1:
        client.pexpire(key, ttl_ms)
    if ttl and client.pttl(key) == -1:
        client.pexpire(key, ttl_ms)
    return result


ADD_AND_EXPIRE = """
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
    return 1
end
local value = redis.call('INCR', KEYS[1])
if redis.call('PTTL', KEYS[1]) == -1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return value
"""


def add_by_script(client: redis.Redis, key: str, ttl_ms: int) -> int:
    """The add and the expiry in one step, as in hotcount.Counter: it has no hole."""
    return int(client.register_script(ADD_AND_EXPIRE)(keys=[key], args=[ttl_ms]))


def add_one(client: redis.Redis, key: str, ttl_ms: int, queue: list[str]) -> int:
    """HOLE: an add that was counted before its error is counted again from the queue."""
    result = 1
    try:
        result = set_nx_incr(client, key, ttl_ms)
    except redis.RedisError:
        queue.append(key)
    return result


# -- description 5: a ZADD into a sorted set that exists ---------------------------------------


def exists_then_add(client: redis.Redis, key: str, member: str, score: float) -> bool:
    """RACY: a set that expires between the two commands is made again, without a TTL."""
    if client.exists(key):
        client.zadd(key, {member: score})
        return True
    return False


def exists_then_add_many(
    client: redis.Redis, keys: Sequence[str], member: str, score: float
) -> list[bool]:
    """The same for many sets in two round trips."""
    looks = client.pipeline(transaction=False)
    for key in keys:
        looks.exists(key)
    exist = [bool(found) for found in looks.execute()]
    adds = client.pipeline(transaction=False)
    for key, exists in zip(keys, exist):
        if exists:
            adds.zadd(key, {member: score})
    adds.execute()
    return exist


def unguarded_pipeline(client: redis.Redis, key: str, member: str, score: float) -> bool:
    """WRONG: the ZADD goes out whatever EXISTS answers."""
    pipe = client.pipeline()
    pipe.exists(key)
    pipe.zadd(key, {member: score})
    result = pipe.execute()
    return bool(result[0])


def watch(client: redis.Redis, key: str, member: str, score: float) -> bool:
    """EXEC is refused if the set has changed since WATCH; expiry counts from Redis 6.2.5 on."""
    with client.pipeline() as pipe:
        while True:
            try:
                pipe.watch(key)
                if not pipe.exists(key):
                    return False
                pipe.multi()
                pipe.zadd(key, {member: score})
                pipe.execute()
                return True
            except redis.WatchError:
                continue


def ttl_gate(
    client: redis.Redis, key: str, member: str, score: float, gate_ms: int = 10_000
) -> bool:
    """HOLE: a stall between the two commands that is longer than the gate, or a DEL."""
    if client.pttl(key) > gate_ms:
        client.zadd(key, {member: score})
        return True
    return False


CHECK_AND_SET = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
return 1
"""


def script(client: redis.Redis, key: str, member: str, score: float) -> bool:
    """The check and the ZADD in one step: the author had it, and did not want Lua."""
    return bool(client.register_script(CHECK_AND_SET)(keys=[key], args=[score, member]))
