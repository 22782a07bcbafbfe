"""What logging.getLogger("hotcount") is told of servers that go away, and of full queues."""

import logging
import re
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.commands import output_of, syncing, told_to_stop
from tests.support.eventually import eventually
from tests.support.programs import run_python
from tests.support.resp_server import RespServer
from tests.support.servers import PostgresServer, RedisServer, keys_of
from tests.support.sqlite_files import rows
from tests.support.together import in_thread, in_threads

pytestmark = pytest.mark.server

LARGE = bytes(32 << 20)  # More than the buffers of a socket take.


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "hotcount")

    def lines(level: str, text: str) -> list[str]:
        return [
            each.getMessage()
            for each in list(caplog.records)
            if each.name == "hotcount" and each.levelname == level and text in each.getMessage()
        ]

    return lines


def fails(call: Any) -> bool:
    try:
        call()
    except hotcount.HotcountError:
        return True
    return False


@pytest.mark.parametrize("kind", ["redis", "postgresql"])
def test_an_outage_is_one_warning_and_its_end_one_info(
    kind: str, own_redis: RedisServer, own_postgres: PostgresServer, told: Any
) -> None:
    server: Any = own_redis if kind == "redis" else own_postgres
    store: Any = (
        hotcount.Redis(own_redis.url, timeout=0.3)
        if kind == "redis"
        else hotcount.Database(own_postgres.url(), timeout=3)
    )
    with store:
        store.ping()
        server.stop()
        began = time.monotonic()
        eventually(lambda: fails(store.ping) and told("WARNING", "is not available") != [])
        for _ in range(3):
            fails(store.ping)
        server.start()
        eventually(lambda: not fails(store.ping))
        eventually(lambda: told("INFO", "is available again") != [])
        lasted = time.monotonic() - began
    # Stores that earlier tests left open may log as well.
    warnings = [line for line in told("WARNING", "is not available") if line.startswith(kind)]
    assert len(warnings) == 1, warnings
    ends = told("INFO", "is available again")
    assert len(ends) == 1
    seconds = re.search(r", after (\d+\.\d{3}) s$", ends[0])
    assert seconds is not None
    assert 0 < float(seconds[1]) < lasted + 0.001  # It is rounded to milliseconds.


def test_a_connection_that_was_replaced_is_one_info(own_redis: RedisServer, told: Any) -> None:
    with hotcount.Redis(own_redis.url) as redis, own_redis.redis() as other:
        redis.execute("PING")
        for _ in range(5):
            other.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            redis.execute("PING")
        eventually(lambda: told("INFO", "was connected again") != [])
    assert len(told("INFO", "was connected again")) == 1
    assert told("WARNING", "") == []


def test_a_full_queue_is_one_warning(own_redis: RedisServer, told: Any) -> None:
    with hotcount.Redis(own_redis.url, timeout=0.3, max_queue=1) as redis:
        counter = hotcount.Counter(redis)
        counter.add("a")

        def wait_long(key: int) -> None:
            fails(lambda: redis.execute("SET", f"large:{key}", LARGE, timeout=20))

        # One fills the socket and one is in the queue when the third has no room.
        with own_redis.stopped():
            waited = in_threads(wait_long, range(2))
            eventually(
                lambda: (
                    fails(lambda: counter.add("b", timeout=0.05))
                    and told("WARNING", "has a full queue") != []
                )
            )
        waited()
        eventually(lambda: not fails(lambda: counter.add("a")))
        eventually(lambda: told("INFO", "has room in its queue again") != [])
    assert len(told("WARNING", "has a full queue")) == 1


def test_a_password_is_in_no_line(own_redis: RedisServer, told: Any) -> None:
    own_redis.stop()
    url = own_redis.login("anna", "sesame-4711")
    with hotcount.Redis(url, timeout=0.2) as redis:
        fails(redis.ping)
        eventually(lambda: told("WARNING", "is not available") != [])
    assert told("WARNING", "sesame") == []


def test_a_close_before_the_first_answer_is_no_outage(tmp_path: Path, told: Any) -> None:
    asked = threading.Event()
    with RespServer(lambda number, client, words: asked.set()) as silent:
        store = hotcount.Redis(silent.url, timeout=5)
        called = in_thread(lambda: fails(lambda: store.execute("GET", "k")))
        assert asked.wait(5)
        store.close()
        assert called()
        with hotcount.Redis(f"redis+unix://{tmp_path}/none.sock", timeout=0.05) as none:
            fails(none.ping)  # Lines are logged in their order.
        eventually(lambda: told("WARNING", "none.sock is not available") != [])
        assert told("WARNING", silent.url.removeprefix("redis://")) == []


LAST_LINES = """
import hotcount, logging, os, sys
logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
store = hotcount.Redis(sys.argv[1], timeout=0.05)
if len(sys.argv) > 2:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
try:
    store.ping()
except hotcount.HotcountError:
    print(os.getpid(), flush=True)
"""


@pytest.mark.parametrize("forks", [(), ("fork",)])
def test_a_process_that_ends_logs_what_it_saw(forks: tuple[str, ...], tmp_path: Path) -> None:
    done = run_python("-c", LAST_LINES, f"redis+unix://{tmp_path}/none.sock", *forks)
    assert done.returncode == 0, done.stderr
    pids = done.stdout.split()
    assert len(pids) == 1 + len(forks)
    for pid in pids:
        assert re.search(rf"^{pid} .*none.sock is not available", done.stderr, re.MULTILINE)


SLOW_FILTER = """
import hotcount, logging, sys, time
logging.basicConfig(level=logging.INFO, format="%(message)s")
logging.getLogger("hotcount").addFilter(lambda record: time.sleep(0.3) or True)
store = hotcount.Redis(sys.argv[1], timeout=0.05)
try:
    store.ping()
except hotcount.HotcountError:
    time.sleep(0.1)
"""


def test_the_end_of_the_process_waits_for_a_line_that_is_under_way(tmp_path: Path) -> None:
    done = run_python("-c", SLOW_FILTER, f"redis+unix://{tmp_path}/none.sock")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("is not available") == 1


def test_a_key_is_in_no_line_of_rounds(own_redis: RedisServer, tmp_path: Path, told: Any) -> None:
    url = f"sqlite:///{tmp_path}/views.db"
    with hotcount.WriteBehindCounter(url, own_redis.url) as views, own_redis.redis() as direct:
        views.create_tables()
        views.add("anna@example.org")
        (cell,) = [key for key in keys_of(direct) if b"anna" in key]
        direct.execute("DEL", cell)
        direct.execute("SET", cell, "of another type")
        worker, stop = views.sync_worker(), threading.Event()
        runner = threading.Thread(target=worker.run, args=(stop,))
        runner.start()
        eventually(lambda: told("WARNING", "rounds fail") != [])
        stop.set()
        runner.join()
        assert "anna" in worker.stats()["last_error"]
    assert told("WARNING", "WRONGTYPE") != []
    assert told("WARNING", "anna") == []


HANDLER = """
import hotcount, logging, sys, threading
called = threading.Event()
class Handler(logging.Handler):
    def emit(self, record):
        hotcount.Counter("memory://inside").add("lines")
        called.set()
logging.getLogger("hotcount").addHandler(Handler())
store = hotcount.Redis(sys.argv[1], timeout=0.2)
try:
    store.ping()
except hotcount.HotcountError:
    pass
print(called.wait(20))
"""


def test_a_handler_may_call_hotcount(tmp_path: Path) -> None:
    assert output_of(HANDLER, f"redis+unix://{tmp_path}/none.sock") == "True\n"


@pytest.mark.parametrize("paused", ["nothing", "redis"])
@pytest.mark.parametrize("strategy", ["cached", "write_behind"])
def test_sigterm_ends_a_sync_within_its_time_and_loses_nothing(
    strategy: Any, paused: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    url, items = f"sqlite:///{tmp_path}/votes.db", list(range(1, 101))

    def stored() -> int:
        return int(rows(tmp_path / "votes.db", "SELECT sum(vote_count) FROM item")[0][0])

    with hotcount.Votes(url, own_redis.url, strategy) as votes:
        votes.create_tables()
        votes.add_items(items)
        at = ("--strategy", strategy, "--db", url, "--cache", own_redis.url, "--stop-within", "1")
        # Rounds of many pages, which threads share.
        with syncing(*at, "--page", "1") as (process, line):
            assert "until interrupted" in line()
            votes.cast_many(items, [1] * len(items))
            eventually(lambda: stored() == 100)
            votes.cast(1, 2)
            with own_redis.stopped() if paused == "redis" else nullcontext():
                time.sleep(0.3)  # If Redis is stopped, a round is under way.
                began = time.monotonic()
                told_to_stop(process)
                took = time.monotonic() - began
        assert (process.returncode, took < 5) == (0, True), took
        votes.cast(1, 3)
        # Votes of a round that Redis did not see end go to another worker after 30 s.
        worker = votes.sync_worker()
        eventually(lambda: worker.run_once() is not None and stored() == 102, 60)
