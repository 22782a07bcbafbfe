"""Servers and pools that fork: gunicorn with --preload, multiprocessing by every start method.

test_fork.py has what concerns one fork; here whole programs do it as they are used.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support import prefork_app
from tests.support.eventually import eventually
from tests.support.gunicorn_server import WORKERS, Gunicorn, gunicorn
from tests.support.servers import RedisServer, free_port
from tests.support.together import beside, together

pytestmark = [
    pytest.mark.server,
    # Forks beside running threads are what is tested, so what Python 3.12 says of them is known.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

CALLERS = 8
REQUESTS = 240


@pytest.fixture
def tcp_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Over TCP, where each connection has an address of its own."""
    with RedisServer(tmp_path, port=free_port()).started() as server:
        yield server


def tcp_url(server: RedisServer) -> str:
    return f"redis://127.0.0.1:{server.port}"


def connected(server: RedisServer) -> dict[int, str]:
    """Ids and addresses of all clients but the one that asks."""
    with server.redis() as redis:
        mine = redis.execute("CLIENT", "ID")
        lines = redis.execute("CLIENT", "LIST").decode().splitlines()
        fields = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
        return {int(f["id"]): f["addr"] for f in fields if int(f["id"]) != mine}


def served_by(server: RedisServer, folder: Path, *options: str) -> AbstractContextManager[Gunicorn]:
    config = folder / "gunicorn.conf.py"
    config.write_text("from tests.support.prefork_app import on_exit\n")
    options = ("--config", str(config), *options)
    return gunicorn(
        "prefork_app:application", folder, *options, URL=tcp_url(server), FOLDER=str(folder)
    )


def request_until_all_have_served(served: Gunicorn) -> list[dict[str, Any]]:
    """From several threads at once; at least REQUESTS, and more until every worker had some."""
    answers: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60

    def enough() -> bool:
        pids = {answer["pid"] for answer in list(answers)}
        return len(answers) >= REQUESTS and len(pids) == WORKERS

    def work(_: int) -> None:
        while not enough():
            assert time.monotonic() < deadline, "some worker was never asked"
            answers.append(served.get())

    together(work, CALLERS)
    return answers


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="sync"),
        pytest.param(("--worker-class", "gthread", "--threads", "4"), id="gthread"),
    ],
)
def test_gunicorn_workers_share_a_counter_and_no_connection(
    tcp_redis: RedisServer, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with served_by(tcp_redis, tmp_path, *options) as served:
        first = connected(tcp_redis)
        answers = request_until_all_have_served(served)
        during = connected(tcp_redis)
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(30)
        said = served.log.read_text()
    master = json.loads((tmp_path / "master.json").read_text())

    # The application was made once, in the master, and used there.
    assert {answer["imported_in"] for answer in answers} == {master["pid"]}
    pids = {answer["pid"] for answer in answers}
    assert len(pids) == WORKERS
    assert master["pid"] not in pids

    # One connection a worker, whatever its threads, and none of them the master's.
    by_worker: dict[int, set[int]] = {pid: set() for pid in pids}
    for answer in answers:
        by_worker[answer["pid"]].add(answer["client"])
    assert all(len(clients) == 1 for clients in by_worker.values()), by_worker
    of_workers = set().union(*by_worker.values())
    assert len(of_workers) == WORKERS
    assert master["before"] not in of_workers
    assert of_workers | {master["before"]} == set(during)
    assert len(set(during.values())) == WORKERS + 1, during
    if options:
        assert len({(answer["pid"], answer["thread"]) for answer in answers}) > WORKERS

    # The master's outlived its workers.
    assert master["client"] == master["before"]
    assert master["before"] in first

    # Each add was answered with its own value: none twice, none left out. (What answered while the
    # server came up took the first ones.)
    earlier = min(answer["value"] for answer in answers) - 1
    values = sorted(answer["value"] for answer in answers)
    assert values == list(range(earlier + 1, earlier + 1 + len(answers)))
    for answer in answers:
        assert answer["many"][1] == answer["many"][0] + 2
    assert len({answer["many"][1] for answer in answers}) == len(answers)
    with tcp_redis.redis() as redis:
        counter = hotcount.Counter(redis, prefix="prefork")
        assert counter.get("hits") == master["value"] == earlier + len(answers) + 1
        assert counter.get("many") == 3 * (earlier + len(answers))
        assert counter.get("imports") == 1
    # Nobody is connected any more.
    eventually(lambda: connected(tcp_redis) == {})
    assert "Traceback" not in said, said


def test_a_gunicorn_worker_that_is_killed_is_replaced_and_counts_go_on(
    tcp_redis: RedisServer, tmp_path: Path
) -> None:
    with served_by(tcp_redis, tmp_path) as served:
        before = request_until_all_have_served(served)
        victim = before[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        of_victim = before[0]["client"]
        eventually(lambda: of_victim not in connected(tcp_redis))
        after = request_until_all_have_served(served)
    assert victim not in {answer["pid"] for answer in after}
    new = {answer["pid"] for answer in after} - {answer["pid"] for answer in before}
    assert len(new) == 1
    values = [answer["value"] for answer in before + after]
    assert len(set(values)) == len(values)
    assert json.loads((tmp_path / "master.json").read_text())["value"] == max(values) + 1


CHILDREN = 3
THREADS = 4
TIMES = 50
PER_PROCESS = 2 * THREADS * TIMES


def check_all_distinct(values: list[int], processes: int) -> None:
    assert sorted(values) == list(range(1, processes * PER_PROCESS + 1))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_and_parent_add_at_once(tcp_redis: RedisServer, method: Any) -> None:
    context = multiprocessing.get_context(method)
    with hotcount.Redis(tcp_url(tcp_redis), timeout=20) as redis:
        counter = hotcount.Counter(redis, prefix="prefork")
        mine = redis.execute("CLIENT", "ID")
        with context.Pool(CHILDREN, maxtasksperchild=1) as pool:  # Each task has its own.
            started = [
                pool.apply_async(
                    prefork_app.add_over_own_store, (tcp_url(tcp_redis), "k", TIMES, THREADS)
                )
                for _ in range(CHILDREN)
            ]
            values = prefork_app.add_from_threads(counter, "k", TIMES, THREADS)
            answers = [each.get(60) for each in started]
            pool.close()
            pool.join()
        for _, of_child in answers:
            values += of_child
        check_all_distinct(values, CHILDREN + 1)
        assert counter.get("k") == (CHILDREN + 1) * PER_PROCESS
        assert len({mine, *(client for client, _ in answers)}) == CHILDREN + 1
        assert redis.execute("CLIENT", "ID") == mine
        eventually(lambda: set(connected(tcp_redis)) == {mine})


# Inherited by the children of a fork, and by them alone.
inherited: dict[str, hotcount.Counter] = {}


def add_over_inherited(key: str) -> list[int]:
    return prefork_app.add_from_threads(inherited["counter"], key, TIMES, THREADS)


def test_processes_forked_amid_the_adds_of_other_threads_lose_nothing(
    tcp_redis: RedisServer,
) -> None:
    context = multiprocessing.get_context("fork")
    forks = 6
    with hotcount.Redis(tcp_url(tcp_redis), timeout=20) as redis:
        counter = hotcount.Counter(redis, prefix="prefork")
        inherited["counter"] = counter
        by_threads: list[list[int]] = [[] for _ in range(THREADS)]

        def keep_on(stop: threading.Event, values: list[int]) -> None:
            while not stop.is_set():
                values.append(counter.add("k"))

        answers = context.SimpleQueue()
        values: list[int] = []
        with beside(*(partial(keep_on, values=mine) for mine in by_threads)):
            eventually(lambda: all(by_threads))
            for _ in range(forks):
                child = context.Process(target=lambda: answers.put(add_over_inherited("k")))
                child.start()
                values += answers.get()
                child.join(60)
                assert child.exitcode == 0
        assert len(values) == forks * PER_PROCESS
        # What the threads went on with meanwhile was their own.
        for of_thread in by_threads:
            assert of_thread == sorted(of_thread)
            values += of_thread
        assert sorted(values) == list(range(1, len(values) + 1))
        assert counter.get("k") == len(values)
