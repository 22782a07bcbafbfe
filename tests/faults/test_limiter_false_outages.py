"""What a limiter with on_error must not take for an outage, and what it must not do in one."""

import asyncio
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.servers import RedisServer


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hotcount")


def pause(server: RedisServer) -> None:
    server.send_signal(signal.SIGSTOP)


def go_on(server: RedisServer) -> None:
    server.send_signal(signal.SIGCONT)


def test_a_hasty_caller_is_alone(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    with own_redis.redis(timeout=20) as store:
        hurried = hotcount.Limiter(store, "9/day", name="hurried", on_error="open")
        patient = hotcount.Limiter(store, "9/day", name="patient", on_error="open")
        assert patient.hit("k").reason == "allowed"
        pause(own_redis)
        try:
            assert hurried.hit("k", timeout=0.01).reason == "open"
        finally:
            go_on(own_redis)
        assert patient.hit("k").reason == "allowed"
        assert patient.hit("k").remaining == 6
    assert caplog.messages == []


def test_outages_are_found_at_all(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    with own_redis.redis(timeout=0.3) as store:
        limiter = hotcount.Limiter(store, "1000000/day", on_error="open")
        limiter.hit("k")
        pause(own_redis)
        try:
            began = time.monotonic()
            while not caplog.messages:
                assert limiter.hit("k", timeout=0.01).reason == "open"
                assert time.monotonic() < began + 20
            assert time.monotonic() >= began + 0.3
        finally:
            go_on(own_redis)
        eventually(lambda: limiter.hit("k").reason == "allowed")


STOPPED = """
import logging, sys, time
import hotcount

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
store = hotcount.Redis(sys.argv[1], timeout=0.2)
limiter = hotcount.Limiter(store, "1000000000/day", on_error="open")
limiter.hit("k")
print("ready", flush=True)
ends = time.monotonic() + 4
while time.monotonic() < ends:
    limiter.hit("k")
"""


def test_a_process_that_was_stopped_begins_no_outage(own_redis: RedisServer) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", STOPPED, own_redis.url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        for _ in range(3):
            time.sleep(0.2)
            program.send_signal(signal.SIGSTOP)
            time.sleep(0.7)
            program.send_signal(signal.SIGCONT)
        assert program.communicate(timeout=30)[0] == ""
    finally:
        program.kill()
        program.wait()


def test_a_call_that_is_late_is_not_sent(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    async def main() -> BaseException | None:
        async with aio.Redis(own_redis.url, timeout=0.1) as store:
            limiter = aio.Limiter(store, "9/day")
            await limiter.hit("other")
            call = asyncio.ensure_future(limiter.hit("k"))
            time.sleep(0.3)  # Some other task keeps the loop.
            (error,) = await asyncio.gather(call, return_exceptions=True)
            return error if isinstance(error, BaseException) else None

    error = asyncio.run(main())
    assert isinstance(error, hotcount.DeadlineError), error
    assert direct.execute("KEYS", "*:k") == []


def test_probes_of_outages_are_1_s_apart(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    direct.ping()
    with own_redis.redis(timeout=0.05) as store:
        limiter = hotcount.Limiter(store, "1000000/day", on_error="open")
        limiter.hit("k")
        began = time.monotonic()
        for _ in range(3):
            pause(own_redis)
            while limiter.hit("k").reason != "open":
                pass
            limiter.hit("k")  # Sends a probe if one is due.
            go_on(own_redis)
            eventually(lambda: limiter.hit("k").reason == "allowed")
        seconds = time.monotonic() - began
    asked = direct.execute("INFO", "COMMANDSTATS").partition(b"cmdstat_setrange:calls=")[2]
    assert 1 <= int(asked.partition(b",")[0]) <= seconds + 1


async def hits_until(limiter: Any, end: Callable[[], bool]) -> None:
    while not end():
        await limiter.hit("k")


def test_a_task_that_only_hits_leaves_the_loop_its_turns(own_redis: RedisServer) -> None:
    async def main() -> str:
        async with aio.Redis(own_redis.url, timeout=0.2) as store:
            limiter = aio.Limiter(store, "1000000000/day", on_error="open")
            await limiter.hit("k")
            pause(own_redis)
            stopped_at = time.monotonic()
            # Ends only if another task has its turns, and the probe's answer is read.
            back = asyncio.Event()

            async def mend() -> None:
                await asyncio.sleep(0.5)
                go_on(own_redis)
                while (await limiter.hit("k")).reason != "allowed":
                    await asyncio.sleep(0.01)
                back.set()

            mending = asyncio.create_task(mend())
            await hits_until(limiter, lambda: back.is_set() or time.monotonic() > stopped_at + 20)
            went = "back" if back.is_set() else "starved"
            mending.cancel()
            return went

    try:
        assert asyncio.run(main()) == "back"
    finally:
        go_on(own_redis)


def test_a_task_that_asks_for_denied_keys_leaves_its_turns(own_redis: RedisServer) -> None:
    async def main() -> bool:
        async with aio.Redis(own_redis.url) as store:
            limiter = aio.Limiter(store, "1/day", deny_cache=10)
            await limiter.hit("k")
            await limiter.hit("k")
            turned = asyncio.Event()
            asyncio.get_running_loop().call_soon(turned.set)
            for _ in range(1000):
                await limiter.hit("k")
            return turned.is_set()

    assert asyncio.run(main())


def test_what_local_does_not_count_is_said_to_be_untracked(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=0.2) as store:
        limiter = hotcount.Limiter(store, "1/day", on_error="local")
        limiter.hit("k")
        own_redis.kill()
        assert limiter.hit("k0").reason == "local"
        reasons = {decision.reason for decision in limiter.hit_many([f"k{i}" for i in range(10)])}
        assert reasons == {"local"}
        for start in range(0, 80_000, 10_000):
            limiter.hit_many([f"more{start + i}" for i in range(10_000)])
        last = [f"last{i}" for i in range(20_000)]
        with pytest.warns(RuntimeWarning, match="is away, and on_error='local' counts as many"):
            decisions = limiter.hit_many(last)
        assert (decisions[-1].allowed, decisions[-1].reason) == (True, "untracked")
