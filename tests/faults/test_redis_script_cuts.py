"""A connection that breaks anywhere in a hundred calls of a script: what was acknowledged is
counted, and nothing else but what the caller was told may be; with an op_id exactly once."""

from collections.abc import Callable

import hotcount
import pytest

from tests.faults.cuts import DIRECTIONS, NOT_APPLIED, UNKNOWN, Outcomes, settle
from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.servers import RedisServer
from tests.support.together import together

# Coprime to the length of a key's part, so that all places of it are met.
EVERY = pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])


def traffic(redis: hotcount.Redis, direction: int, work: Callable[[], object]) -> int:
    """How many bytes work() sends or receives."""
    name = "bytes_sent" if direction == CLIENT_TO_SERVER else "bytes_received"
    before = redis.stats()[name]
    work()
    return int(redis.stats()[name]) - int(before)


@DIRECTIONS
@EVERY
@pytest.mark.timeout(300)
def test_a_batch_of_script_calls_cut_after_any_byte_is_counted_as_its_caller_was_told(
    own_redis: RedisServer, proxy: FaultProxy, direction: int, step: int
) -> None:
    keys = [f"k{number:02}" for number in range(100)]
    outcomes = Outcomes()
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        counter = hotcount.Counter(redis, ttl=600)
        counter.add_many(keys)
        length = traffic(redis, direction, lambda: counter.add_many(keys))
        expected = [2] * len(keys)
        for cut in range(0, length, step):
            redis.ping()
            fired = proxy.fired
            proxy.cut_after(cut, direction)
            batch = counter.add_many(keys, errors="return")
            assert proxy.fired == fired + 1, "void: the cut did not happen"
            values = settle(own_redis, keys)
            outcomes.check(batch, expected, values)
            expected = values
        assert all(0 < redis.execute("PTTL", f"count:{key}") <= 600_000 for key in keys)
    assert outcomes.unknown > 0


@DIRECTIONS
@EVERY
@pytest.mark.timeout(300)
def test_script_calls_of_many_threads_cut_after_any_byte_are_counted_as_they_were_told(
    own_redis: RedisServer, proxy: FaultProxy, direction: int, step: int
) -> None:
    told = {"ok": 0, "unknown": 0, "not applied": 0}
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        counter = hotcount.Counter(redis, ttl=600)

        def work(_: int) -> list[str]:
            mine = []
            for _ in range(5):
                try:
                    counter.add("hot")
                    mine.append("ok")
                except UNKNOWN:
                    mine.append("unknown")
                except NOT_APPLIED:
                    mine.append("not applied")
            return mine

        value = 0
        least = int(traffic(redis, direction, lambda: together(work, 20)) * 0.8)
        (value,) = settle(own_redis, ["hot"])
        for cut in range(0, least, 2 * step):
            redis.ping()
            proxy.cut_after(cut, direction)
            outcomes = [outcome for mine in together(work, 20) for outcome in mine]
            # They may have travelled in fewer bytes this time; then the ping is what is cut.
            proxy.heal()
            (now,) = settle(own_redis, ["hot"])
            ok, unknown = outcomes.count("ok"), outcomes.count("unknown")
            assert ok <= now - value <= ok + unknown, f"cut at {cut}"
            for name in told:
                told[name] += outcomes.count(name)
            value = now
    assert proxy.fired > 0
    assert told["unknown"] > 0
    assert told["ok"] > 0


@DIRECTIONS
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("cuts", [1, 2, 3])
@pytest.mark.timeout(300)
def test_adds_with_op_ids_and_retries_are_counted_exactly(
    own_redis: RedisServer, proxy: FaultProxy, direction: int, step: int, cuts: int
) -> None:
    raised = 0
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        counter = hotcount.Counter(redis)
        keys = ["a", "b", "{c}"]

        def work(index: int) -> tuple[list[int], int]:
            values, mine = [], 0
            for number in range(5):
                op_id = hotcount.new_op_id()
                while True:
                    try:
                        values.append(counter.add(keys[(index + number) % 3], op_id=op_id))
                        break
                    except (UNKNOWN, *NOT_APPLIED):
                        mine += 1
            return values, mine

        least = int(traffic(redis, direction, lambda: together(work, 20)) * 0.8)
        expected = sum(settle(own_redis, keys))
        assert expected == 100
        for cut in range(0, least, 10 * step):
            redis.ping()
            proxy.cut_after(cut, direction, times=cuts)
            results = together(work, 20)
            proxy.heal()
            raised += sum(mine for _, mine in results)
            expected += 100
            assert sum(settle(own_redis, keys)) == expected, f"cut at {cut}"
            answered = [value for values, _ in results for value in values]
            assert len(answered) == 100
    assert proxy.fired > 0
    assert cuts == 1 or raised > 0, "no caller ever had to retry"


def test_an_add_with_an_op_id_whose_answer_is_lost_is_sent_again(
    own_redis: RedisServer, proxy: FaultProxy
) -> None:
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        counter = hotcount.Counter(redis)
        assert counter.add("k", 5, op_id="a") == 5
        proxy.cut_after(0, SERVER_TO_CLIENT)
        assert counter.add("k", 7, op_id="b") == 12
        assert (proxy.fired, proxy.connections) == (1, 2)
        proxy.cut_after(0, SERVER_TO_CLIENT, times=2)
        with pytest.raises(UNKNOWN):
            counter.add("k", 9, op_id="c")
        proxy.heal()
        assert counter.add("k", 9, op_id="c") == 21
    assert settle(own_redis, ["k"]) == [21]
