"""After fork every object works in the child, on connections of its own."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import hotcount
import pytest

from tests.support.servers import RedisServer
from tests.support.sqlite_files import STRATEGIES, make_votes
from tests.support.together import beside, in_child, together

# A fork beside running threads is what is tested here, so what Python 3.12 says of it is known.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def test_a_child_has_a_redis_connection_of_its_own(redis_server: RedisServer) -> None:
    redis = hotcount.Redis(redis_server.url, prefix="fork:")
    counter = hotcount.Counter(redis)
    mine = redis.execute("CLIENT", "ID")
    counter.add("k")

    def work() -> tuple[object, int]:
        return redis.execute("CLIENT", "ID"), counter.add("k")

    first, second = in_child(work), in_child(work)
    assert len({mine, first[0], second[0]}) == 3
    assert (first[1], second[1]) == (2, 3)
    # The parent's connection was not closed by children that ended.
    assert redis.execute("CLIENT", "ID") == mine
    assert counter.add("k") == 4


def test_parent_and_child_never_read_each_others_replies(redis_server: RedisServer) -> None:
    redis = hotcount.Redis(redis_server.url, prefix="fork-echo:", timeout=20)

    def echo(who: str) -> bool:
        return all(
            redis.execute("ECHO", f"{who}{number}") == f"{who}{number}".encode()
            for number in range(300)
        )

    redis.ping()
    good: list[bool] = []

    def keep_on(stop: threading.Event) -> None:
        while not stop.is_set():
            good.append(echo("parent"))

    with beside(keep_on):
        # Forked while the thread is in the middle of a command.
        assert all(in_child(lambda: echo("child")) for _ in range(3))
    assert good
    assert all(good)


def test_a_child_has_a_copy_of_a_memory_store() -> None:
    counter = hotcount.Counter("memory://")
    counter.add("k", 5)
    assert in_child(lambda: counter.add("k")) == 6
    assert counter.get("k") == 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_votes_go_on_in_parent_and_child(tmp_path: Path, strategy: str) -> None:
    votes = make_votes(tmp_path / "a.db", strategy)
    votes.cast(1, 1)
    assert in_child(lambda: (votes.cast(1, 2).changed, int(votes.count(1)))) == (True, 2)
    assert votes.cast(1, 3).changed
    assert int(votes.count(1)) == 3
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_children_forked_amid_voting_threads_lose_nothing(tmp_path: Path, strategy: str) -> None:
    votes = make_votes(tmp_path / "a.db", strategy)
    counts = [0] * 4

    def keep_on(stop: threading.Event, index: int) -> None:
        while not stop.is_set():
            counts[index] += votes.cast(1, index + 4 * counts[index]).changed

    def child(first: int) -> int:
        return sum(votes.cast(1, first + k).changed for k in range(5))

    by_children = 0
    with beside(*(partial(keep_on, index=index) for index in range(4))):
        for number in range(4):
            time.sleep(0.02)
            by_children += in_child(partial(child, -10 * number - 10))
            by_children += in_child(lambda: sum(together(child_thread, 4)))
    assert by_children == 20
    assert int(votes.count(1)) == sum(counts) + by_children
    assert votes.reconcile(dry_run=True) == []


def child_thread(_: int) -> int:
    # Threads start in a child of threads: nothing of the parent's locks is left locked.
    with hotcount.Counter("memory://") as counter:
        return counter.add("k") - 1


def test_a_grandchild_works_too(tmp_path: Path) -> None:
    counter = hotcount.SlottedCounter(f"sqlite:///{tmp_path}/a.db")
    counter.create_table()

    def grandchild() -> int:
        counter.add("k")
        return counter.get("k")

    def child() -> int:
        counter.add("k")
        return in_child(grandchild)

    assert in_child(child) == 2
    counter.add("k")
    assert counter.get("k") == 3


def test_a_child_may_close_what_its_parent_goes_on_using(tmp_path: Path) -> None:
    database = hotcount.Database(f"sqlite:///{tmp_path}/a.db")
    counter = hotcount.SlottedCounter(database)
    counter.create_table()
    counter.add("k")

    def child() -> bool:
        counter.add("k")
        database.close()
        return database.closed

    assert in_child(child)
    counter.add("k")
    assert counter.get("k") == 3


def test_stores_may_be_opened_in_a_child_while_the_parent_opens_and_closes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/churn.db"

    def churn(stop: threading.Event) -> None:
        while not stop.is_set():
            hotcount.Database(url).close()
            hotcount.Memory("memory://churn").close()

    def child() -> bool:
        with hotcount.Database(url) as database:
            return database.ping()

    with beside(churn):
        assert all(in_child(child) for _ in range(5))
