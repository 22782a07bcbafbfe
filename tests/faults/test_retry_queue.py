"""A retry queue beside faults: an add that returned is counted once, in its own life of the key."""

import contextlib
import os
import random
import signal
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.faults.retry_storm import DURABLE, drained, killed_programs
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

TTLS = pytest.mark.parametrize("ttl", [None, 600.0], ids=["immortal", "ttl"])


@TTLS
@pytest.mark.parametrize("direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT], ids=["sent", "answer"])
def test_a_cut_at_any_byte_counts_every_add_once(
    own_redis: RedisServer, proxy: FaultProxy, ttl: float | None, direction: int
) -> None:
    counter = hotcount.Counter(
        hotcount.Redis(proxy.url, timeout=20), ttl=ttl, retry=RetryQueue(), prefix="c"
    )
    numbers = 0
    assert counter.add("k") == 1
    # An EVALSHA of one call is about 300 bytes, its answer about 8.
    cuts = range(0, 330, 11) if direction == CLIENT_TO_SERVER else range(10)
    for done, cut in enumerate(cuts, 2):
        drained(counter)
        proxy.cut_after(cut, direction)
        answer: object = counter.add("k")
        if not isinstance(answer, Queued):
            assert answer == done
            numbers += 1
        proxy.heal()
    drained(counter)
    assert counter.get("k") == len(cuts) + 1
    assert own_redis.redis().execute("GET", "c:k") == b"%d" % (len(cuts) + 1)
    assert counter.retry_stats().replayed == counter.retry_stats().queued > 0


def test_an_add_beyond_max_queue_is_refused(own_redis: RedisServer, proxy: FaultProxy) -> None:
    store = hotcount.Redis(proxy.url, timeout=20, silence_limit=20, max_queue=2)
    counter = hotcount.Counter(store, retry=RetryQueue(), prefix="c")
    counter.add("warm")
    proxy.hold()
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(counter.add, key) for key in ("a", "b")]
        eventually(lambda: own_redis.redis().execute("EXISTS", "c:a", "c:b") == 2)
        with pytest.raises(hotcount.CapacityError, match="2 adds are under way"):
            counter.add("beyond")
        proxy.heal()
        assert [answer.result() for answer in answers] == [1, 1]
    assert counter.get("beyond") == 0


@TTLS
@pytest.mark.parametrize("direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT], ids=["sent", "answer"])
def test_a_batch_is_counted_once(proxy: FaultProxy, ttl: float | None, direction: int) -> None:
    counter = hotcount.Counter(
        hotcount.Redis(proxy.url, timeout=20), ttl=ttl, retry=RetryQueue(), prefix="c"
    )
    keys = [f"k{n % 7}" for n in range(1400)]
    assert counter.add_many(keys)[-1] == 200
    for done, cut in enumerate((1, 400, 5000), 2):
        proxy.cut_after(cut, direction)
        batch = counter.add_many(keys)
        # What comes behind an add that waits, waits as well.
        for key in set(keys):
            waits = [w > 0 for k, w in zip(keys, batch.waiting, strict=True) if k == key]
            assert waits == sorted(waits)
        proxy.heal()
        drained(counter)
        assert counter.get_many([f"k{n}" for n in range(7)]) == [200 * done] * 7
    stats = counter.retry_stats()
    assert stats.replayed == stats.queued > 0


@TTLS
def test_bytes_that_arrive_after_their_add_was_sent_again_count_nothing(
    own_redis: RedisServer, proxy: FaultProxy, ttl: float | None
) -> None:
    slow = hotcount.Counter(
        hotcount.Redis(proxy.url, timeout=0.3), ttl=ttl, retry=RetryQueue(), prefix="c"
    )
    assert slow.add("k") == 1
    for held in range(5):
        proxy.hold(CLIENT_TO_SERVER)
        assert isinstance(slow.add("k", 10), Queued)
        # Others go on.
        assert hotcount.Counter(own_redis.redis(), ttl=ttl, prefix="c").add("k") == 2 + 11 * held
        proxy.heal()
        drained(slow)
        assert slow.get("k") == 2 + 11 * held + 10
    assert slow.retry_stats().replayed == 5


@TTLS
def test_a_paused_server_counts_every_add_once(own_redis: RedisServer, ttl: float | None) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=0.3), ttl=ttl, retry=RetryQueue())
    assert counter.add("k") == 1
    own_redis.send_signal(signal.SIGSTOP)
    for _ in range(200):
        assert isinstance(counter.add("k"), Queued)
    own_redis.send_signal(signal.SIGCONT)
    drained(counter)
    assert counter.get("k") == 201
    assert counter.add("k") == 202


def test_an_add_is_never_counted_in_a_later_life_of_its_key(own_redis: RedisServer) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=0.3), ttl=1, retry=RetryQueue())
    assert counter.add("ends") == 1
    own_redis.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert isinstance(counter.add("ends"), Queued)
    assert isinstance(counter.add("own"), Queued)
    time.sleep(max(0.0, began + 1.7 - time.monotonic()))
    own_redis.send_signal(signal.SIGCONT)
    drained(counter)
    assert counter.retry_stats().expired == 2
    assert (counter.get("ends"), counter.get("own")) == (0, 0)
    assert counter.add("ends") == 1


def test_an_add_to_an_absent_key_begins_its_life(own_redis: RedisServer) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=0.3), ttl=100, retry=RetryQueue())
    counter.get("k")
    own_redis.send_signal(signal.SIGSTOP)
    assert isinstance(counter.add("k"), Queued)
    accepted = time.monotonic()
    time.sleep(1)
    own_redis.send_signal(signal.SIGCONT)
    drained(counter)
    assert counter.get("k") == 1
    left = counter.ttl("k")
    assert left is not None
    assert 0 < left <= 100 - (time.monotonic() - accepted) + 0.1


def test_an_early_add_begins_the_life_earlier(own_redis: RedisServer, proxy: FaultProxy) -> None:
    away = hotcount.Counter(
        hotcount.Redis(proxy.url, timeout=0.3), ttl=100, retry=RetryQueue(), prefix="c"
    )
    here = hotcount.Counter(own_redis.redis(), ttl=100, retry=RetryQueue(), prefix="c")
    away.get("k")
    proxy.hold(CLIENT_TO_SERVER)
    assert isinstance(away.add("k"), Queued)
    accepted = time.monotonic()
    time.sleep(0.5)
    assert here.add("k") == 1
    proxy.heal()
    drained(away)
    assert here.get("k") == 2
    left = here.ttl("k")
    assert left is not None
    assert left <= 100 - (time.monotonic() - accepted) + 0.1


def test_an_add_of_an_ended_life_is_expired(own_redis: RedisServer, proxy: FaultProxy) -> None:
    away = hotcount.Counter(
        hotcount.Redis(proxy.url, timeout=0.2), ttl=1, retry=RetryQueue(), prefix="c"
    )
    here = hotcount.Counter(own_redis.redis(), ttl=1, retry=RetryQueue(), prefix="c")
    away.get("k")
    assert here.add("k") == 1
    proxy.hold(CLIENT_TO_SERVER)
    assert isinstance(away.add("k", 10), Queued)
    eventually(lambda: here.get("k") == 0)
    assert here.add("k") == 1
    proxy.heal()
    drained(away)
    assert away.retry_stats().expired == 1
    assert here.get("k") in (0, 1)


def test_a_server_that_kept_its_data_counts_what_waits_once(tmp_path: Path) -> None:
    with RedisServer(tmp_path, config=DURABLE).started() as server:
        counter = hotcount.Counter(server.redis(timeout=5), retry=RetryQueue())
        for done in range(5):
            assert counter.add("k") == 101 * done + 1
            server.kill()
            for _ in range(100):
                assert isinstance(counter.add("k"), Queued)
            server.start()
            drained(counter)
        assert counter.get("k") == 505


def test_a_user_who_may_not_remember_is_refused_alone(own_redis: RedisServer) -> None:
    admin = own_redis.redis()
    admin.execute("ACL", "SETUSER", "half", "on", ">pw", "+@all", "~count:*", "~{count:ok}*")
    counter = hotcount.Counter(
        hotcount.Redis(own_redis.login("half", "pw"), timeout=0.5), retry=RetryQueue()
    )
    with pytest.raises(hotcount.PermissionDeniedError):
        counter.add("no")
    assert counter.add("ok") == 1
    assert counter.get("no") == 0
    own_redis.send_signal(signal.SIGSTOP)
    for _ in range(3):
        assert isinstance(counter.add("no"), Queued)
        assert isinstance(counter.add("ok"), Queued)
    own_redis.send_signal(signal.SIGCONT)
    eventually(lambda: counter.retry_stats().waiting == 3)
    assert (counter.get("ok"), counter.get("no")) == (4, 0)
    admin.execute("ACL", "SETUSER", "half", "~*")
    drained(counter)
    assert (counter.get("ok"), counter.get("no")) == (4, 3)


def test_a_forked_child_does_not_own_the_file(own_redis: RedisServer, tmp_path: Path) -> None:
    counter = hotcount.Counter(
        own_redis.redis(timeout=0.5), retry=RetryQueue(path=tmp_path / "adds")
    )
    assert counter.add("k") == 1
    assert own_redis._process is not None
    server = own_redis._process.pid
    child = os.fork()
    if child == 0:
        good = counter.add("k") == 2
        os.kill(server, signal.SIGSTOP)  # Popen's own signal is for its parent.
        try:
            counter.add("k")
            good = False
        except hotcount.OutcomeUnknownError as error:
            good = good and "belongs to the process" in str(error)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert isinstance(counter.add("k"), Queued)
    own_redis.send_signal(signal.SIGCONT)
    drained(counter)
    # The child's unknown one may have been counted.
    assert counter.get("k") in (3, 4)


def crc32c(data: bytes | bytearray) -> int:
    total = 0xFFFFFFFF
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0x82F63B78 if total & 1 else 0)
    return ~total & 0xFFFFFFFF


def set_clock_back(path: Path, seconds: float) -> None:
    """Makes the one add of a journal look as if this machine's clock had been ahead."""
    data = path.read_bytes()
    head, body = data[:24], bytearray(data[32:])
    (at,) = struct.unpack_from("<q", body, 25)
    struct.pack_into("<q", body, 25, at + int(seconds * 1e6))
    path.write_bytes(head + struct.pack("<II", len(body), crc32c(body)) + body)


def left_behind(server: RedisServer, path: Path, program: str) -> None:
    """A program that queues adds while Redis is paused, and is killed."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            counter = hotcount.Counter
            names = {"hotcount": hotcount, "Counter": counter, "threading": threading, "time": time}
            assert server._process is not None
            pid = server._process.pid

            def pause() -> None:
                os.kill(pid, signal.SIGSTOP)

            exec(program, {**names, "server": server, "path": path, "pause": pause})
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    server.send_signal(signal.SIGCONT)


def test_adds_in_another_order_are_all_counted(own_redis: RedisServer, tmp_path: Path) -> None:
    # The second is answered before the first: it stands before it in the file.
    left_behind(
        own_redis,
        tmp_path / "adds",
        """
counter = Counter(server.redis(timeout=2), retry=hotcount.RetryQueue(path=path, fsync="off"))
assert counter.add("other") == 1
pause()
comes = threading.Event()
class One:
    def __index__(self):
        comes.set()
        return 1
first = threading.Thread(target=counter.add, args=("k", One()), kwargs={"timeout": 1})
first.start()
comes.wait()
while counter.retry_stats().waiting == 0:
    counter.add("k", 10, timeout=0.05)
first.join()
assert counter.retry_stats().waiting >= 2
counter.add("k", 10_000_000)
""",
    )
    with hotcount.Counter(own_redis.url, retry=RetryQueue(path=tmp_path / "adds")) as counter:
        drained(counter)
        stats = counter.retry_stats()
        assert counter.get("k") == 10_000_001 + 10 * (stats.queued - 2)


TTL_PROGRAM = """
retry = hotcount.RetryQueue(path=path, max_age=60)
counter = Counter(server.redis(timeout=0.3), ttl={ttl}, retry=retry)
assert counter.add("k") == 1
pause()
assert counter.add("k", 10) == hotcount.Queued(1, True)
# Its bytes wait before the paused server, which takes them until the deadline, by two clocks.
time.sleep(0.3)
"""


@pytest.mark.parametrize("off", [-3600, 3600], ids=["ahead", "back"])
def test_an_add_of_a_killed_program_stays_in_its_window_whatever_its_clock_says(
    own_redis: RedisServer, tmp_path: Path, off: float
) -> None:
    left_behind(own_redis, tmp_path / "adds", TTL_PROGRAM.format(ttl=1))
    set_clock_back(tmp_path / "adds", off)
    fired("clock")
    other = hotcount.Counter(own_redis.redis(), ttl=1, retry=RetryQueue())
    eventually(lambda: other.get("k") == 0)
    assert other.add("k") == 1
    with hotcount.Counter(
        own_redis.url, ttl=1, retry=RetryQueue(path=tmp_path / "adds")
    ) as counter:
        drained(counter)
        assert counter.retry_stats().expired == 1
        assert counter.get("k") in (0, 1)


def test_a_journal_keeps_the_ttl_and_the_max_age(own_redis: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "adds"
    left_behind(own_redis, path, TTL_PROGRAM.format(ttl=600))
    # A counter that never expires: the key does.
    with hotcount.Counter(own_redis.url, retry=RetryQueue(path=path)) as counter:
        drained(counter)
        assert counter.get("k") == 11
        assert 0 < (counter.ttl("k") or 0) <= 600
        assert counter.add("immortal") == 1
        assert counter.ttl("immortal") is None
    left_behind(own_redis, path, TTL_PROGRAM.format(ttl=600).replace('"k") == 1', '"k") == 12'))
    # Redis remembers the dead program for the ten minutes and a minute that its max_age was.
    set_clock_back(path, -90)
    with hotcount.Counter(own_redis.url, retry=RetryQueue(path=path, max_age=3600)) as counter:
        drained(counter)
        assert (counter.retry_stats().expired, counter.get("k")) == (1, 12)


def test_a_key_that_was_reset_lives_to_the_end_of_its_life(own_redis: RedisServer) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=0.3), ttl=600, retry=RetryQueue())
    assert counter.add("k", 5) == 5
    before = counter.ttl("k")
    own_redis.send_signal(signal.SIGSTOP)
    assert isinstance(counter.add("k", 10), Queued)
    own_redis.send_signal(signal.SIGCONT)
    drained(counter)
    assert counter.reset("k") == 15
    assert counter.add("k") == 1
    after = counter.ttl("k")
    assert before is not None
    assert after is not None
    assert 0 < after <= before


def storm(folder: Path, seconds: float, outage: float, rate: int, kills: int, seed: int) -> None:
    """Kills Redis and the program at random; the counters must have what returned."""
    draw = random.Random(seed)
    server = RedisServer(folder, config=DURABLE)
    with server.started():
        restarts = [draw.random() < 0.5 for _ in range(kills)]
        least, most = killed_programs(
            *(server, folder, draw, restarts, str(rate), "4"),
            before=(0, seconds / 2),
            away=(outage / 2, outage),
            after=(0, seconds / 4),
        )
        queue = RetryQueue(path=folder / "adds")
        with hotcount.Counter(server.redis(timeout=5), retry=queue) as counter:
            drained(counter, seconds=30 + 2 * outage)
            stats = counter.retry_stats()
            counted = sum(counter.get_many([f"k{n}" for n in range(10)]))
        assert (stats.expired, stats.refused, stats.dropped) == (0, 0, 0)
        print(f"{least} returned, {most - least} more under way, {counted} counted, {stats}")
        assert least <= counted <= most, (seed, stats)


def test_a_killed_program_and_a_killed_server_lose_and_double_nothing(tmp_path: Path) -> None:
    storm(tmp_path, seconds=1, outage=0.5, rate=2000, kills=3, seed=1)


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(30))
def test_an_outage_of_a_minute_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    outage = float(os.environ.get("HOTCOUNT_OUTAGE_SECONDS", "60"))
    storm(tmp_path, seconds=5, outage=outage, rate=2000, kills=2, seed=seed)
