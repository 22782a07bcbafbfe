"""A connection that breaks anywhere: what was acknowledged is there, and nothing else but what the
caller was told may be."""

import contextlib
import threading
import time

import hotcount
import pytest

from tests.faults.cuts import DIRECTIONS, NOT_APPLIED, UNKNOWN, Outcomes, settle
from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import BUSY, eventually
from tests.support.servers import RedisServer
from tests.support.together import together


def pipeline_bytes(keys: list[str]) -> int:
    """How long the commands of one add to each key are."""
    return sum(
        len(b"*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n" % (len(full), full))
        for full in (f"count:{key}".encode() for key in keys)
    )


# Five is coprime to the length of a command, so that all places of it are met.
@DIRECTIONS
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.timeout(300)
def test_a_pipeline_cut_after_any_byte_is_counted_as_its_callers_were_told(
    own_redis: RedisServer, proxy: FaultProxy, direction: int, step: int
) -> None:
    keys = [f"k{number:02}" for number in range(100)]
    # Answers are ":N\r\n", one digit more from the tenth round on; 4 bytes each is enough to cover
    # every position of the pipeline.
    length = pipeline_bytes(keys) if direction == CLIENT_TO_SERVER else 4 * len(keys)
    expected = [0] * len(keys)
    outcomes = Outcomes()
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        counter = hotcount.Counter(redis)
        for cut in range(0, length, step):
            redis.ping()
            fired = proxy.fired
            proxy.cut_after(cut, direction)
            batch = counter.add_many(keys, errors="return")
            assert proxy.fired == fired + 1, "void: the cut did not happen"
            values = settle(own_redis, keys)
            outcomes.check(batch, expected, values)
            expected = values
    # All of a small pipeline is in the kernel's hands before the cut, so nothing is "not applied";
    # where answers are cut, those before the cut arrived.
    assert outcomes.unknown > 0
    assert direction == CLIENT_TO_SERVER or outcomes.ok > 0


def test_calls_that_were_never_sent_are_told(own_redis: RedisServer, proxy: FaultProxy) -> None:
    # More than socket buffers hold, towards a server that reads none of it.
    keys = [f"k{number:06}" + "x" * 900 for number in range(20_000)]
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        counter = hotcount.Counter(redis)
        redis.ping()
        proxy.cut_after(1_000_000, CLIENT_TO_SERVER)
        batch = counter.add_many(keys, errors="return")
    assert proxy.fired == 1
    values = settle(own_redis, keys)
    told = {"not applied": 0, "unknown": 0}
    for index, value in enumerate(values):
        error = batch.errors.get(index)
        if isinstance(error, UNKNOWN):
            told["unknown"] += 1
        elif error is not None:
            # Later portions of the batch went to a new connection and were counted.
            assert value == 0
            told["not applied"] += 1
        else:
            assert value == 1
    assert told["unknown"] > 0


def test_resets_under_load_leave_the_value_between_acknowledged_and_acknowledged_plus_unknown(
    own_redis: RedisServer, proxy: FaultProxy
) -> None:
    stop = threading.Event()

    def breaker() -> None:
        while not stop.wait(0.01):
            proxy.reset_after(500, CLIENT_TO_SERVER)

    with hotcount.Redis(proxy.url, timeout=5) as redis:
        counter = hotcount.Counter(redis)
        breaking = threading.Thread(target=breaker)
        breaking.start()

        def work(_: int) -> tuple[list[int], int]:
            values, unknown = [], 0
            for _ in range(200):
                try:
                    values.append(counter.add("hot"))
                except UNKNOWN:
                    unknown += 1
                except NOT_APPLIED:
                    pass
            return values, unknown

        results = together(work, 16)
        stop.set()
        breaking.join()
    values = [value for mine, _ in results for value in mine]
    unknown = sum(lost for _, lost in results)
    assert proxy.fired > 0
    assert len(set(values)) == len(values), "two callers were given one value"
    (value,) = settle(own_redis, ["hot"])
    assert len(values) <= value <= len(values) + unknown


def test_a_black_hole_costs_a_call_its_deadline(own_redis: RedisServer, proxy: FaultProxy) -> None:
    with hotcount.Redis(proxy.url, timeout=0.3, silence_limit=0.5) as redis:
        counter = hotcount.Counter(redis)
        assert counter.add("k") == 1
        proxy.black_hole(SERVER_TO_CLIENT)
        started = time.monotonic()
        with pytest.raises(UNKNOWN):
            counter.add("k")
        took = time.monotonic() - started
        assert 0.29 <= took <= 0.3 + BUSY
        with pytest.raises(hotcount.DeadlineError):
            counter.get("k")  # Reading applies nothing, so it is never unknown.
        assert proxy.fired > 0
        proxy.heal()

        def answered() -> bool:
            with contextlib.suppress(hotcount.UnavailableError, hotcount.DeadlineError):
                assert counter.add("k") == 3
                return True
            return False

        eventually(answered)  # On a new connection: the old one never answers.
        assert proxy.connections > 1


@pytest.mark.parametrize("size", [1, 7])
def test_replies_in_slices(own_redis: RedisServer, proxy: FaultProxy, size: int) -> None:
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        counter = hotcount.Counter(redis)
        redis.ping()
        proxy.slices(size)
        keys = [f"k{number}" for number in range(50)]
        assert list(counter.add_many(keys)) == [1] * 50
        redis.execute("SET", "big", "x" * 2000)
        assert redis.execute("GET", "big") == b"x" * 2000


def test_a_late_reply_is_given_to_nobody(own_redis: RedisServer, proxy: FaultProxy) -> None:
    with hotcount.Redis(proxy.url, timeout=5) as redis:
        redis.execute("SET", "a", "answer a")
        redis.execute("SET", "b", "answer b")
        proxy.delay(0.1)
        with pytest.raises(hotcount.DeadlineError):
            redis.execute("GET", "a", timeout=0.05)
        assert redis.execute("GET", "b") == b"answer b"
        assert proxy.connections == 1, "on the same connection"


def test_a_read_is_sent_once_more(own_redis: RedisServer, proxy: FaultProxy) -> None:
    with hotcount.Redis(proxy.url, timeout=5) as redis:
        counter = hotcount.Counter(redis)
        counter.add("k", 7)
        proxy.cut_after(0, SERVER_TO_CLIENT)
        assert counter.get("k") == 7
        assert (proxy.fired, proxy.connections) == (1, 2)
        proxy.cut_after(0, SERVER_TO_CLIENT)
        with pytest.raises(UNKNOWN):
            counter.add("k")
        assert counter.get("k") == 8, "an add is not sent again: it was applied once"
        assert (proxy.fired, proxy.connections) == (2, 3)


def test_a_read_is_given_up_the_second_time(own_redis: RedisServer, proxy: FaultProxy) -> None:
    with hotcount.Redis(proxy.url, timeout=5) as redis:
        redis.execute("SET", "big", "x" * 100_000)
        proxy.cut_after(50_000, SERVER_TO_CLIENT, times=2)
        with pytest.raises(hotcount.UnavailableError):
            redis.execute("GET", "big")
        assert (proxy.fired, proxy.connections) == (2, 2)
        assert redis.execute("STRLEN", "big") == 100_000
