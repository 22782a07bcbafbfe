"""method='watch' in forced order: what happens between its WATCH and its EXEC.

A proxy holds back the server's answers, so the transaction stands still behind its WATCH while the
test changes the key over another connection.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Upsert

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import BUSY, eventually
from tests.support.servers import RedisServer, calls_of
from tests.support.together import in_child, together

pytestmark = pytest.mark.server


@pytest.fixture
def proxy(own_redis: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(own_redis.socket) as proxy:
        yield proxy


def in_transaction(direct: hotcount.Redis) -> bool:
    """Whether some connection stands between MULTI and EXEC: its WATCH and its looks are done."""
    return b"multi=0" in direct.execute("CLIENT", "LIST")


def upsert_with(
    proxy: FaultProxy,
    direct: hotcount.Redis,
    meanwhile: Callable[[], object],
    **options: Any,
) -> Upsert:
    """An upsert into "k" of a member "late" with the score 9; meanwhile() runs in its middle."""
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        sets = hotcount.LiveSets(redis, method="watch", **options)
        sets.upsert("other", "a", 1)  # Connects: what is held below is the transaction.
        proxy.hold(SERVER_TO_CLIENT)
        answers: list[Upsert] = []
        caller = threading.Thread(target=lambda: answers.append(sets.upsert("k", "late", 9)))
        caller.start()
        eventually(lambda: in_transaction(direct))
        meanwhile()
        proxy.heal()
        caller.join()
        return answers[0]


def test_a_write_between_watch_and_exec_makes_it_try_again(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    sets = hotcount.LiveSets(direct)
    sets.create("k", 60, {"a": 1})
    answer = upsert_with(proxy, direct, lambda: sets.upsert("k", "b", 2))
    assert answer is Upsert.APPLIED
    assert calls_of(direct, "exec") == 2, "the first was aborted"
    assert sets.top("k", 3) == [("late", 9.0), ("b", 2.0), ("a", 1.0)]


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (("DEL", "k"), Upsert.ABSENT),
        (("PEXPIRE", "k", 1), Upsert.ABSENT),
        (("PERSIST", "k"), Upsert.NO_TTL),
        (("PEXPIRE", "k", 5000), Upsert.EXPIRING),
    ],
)
def test_an_upsert_answers_by_the_set_that_is_there_at_exec(
    proxy: FaultProxy, direct: hotcount.Redis, change: Any, answer: Upsert
) -> None:
    sets = hotcount.LiveSets(direct)
    sets.create("k", 60, {"a": 1})

    def meanwhile() -> None:
        assert direct.execute(*change) == 1
        if answer is Upsert.ABSENT:
            eventually(lambda: direct.execute("EXISTS", "k") == 0)

    assert upsert_with(proxy, direct, meanwhile, gate=10) is answer
    assert "late" not in dict(sets.range("k", 0, -1))
    assert (calls_of(direct, "exec"), calls_of(direct, "zadd")) == (1, 1), (
        "only create()'s ZADD ran"
    )


def test_exec_itself_finds_a_set_that_has_expired_in_between(tmp_path: Path) -> None:
    # Nobody deletes it before: the case that went wrong before Redis 6.2.5.
    server = RedisServer(tmp_path, config=("--enable-debug-command", "yes"))
    server.start()
    try:
        with FaultProxy(server.socket) as proxy, server.redis(timeout=20) as direct:
            direct.execute("DEBUG", "SET-ACTIVE-EXPIRE", 0)
            hotcount.LiveSets(direct).create("k", 60, {"a": 1})
            direct.execute("PEXPIRE", "k", 3000)
            waits = threading.Event()
            assert upsert_with(proxy, direct, lambda: waits.wait(3.1)) is Upsert.ABSENT
            assert calls_of(direct, "exec") == 1
            assert direct.execute("EXISTS", "k") == 0
    finally:
        server.stop()


def test_an_upsert_of_a_key_of_another_type_names_the_key(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    sets = hotcount.LiveSets(direct, method="watch")
    direct.execute("HSET", "k", "f", "v")
    for call in (
        lambda: sets.upsert("k", "a", 1),
        lambda: sets.upsert_many([("k", "a", 1)], errors="return").errors[0],
    ):
        try:
            error = call()
        except hotcount.WrongTypeError as raised:
            error = raised
        assert isinstance(error, hotcount.WrongTypeError)
        assert "hash" in str(error)


def test_many_threads_on_one_set_lose_nothing(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=60) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        sets.create("k", 60, {"first": -1})
        answers = together(
            lambda index: [sets.upsert("k", f"m{index}-{i}", index * 20 + i) for i in range(20)]
        )
        assert [answer for mine in answers for answer in mine] == [Upsert.APPLIED] * 640
        assert [score for _, score in sets.range("k", 0, -1)] == list(range(639, -2, -1))
        assert redis.stats()["connects"] <= 9, "the shared connection, and eight for WATCH"


def test_a_set_that_never_stands_still_ends_with_the_deadline(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    hotcount.LiveSets(direct).create("k", 60, {"a": 1})
    scores = itertools.count(2)
    # A ZADD that sets the score that is there already would be no change.
    proxy.before_each(lambda: direct.execute("ZADD", "k", next(scores), "a"))
    with hotcount.Redis(proxy.url, timeout=0.5) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        started = time.monotonic()
        # Unknown where the time was up while an EXEC was under way.
        with pytest.raises((hotcount.DeadlineError, hotcount.OutcomeUnknownError)):
            sets.upsert("k", "late", 9)
        assert time.monotonic() - started <= 0.5 + BUSY
    assert calls_of(direct, "exec") > 1
    assert direct.execute("ZSCORE", "k", "late") is None


def test_callers_beyond_the_connections_wait_and_leave_by_their_deadline(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    hotcount.LiveSets(direct).create("k", 60, {"a": 1})
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        sets.upsert("other", "a", 1)
        proxy.hold(SERVER_TO_CLIENT)
        holders = [
            threading.Thread(target=lambda i=i: sets.upsert("k", f"m{i}", i)) for i in range(8)
        ]
        for holder in holders:
            holder.start()
        # One reused its connection, seven wait for the answer to their HELLO.
        eventually(lambda: proxy.connections == 8)
        with pytest.raises(hotcount.DeadlineError, match="exclusive_connections"):
            sets.upsert("k", "ninth", 9, timeout=0.1)
        proxy.heal()
        for holder in holders:
            holder.join()
        assert sets.upsert("k", "ninth", 9) is Upsert.APPLIED
        assert len(sets.range("k", 0, -1)) == 10


def test_closing_ends_a_transaction_under_way(proxy: FaultProxy, direct: hotcount.Redis) -> None:
    hotcount.LiveSets(direct).create("k", 60, {"a": 1})
    redis = hotcount.Redis(proxy.url, timeout=20)
    sets = hotcount.LiveSets(redis, method="watch")
    sets.upsert("other", "a", 1)
    proxy.hold(SERVER_TO_CLIENT)
    failures: list[BaseException] = []

    def call() -> None:
        try:
            sets.upsert("k", "late", 9)
        except BaseException as failure:
            failures.append(failure)

    caller = threading.Thread(target=call)
    caller.start()
    eventually(lambda: in_transaction(direct))
    redis.close()
    caller.join()
    assert [type(failure) for failure in failures] == [hotcount.ClosedError]
    with pytest.raises(hotcount.ClosedError):
        sets.upsert("k", "late", 9)
    assert direct.execute("ZSCORE", "k", "late") is None


def test_a_forked_child_watches_on_connections_of_its_own(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        sets.create("k", 60, {"a": 1})
        assert sets.upsert("k", "b", 2)

        def work() -> tuple[int, int]:
            answers = together(lambda i: sets.upsert("k", f"child{i}", i), 8)
            return sum(map(bool, answers)), int(redis.stats()["connects"])

        applied, connects = in_child(work)
        assert applied == 8
        assert connects >= 1, "none of its parent's"
        assert sets.upsert("k", "c", 3)
        assert len(sets.range("k", 0, -1)) == 11
