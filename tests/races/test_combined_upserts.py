"""Single upserts that travel together: each has its own status, fails alone, keeps its order."""

import asyncio
from collections import Counter as Tally

import hotcount
from hotcount import Redis, aio

from tests.support.servers import RedisServer, calls_of
from tests.support.together import flushing_scripts, together

THREADS = 64
ROUNDS = 40


def test_upserts_of_many_threads_travel_together(own_redis: RedisServer, direct: Redis) -> None:
    direct.execute("RPUSH", "list", "x")
    direct.execute("ZADD", "leak", 1, "x")
    with own_redis.redis(timeout=20) as redis:
        sets = hotcount.LiveSets(redis)
        sets.create("a", 600, {"first": 0})
        sets.create("{b}", 600, {"first": 0})
        sets.upsert("a", "old", 9, version=9)
        before = calls_of(direct, "evalsha")
        expected = {
            ("a", None): "APPLIED",
            ("{b}", None): "APPLIED",
            ("gone", None): "ABSENT",
            ("leak", None): "NO_TTL",
            ("a", 8): "STALE",
            ("list", None): "WrongTypeError",
        }
        kinds = list(expected)

        def work(index: int) -> Tally[tuple[tuple[str, int | None], str]]:
            ends: Tally[tuple[tuple[str, int | None], str]] = Tally()
            for number in range(ROUNDS):
                key, version = kind = kinds[(index + number) % len(kinds)]
                member = "old" if version else f"{index}:{number}"
                try:
                    end = str(sets.upsert(key, member, number, version=version))
                except hotcount.HotcountError as error:
                    end = type(error).__name__
                ends[kind, end] += 1
            return ends

        ends = sum(together(work, THREADS), Tally())
        assert dict(list(ends)) == expected
        assert len(ends) == len(expected), ends
        assert redis.stats()["combined"] > 0
        assert calls_of(direct, "evalsha") - before < THREADS * ROUNDS
        for key in ("a", "{b}"):
            applied = sum(
                n for ((name, version), _), n in ends.items() if (name, version) == (key, None)
            )
            assert len(sets.range(key, 0, -1)) == applied + 1 + (key == "a")
    assert direct.execute("EXISTS", "gone") == 0
    assert direct.execute("LRANGE", "list", 0, -1) == [b"x"]


def test_upserts_of_a_turn_keep_their_order(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    async def main() -> None:
        async with aio.LiveSets(own_redis.url, gate=0) as sets:
            await sets.create("k", 600, {"first": 0})
            await sets.upsert("k", "m", -1)
            before = calls_of(direct, "evalsha")
            states = await asyncio.gather(*(sets.upsert("k", "m", n) for n in range(300)))
            assert [str(state) for state in states] == ["APPLIED"] * 300
            # 64 in a call, because each declares two keys; alone they would be 301.
            assert calls_of(direct, "evalsha") - before <= 8
            assert await sets.top("k", 1) == [("m", 299.0)]

    asyncio.run(main())


def test_an_upsert_with_a_denied_key_fails(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    direct.execute("ACL", "SETUSER", "u", "on", ">p", "+@all", "~*k*", "resetchannels")
    direct_sets = hotcount.LiveSets(direct)
    for key in ("no", "k0", "k1", "k2", "k3"):
        direct_sets.create(key, 600, {"first": 0})
    with hotcount.Redis(own_redis.login("u", "p"), timeout=20) as redis:
        sets = hotcount.LiveSets(redis)

        def work(index: int) -> Tally[str]:
            ends: Tally[str] = Tally()
            for number in range(ROUNDS):
                key = "no" if (index + number) % 16 == 0 else f"k{(index + number) % 4}"
                try:
                    assert sets.upsert(key, f"{index}:{number}", 1)
                    ends[f"{key} ok"] += 1
                except hotcount.PermissionDeniedError:
                    ends[f"{key} denied"] += 1
            return ends

        ends = sum(together(work, THREADS), Tally())
        assert redis.stats()["combined"] > 0
    assert ends["no denied"] == THREADS * ROUNDS // 16
    assert set(ends) == {"no denied", "k0 ok", "k1 ok", "k2 ok", "k3 ok"}
    for number in range(4):
        assert len(direct_sets.range(f"k{number}", 0, -1)) == ends[f"k{number} ok"] + 1


def test_upserts_survive_flushed_scripts(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    with own_redis.redis(timeout=20) as redis, flushing_scripts(direct) as flushes:
        sets = hotcount.LiveSets(redis)
        sets.create("k", 600, {"first": 0})

        def work(index: int) -> int:
            done = 0
            while flushes() < 3:
                assert sets.upsert("k", str(index), done)
                done += 1
            return done - 1

        last = together(work, 16)
        scores = {str(member): score for member, score in sets.range("k", 0, -1)}
    assert scores == {"first": 0.0, **{str(index): float(n) for index, n in enumerate(last)}}
