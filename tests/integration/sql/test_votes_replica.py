"""Reads from a replica (read_url): what it answers, how old that may be, and what happens where it
is away, behind, or none of this database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator

import hotcount
import hotcount.aio
import pytest

from tests.support.eventually import eventually
from tests.support.replicas import (
    MAKERS,
    Replicated,
    await_primary,
    await_replica,
    check_age,
    open_votes,
)
from tests.support.together import beside, in_child

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def pairs() -> Iterator[dict[str, Replicated]]:
    """One pair of each kind for all tests, made when the first asks for it."""
    made: dict[str, Replicated] = {}
    try:
        yield made
    finally:
        for pair in made.values():
            pair.remove()


@pytest.fixture(params=list(MAKERS))
def pair(request: pytest.FixtureRequest, pairs: dict[str, Replicated]) -> Replicated:
    """A primary and its replica, with an empty database."""
    name = str(request.param)
    if name not in pairs:
        pairs[name] = MAKERS[name]()
    pairs[name].create_database()
    return pairs[name]


def test_a_count_of_the_replica_says_so_and_how_old_it_is(strategy: str, pair: Replicated) -> None:
    began = time.time()
    with open_votes(pair, strategy) as votes:
        count = await_replica(votes)
        assert (count.exact, count.source, count.pending) == (False, "replica", 0)
        assert began < count.as_of <= time.time()
        many = votes.count_many([1, 2, 99])
        assert list(many.value) == [1, 0, 0]
        assert {each.source for each in many} == {"replica"}
        exact = votes.count(1, consistency="exact")
        assert (exact.exact, exact.source) == (True, "sql")
        stats = votes.stats()
        assert stats["replica_reads"] >= 2
        assert (stats["replica_error"], stats["replica_lag_s"] < 30) == ("", True)
        assert not votes.contract().exact
        assert "30000 ms (read_max_lag)" in votes.contract().may_lose


def test_what_a_replica_answers_lacks_no_vote_from_before_its_time(pair: Replicated) -> None:
    """Beside a voter, on a replica that stops and goes on."""
    acknowledged: list[float] = [0.0]  # When the vote of that number was.

    def vote(over: threading.Event) -> None:
        for user in range(1, 200_000):
            if over.is_set():
                return
            votes.cast(2, user)
            acknowledged.append(time.time())

    with open_votes(pair, read_max_lag=1.0) as votes:
        await_replica(votes)
        answers = 0
        with beside(vote):
            for _ in range(2):
                with pair.applying_stopped():
                    until = time.monotonic() + 0.3
                    while time.monotonic() < until:
                        answers += check_age(votes.count(2), acknowledged)
                for _ in range(50):
                    answers += check_age(votes.count(2), acknowledged)
    assert answers > 20


def test_a_count_does_not_age_while_nobody_votes(pair: Replicated) -> None:
    with open_votes(pair, read_max_lag=0.4) as votes:
        first = await_replica(votes).as_of
        eventually(lambda: await_replica(votes).as_of > first + 0.6)


def replica_error(votes: hotcount.Votes) -> str:
    return str(votes.stats()["replica_error"])


def test_a_replica_that_is_behind_is_passed_over_until_it_has_caught_up(
    pair: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    with open_votes(pair, read_max_lag=0.5) as votes:
        await_replica(votes)
        caplog.clear()  # It may not have had the tables yet.
        with pair.applying_stopped():
            votes.cast(1, 101)
            # Both are right: one vote as of then, or two.
            eventually(lambda: votes.count(1) == 2)
            eventually(lambda: bool(votes.count(1)) and "is behind" in replica_error(votes))
            now = votes.count(1)
            assert (now.source, now.exact, now.value) == ("sql", True, 2)
        await_replica(votes, 2)
        assert votes.stats()["replica_error"] == ""
    said = [record for record in caplog.records if record.name == "hotcount"]
    assert {record.levelno for record in said} == {logging.WARNING}
    assert sum("is behind" in record.message for record in said) == 1


def test_a_replica_that_is_killed_costs_no_call_and_is_found_again(
    pair: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    with open_votes(pair) as votes:
        await_replica(votes)
        caplog.clear()  # It may not have had the tables yet.
        pair.replica.kill()
        votes.cast(1, 101)
        for _ in range(5):
            count = votes.count(1)
            assert (count.source, count.value) == ("sql", 2)
        before = votes.stats()
        assert before["replica_error"]
        assert before["replica_fallbacks"] >= 5
        pair.replica.start()
        await_replica(votes, 2)
        assert votes.stats()["replica_error"] == ""
    said = [record.message for record in caplog.records if record.name == "hotcount"]
    assert sum("is not used, the primary answers" in each for each in said) == 1
    assert sum("is not available" in each for each in said) == len(said) - 1 <= 1


def test_a_replica_that_stands_still_takes_half_of_one_calls_time(pair: Replicated) -> None:
    with open_votes(pair) as votes:
        await_replica(votes)
        with pair.standing_still():
            # A process of many threads stops a moment after it was told to.
            eventually(lambda: votes.count(1, timeout=2).source == "sql")
            # Nobody else waits for it.
            before = votes.stats()["replica_fallbacks"]
            assert {votes.count(1).source for _ in range(20)} == {"sql"}
            assert votes.stats()["replica_fallbacks"] == before + 20
        await_replica(votes)


def test_a_primary_that_takes_no_heartbeat_is_named_until_it_does(
    pair: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    with open_votes(pair, read_max_lag=4) as votes:
        await_replica(votes)
        pair.forbid_heartbeats()

        def named() -> bool:
            votes.count(1)
            return "no heartbeat can be written" in str(votes.stats()["replica_error"])

        eventually(named)
        # The replica answers for a while yet; that is not the end of the trouble.
        for _ in range(50):
            assert named()
        await_primary(votes)
        assert named()
    said = [record.message for record in caplog.records if record.name == "hotcount"]
    assert sum("no heartbeat can be written" in each for each in said) == 1


def test_calls_of_little_time_do_not_keep_others_from_the_replica(pair: Replicated) -> None:
    with open_votes(pair) as votes:
        await_replica(votes)
        for _ in range(20):
            for _ in range(2):
                # Too little for the replica, and for the primary.
                with contextlib.suppress(hotcount.DeadlineError):
                    votes.count(1, timeout=1e-6)
            assert votes.count(1).source == "replica"


@pytest.mark.long
def test_a_replica_that_is_away_at_the_start_is_used_once_it_is_there(pair: Replicated) -> None:
    pair.replica.kill()
    try:
        votes = open_votes(pair)
        assert votes.count(1).source == "sql"
        assert votes.stats()["replica_error"]
    finally:
        pair.replica.start()
    with votes:
        await_replica(votes)


@pytest.mark.parametrize("counted_too", [False, True])
def test_another_database_is_never_believed(counted_too: bool, pair: Replicated) -> None:
    """Also where it has such tables, with heartbeats of its own."""
    elsewhere = pair.elsewhere()
    if counted_too:
        pair.create_database()
        other = open_votes(pair, read_max_lag=0.5)
        other.cast_many([1] * 5, range(5))
        await_replica(other, 6)
        elsewhere = pair.replica_url
        pair.create_database()
    reason = "no replica of" if counted_too else "vote_meta"
    with open_votes(pair, read_url=elsewhere, read_max_lag=0.5) as votes:

        def refused() -> bool:
            if counted_too:
                assert other.count(1) == 6
            assert votes.count(1) == 1
            assert votes.count(1).source == "sql"
            return reason in votes.stats()["replica_error"]

        eventually(refused)


def test_the_primary_itself_may_be_the_replica(pair: Replicated) -> None:
    with open_votes(pair, read_url=pair.primary_url) as votes:
        await_replica(votes)
        votes.cast(1, 101)
        assert votes.count(1) == 2


def test_who_voted_and_how_is_asked_there_only_if_the_caller_says_so(pair: Replicated) -> None:
    with open_votes(pair) as votes:
        votes.cast(1, 101, value=-1)
        votes.cast(2, 101)
        votes.flush()
        await_replica(votes, 0)
        eventually(lambda: votes.top(2, consistency="cached") == [(2, 1), (1, 0)])
        with pair.applying_stopped():
            votes.cast(1, 102)
            before = votes.stats()["replica_reads"]
            assert votes.voters(1) == [(100, 1), (101, -1), (102, 1)]
            assert votes.tally(1) == hotcount.Tally(2, 1, 1)
            assert dict(votes.top(2)) == {1: 1, 2: 1}
            assert votes.get(1, 102) == 1
            assert list(votes.get_many([1, 2], 102)) == [1, 0]
            assert votes.stats()["replica_reads"] == before
            assert votes.voters(1, consistency="cached") == [(100, 1), (101, -1)]
            assert votes.tally(1, consistency="cached") == hotcount.Tally(1, 1, 0)
            assert votes.top(2, consistency="cached") == [(2, 1), (1, 0)]
            assert votes.voters(1, after=100, limit=1, consistency="cached") == [(101, -1)]
            assert votes.stats()["replica_reads"] == before + 4


def test_an_event_loop_reads_there_too(pair: Replicated) -> None:
    with open_votes(pair) as votes:
        await_replica(votes)

    async def ask() -> None:
        async with (
            hotcount.aio.Database(pair.primary_url, timeout=20) as database,
            hotcount.aio.Votes(database, read_url=pair.replica_url, read_max_lag=30) as votes,
        ):
            while (count := await votes.count(1)).source != "replica":
                await asyncio.sleep(0.01)
            assert count == 1
            assert [each.source for each in await votes.count_many([1])] == ["replica"]
            assert await votes.voters(1, consistency="cached") == [(100, 1)]
            assert (await votes.tally(1, consistency="cached")).up == 1
            assert await votes.top(1, consistency="cached") is not None
            assert (await votes.count(1, consistency="exact")).exact

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_a_cache_is_read_before_the_replica(pair: Replicated) -> None:
    with hotcount.Memory() as memory, open_votes(pair, cache=memory) as votes:
        votes.flush()
        eventually(lambda: votes.count(1).source == "cache")
        eventually(lambda: votes.tally(1, consistency="cached").up == 1)
        assert votes.count(1).source == "cache"


def test_a_forked_child_reads_there_with_connections_of_its_own(pair: Replicated) -> None:
    with open_votes(pair) as votes:
        await_replica(votes)
        in_child(lambda: int(await_replica(votes)))
        await_replica(votes)


def test_a_read_url_that_names_no_replica_of_this_database_is_refused(pair: Replicated) -> None:
    other = "mariadb" if pair.primary_url.startswith("postgresql") else "postgresql"
    for url, says in (
        (f"{other}://app:secret@127.0.0.1:1/app", "read_url is of .*, and the votes are in"),
        (f"{pair.replica_url}&unheard_of=1", "read_url: URL: unknown option 'unheard_of'"),
        ("x://app:secret@host/db", "read_url: URL: scheme 'x'"),
        ("nowhere", "read_url: .*URL"),
    ):
        with pytest.raises(hotcount.ConfigError, match=says) as caught:
            hotcount.Votes(pair.primary_url, read_url=url)
        assert caught.value.option == "read_url"
        assert "secret" not in str(caught.value)


def test_the_password_of_read_url_shows_in_no_text(
    pair: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    scheme = pair.primary_url.split(":")[0]
    with open_votes(pair, read_url=f"{scheme}://app:secret@127.0.0.1:1/app") as votes:
        assert votes.count(1).source == "sql"
        said = [str(votes.read_url), repr(votes), str(votes.stats()), *caplog.messages]
    assert caplog.messages
    assert not [text for text in said if "secret" in text]
    assert f"{scheme}://app:***@127.0.0.1:1/app" in said
