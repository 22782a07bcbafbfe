"""A PeriodCounter whose adds wait while Redis does not answer: what each call says of it."""

import asyncio
import pathlib
from datetime import datetime, timedelta, timezone

import hotcount
import pytest
from hotcount import Queued, RetryQueue, aio

from tests.support.eventually import eventually
from tests.support.resp_server import ScriptedServer
from tests.support.servers import RedisServer

UTC = timezone.utc
DAY = timedelta(days=1)
INT64_MAX = 2**63 - 1
pytestmark = pytest.mark.server


def test_while_redis_answers_an_add_is_its_periods_value(own_redis: RedisServer) -> None:
    redis = own_redis.redis(timeout=20)
    counter = hotcount.PeriodCounter(redis, keep=10, retry=RetryQueue())
    now = datetime.now(UTC)
    ago = now - 3 * DAY
    assert [counter.add("k", at=ago), counter.add("k", 4, ago), counter.add("k", -2, ago)] == [
        *(1, 5, 3)
    ]
    assert counter.add("k") == 1
    assert counter.series("k", ago, now + DAY)[0][1] == 3
    # Its keys are those of a counter without a queue, and they end when it says.
    plain = hotcount.PeriodCounter(redis, keep=10)
    assert plain.add("k", at=ago) == 4
    day = f"period:day:UTC:{ago:%Y-%m-%d}:k"
    (ends,) = [redis.execute("EXPIRETIME", day)]
    assert ends == (ago.replace(hour=0, minute=0, second=0, microsecond=0) + 10 * DAY).timestamp()
    longer = hotcount.PeriodCounter(redis, keep=20, retry=RetryQueue())
    assert [longer.add("k", at=ago), counter.add("k", at=ago)] == [5, 6]
    assert redis.execute("EXPIRETIME", day) == ends + 10 * DAY.total_seconds()
    redis.execute("PERSIST", day)
    assert counter.add("k", at=ago) == 7
    assert redis.execute("EXPIRETIME", day) == ends
    assert counter.retry_stats().queued == 0


def test_what_is_refused_leaves_nothing_behind(own_redis: RedisServer) -> None:
    redis = own_redis.redis(timeout=20)
    counter = hotcount.PeriodCounter(redis, keep=2, retry=RetryQueue())
    now = datetime.now(UTC)
    with pytest.raises(hotcount.ConfigError, match=r"not kept any more \(keep is 2\)"):
        counter.add("k", at=now - 3 * DAY)
    with pytest.raises(hotcount.ConfigError, match="100 years ahead"):
        counter.add("k", at=now + 37_000 * DAY)
    with pytest.raises(hotcount.ConfigError, match="naive"):
        counter.add("k", at=datetime(2026, 1, 1))
    with pytest.raises(hotcount.ConfigError, match="brace"):
        counter.add("a}b")
    assert redis.execute("KEYS", "*") == []
    later = now + DAY
    assert counter.add("k", INT64_MAX, at=later) == INT64_MAX
    with pytest.raises(hotcount.CounterOverflowError):
        counter.add("k", at=later)
    redis.execute("LPUSH", f"period:day:UTC:{later:%Y-%m-%d}:list", "x")
    with pytest.raises(hotcount.WrongTypeError):
        counter.add("list", at=later)
    assert counter.get("k", at=later) == INT64_MAX


def test_adds_wait_while_redis_is_away_and_are_counted_once(own_redis: RedisServer) -> None:
    redis = own_redis.redis(timeout=1)
    counter = hotcount.PeriodCounter(redis, "month", keep=2, retry=RetryQueue())
    start = datetime.now(UTC)
    assert counter.add("k") == 1
    own_redis.kill()
    answers: list[object] = [counter.add("k", n) for n in range(1, 6)]
    assert answers == [Queued(waiting=n, durable=False) for n in range(1, 6)]
    assert isinstance(counter.add("k", 100, at=start - 100 * DAY), Queued)
    assert isinstance(counter.add("k", 100, at=start + 37_000 * DAY), Queued)
    own_redis.start()
    eventually(lambda: counter.retry_stats().waiting == 0)
    stats = counter.retry_stats()
    assert (stats.replayed, stats.expired, stats.refused, stats.outages) == (5, 1, 1, 1)
    # The server kept nothing. A month's end may have come in between.
    counts = counter.series("k", start, datetime.now(UTC) + timedelta(seconds=1))
    assert sum(count for _, count in counts) == 15
    for key in redis.execute("KEYS", "*"):
        assert redis.execute("PTTL", key) > 0


async def test_an_event_loop_gets_the_same(own_redis: RedisServer) -> None:
    at = datetime.now(UTC)
    async with aio.PeriodCounter(own_redis.url, retry=RetryQueue()) as counter:
        answers = await asyncio.gather(*(counter.add("k", at=at) for _ in range(50)))
        assert set(answers) == set(range(1, 51))
        with pytest.raises(hotcount.ConfigError, match="not kept"):
            await counter.add("k", at=at - 1000 * DAY)
        own_redis.kill()
        waiting: list[object] = list(
            await asyncio.gather(*(counter.add(f"k{n % 7}", at=at) for n in range(500)))
        )
        assert all(isinstance(answer, Queued) for answer in waiting)
        own_redis.start()
        for _ in range(2000):
            if counter.retry_stats().waiting == 0:
                break
            await asyncio.sleep(0.01)
        assert sum([await counter.get(f"k{n}", at=at) for n in range(7)]) == 500


def test_a_file_serves_both_counters(own_redis: RedisServer, tmp_path: pathlib.Path) -> None:
    queue = RetryQueue(path=tmp_path / "adds")
    at = datetime.now(UTC)
    days = hotcount.PeriodCounter(own_redis.redis(timeout=1), retry=queue)
    own_redis.kill()
    assert days.add("k", 5, at=at) == Queued(1, True)
    with pytest.warns(RuntimeWarning, match="1 adds still wait: they stay in"):
        days.close()
    plain = hotcount.Counter(own_redis.redis(timeout=1), retry=queue)
    assert plain.add("k", 7) == Queued(2, True)
    with pytest.warns(RuntimeWarning, match="2 adds still wait"):
        plain.close()
    own_redis.start()
    with hotcount.PeriodCounter(own_redis.url, retry=queue) as again:
        eventually(lambda: again.retry_stats().waiting == 0)
        assert again.get("k", at=at) == 5
        assert hotcount.Counter(own_redis.redis()).get("k") == 7
        assert again.retry_stats().replayed == 2


def test_the_present_is_the_servers(tmp_path: pathlib.Path) -> None:
    there = datetime.now(UTC) + 40 * DAY
    now = int(there.timestamp())
    answers = True

    def answer(command: list[bytes]) -> bytes:
        if not answers:
            return b"-LOADING not yet\r\n"
        if command[0] == b"TIME":
            return b"*2\r\n$%d\r\n%d\r\n$1\r\n0\r\n" % (len(str(now)), now)
        begins, ends, _ = command[8].split()
        if command[9] == b"present" and not int(begins) <= now < int(ends):
            word = b"elsewhere %d" % now
            return b"*1\r\n$%d\r\n%s\r\n" % (len(word), word)
        return b"*1\r\n:%s\r\n" % command[6]

    with ScriptedServer(tmp_path, answer) as server:
        store = hotcount.Redis(server.url, timeout=2)
        counter = hotcount.PeriodCounter(store, "day", "Asia/Tokyo", retry=RetryQueue())
        assert [counter.add("k", 3), counter.add("k", 4)] == [3, 4]
        answers = False
        assert isinstance(counter.add("k", 5, timeout=0.3), Queued)
        answers = True
        eventually(lambda: counter.retry_stats().replayed == 1)
        sent = [command for command in server.commands if command[0] == b"EVALSHA"]
    day = there.astimezone(timezone(timedelta(hours=9))).strftime("%Y-%m-%d")
    # The first went by this machine's clock, and was not added; all others by the server's.
    names = [command[3].decode() for command in sent]
    assert names[0] != names[1]
    assert set(names[1:]) == {f"period:day:Asia/Tokyo:{day}:k"}
    assert [int(command[6]) for command in sent[:3]] == [3, 3, 4]
    assert sent[-1][6:10] == [b"5", sent[-1][7], sent[2][8], b"waits"]
