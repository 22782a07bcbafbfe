"""Reservations over Redis: lost replies, forgotten scripts, expiries, remembered denials."""

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.reserving_program import RATE
from tests.support.servers import RedisServer
from tests.support.together import together

TEN = "10/300 days"
LONG = 3600.0


def test_a_reserve_whose_reply_is_lost(proxy: FaultProxy, direct: hotcount.Redis) -> None:
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        limiter = hotcount.Limiter(redis, TEN)
        looks = hotcount.Limiter(direct, TEN)
        limiter.hit("other")  # The script is there.
        proxy.cut_after(0, SERVER_TO_CLIENT)
        reserved = limiter.reserve("k", 4, lease=LONG)
        assert proxy.fired == 1
        assert looks.peek("k").remaining == 6
        proxy.cut_after(0, SERVER_TO_CLIENT)
        with pytest.raises(hotcount.OutcomeUnknownError):
            reserved.commit(1)
        assert looks.peek("k").remaining == 9, "taken once"
        again = limiter.reserve("k", 4, lease=LONG)
        proxy.cut_after(0, SERVER_TO_CLIENT)
        again.cancel()
        assert proxy.fired == 3
        assert looks.peek("k").remaining == 9


def test_a_commit_with_an_op_id_whose_reply_was_lost_is_taken_once(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        limiter = hotcount.Limiter(redis, TEN)
        looks = hotcount.Limiter(direct, TEN)
        reserved = limiter.reserve("k", 4, lease=LONG)
        limiter.reserve("other", 1).commit(op_id="the script is there")
        proxy.cut_after(0, SERVER_TO_CLIENT)
        assert reserved.commit(3, op_id="order:7").remaining == 7
        again = limiter.reserve("k", 4, lease=LONG)
        proxy.cut_after(0, SERVER_TO_CLIENT, times=2)
        with pytest.raises(hotcount.OutcomeUnknownError):
            again.commit(2, op_id="order:8")
        assert proxy.fired == 3
        assert again.commit(2, op_id="order:8").remaining == 5
        assert looks.peek("k").remaining == 5


def test_a_reserve_of_unknown_outcome_holds_nothing(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    with hotcount.Redis(proxy.url, timeout=1, silence_limit=0.5) as redis:
        limiter = hotcount.Limiter(redis, TEN)
        limiter.hit("other")
        proxy.cut_after(0, SERVER_TO_CLIENT, times=2)
        with pytest.raises(hotcount.OutcomeUnknownError):
            limiter.reserve("k", 4, lease=LONG)
        looks = hotcount.Limiter(direct, TEN)
        eventually(lambda: looks.peek("k").remaining == 10)


def test_who_gets_no_answer_leaves_nothing_held(proxy: FaultProxy, direct: hotcount.Redis) -> None:
    timeout = 1.0
    with hotcount.Redis(proxy.url, timeout=timeout, silence_limit=20) as redis:
        limiter = hotcount.Limiter(redis, TEN)
        places = hotcount.ConcurrencyLimit(redis, 1, lease=LONG)
        limiter.hit("other")
        places.acquire("other")
        proxy.hold()
        calls: list[Callable[[], object]] = [
            lambda: limiter.reserve("k", 4, lease=LONG),
            lambda: places.acquire("k"),
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises(hotcount.OutcomeUnknownError):
                call()
            # Twice that would be a second wait, for the end of what may be held.
            assert time.monotonic() - began < 1.8 * timeout
        proxy.heal()
        looks = hotcount.Limiter(direct, TEN)
        eventually(lambda: looks.peek("k").remaining == 10)
        eventually(lambda: direct.execute("EXISTS", "concurrency:default:k") == 0)


def test_in_a_loop_nothing_is_said_of_lost_calls(own_redis: RedisServer) -> None:
    said: list[Any] = []
    with FaultProxy(own_redis.socket) as proxy:

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, told: said.append(told))
            async with aio.Redis(proxy.url, timeout=0.2, silence_limit=20) as redis:
                limiter = aio.Limiter(redis, TEN)
                places = aio.ConcurrencyLimit(redis, 1, lease=LONG)
                assert await limiter.hit("other")
                assert await places.acquire("other")
                proxy.hold()
                for opening in (limiter.reserve("k", 4, lease=LONG), places.acquire("k")):
                    with pytest.raises(hotcount.OutcomeUnknownError):
                        await opening
                # Those that follow them have failed, too.
                with pytest.raises(hotcount.HotcountError):
                    await limiter.hit("k", timeout=0.5)
                gc.collect()
                await asyncio.sleep(0)
                proxy.heal()

        asyncio.run(main())
        gc.collect()
        with own_redis.redis(timeout=20) as direct:
            looks = hotcount.Limiter(direct, TEN)
            eventually(lambda: looks.peek("k").remaining >= 9)
            eventually(lambda: direct.execute("EXISTS", "concurrency:default:k") == 0)
    assert said == []


@pytest.mark.parametrize("policy", ["raise", "closed"])
def test_no_caller_leaves_a_hold(
    proxy: FaultProxy, direct: hotcount.Redis, policy: hotcount.limiter.OnError
) -> None:
    with hotcount.Redis(proxy.url, timeout=0.2, silence_limit=20) as redis:
        limiter = hotcount.Limiter(redis, TEN, on_error=policy)
        places = hotcount.ConcurrencyLimit(redis, 10, lease=LONG)
        assert limiter.hit("other", timeout=20)
        assert places.acquire("other").release(timeout=20)
        proxy.hold()

        def work(_: int) -> None:
            for call in (lambda: limiter.reserve("k", 1, lease=LONG), lambda: places.acquire("k")):
                with suppress(hotcount.HotcountError):
                    call()

        together(work, 8)
        # Longer than any of the calls had: what follows them has not been taken in yet.
        time.sleep(0.4)
        proxy.heal()
        looks = hotcount.Limiter(direct, TEN)
        eventually(lambda: looks.peek("k").remaining == 10)
        eventually(lambda: direct.execute("EXISTS", "concurrency:default:k") == 0)


@pytest.mark.parametrize("algorithm", ["gcra", "fixed_window", "sliding_window"])
def test_scripts_are_sent_again(
    own_redis: RedisServer, algorithm: hotcount.limiter.Algorithm
) -> None:
    with own_redis.redis() as redis:
        limiter = hotcount.Limiter(redis, "10/minute", algorithm=algorithm)

        def left() -> float:
            (key,) = redis.execute("KEYS", "*")
            return float(redis.execute("PTTL", key)) / 1000

        redis.execute("SCRIPT", "FLUSH")
        reserved = limiter.reserve("k", 4, lease=LONG)
        assert LONG - 60 < left() <= LONG
        assert limiter.hit("k")
        assert LONG - 60 < left() <= LONG, "a hit does not cut it off"
        (key,) = redis.execute("KEYS", "*")
        redis.execute("PERSIST", key)
        assert not limiter.hit("k", 9)
        assert LONG - 60 < left() <= LONG, "given back by a refusal"
        redis.execute("SCRIPT", "FLUSH")
        assert reserved.commit(2).remaining in (7, 10)  # 10: another window has begun.
        assert 0 < left() <= 120
        limiter.reset("k")
        limiter.reserve("k", 4, lease=LONG).cancel()
        eventually(lambda: redis.execute("KEYS", "*") == [])


def test_a_denial_that_is_remembered_ends_with_a_reservation(own_redis: RedisServer) -> None:
    with own_redis.redis() as redis:
        limiter = hotcount.Limiter(redis, TEN, deny_cache=10)
        reserved = limiter.reserve("k", 8, lease=LONG)
        assert not limiter.hit("k", 3)
        assert reserved.commit(1)
        assert limiter.hit("k", 3)
        second = limiter.reserve("k", 6, lease=LONG)
        assert not limiter.hit("k")
        second.cancel()
        assert limiter.hit("k")


def test_a_key_of_another_type_is_named_and_kept(own_redis: RedisServer) -> None:
    with own_redis.redis() as redis:
        limiter = hotcount.Limiter(redis, TEN)
        for value in (b"!0,1 2|!", b"mine", b"!0,1 9999999999999999 a|mine"):
            redis.execute("SET", "limit:default:gcra:10/300_days:k", value, "EX", "60")
            for call in (lambda: limiter.reserve("k", 1), lambda: limiter._commit("k", "a", 1)):
                with pytest.raises(hotcount.WrongTypeError):
                    call()


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["gcra", "token_bucket", "fixed_window", "sliding_window"])
def test_processes_that_reserve_and_hit_agree(own_redis: RedisServer, algorithm: Any) -> None:
    command = [sys.executable, "-m", "tests.support.reserving_program", own_redis.url, algorithm]
    with own_redis.redis(timeout=20) as direct:
        programs = [
            subprocess.Popen([*command, "3", str(seed)], stdout=subprocess.PIPE, text=True)
            for seed in range(4)
        ]
        while any(program.poll() is None for program in programs):
            direct.execute("SCRIPT", "FLUSH")
            time.sleep(0.1)
        counted = sum(int(program.communicate()[0]) for program in programs)
        assert all(program.returncode == 0 for program in programs)
        looks = hotcount.Limiter(direct, RATE, algorithm=algorithm)
        assert counted > 0
        # What was held and forgotten is free again when its lease has ended.
        eventually(lambda: looks.peek("k").remaining == 1000 - counted)


def test_what_a_killed_program_reserved_is_free_when_its_lease_ends(own_redis: RedisServer) -> None:
    reserves = (
        "import sys, hotcount; limiter = hotcount.Limiter(sys.argv[1], '10/300 days');"
        "print(bool(limiter.reserve('k', 7, lease=1)), flush=True); sys.stdin.read()"
    )
    with (
        own_redis.redis(timeout=20) as direct,
        subprocess.Popen(
            [sys.executable, "-c", reserves, own_redis.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None
        assert program.stdout.readline() == "True\n"
        program.kill()
        program.wait()
        looks = hotcount.Limiter(direct, TEN)
        eventually(lambda: looks.peek("k").remaining == 10)
        assert looks.hit("k", 10)
