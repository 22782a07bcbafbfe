"""The votes' journal where sessions default to another isolation level than READ COMMITTED.

At a level with one snapshot for the whole transaction a fold beside voters would fail each time,
and a batch would take an older mark for the current one. So hotcount says which level it wants.
"""

from collections.abc import Iterator

import hotcount
import pytest

from tests.support.journal_play import MariaDbPlay, Play, PostgresPlay
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import in_background

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def strict_mariadb() -> Iterator[MariaDbServer]:
    server = new_server(config=("--transaction-isolation=SERIALIZABLE",))
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(params=["postgres-repeatable read", "postgres-serializable", "mariadb"])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    play: Play
    if request.param == "mariadb":
        server: MariaDbServer = request.getfixturevalue("strict_mariadb")
        play = MariaDbPlay(server, server.create_database())
    else:
        level = request.param.partition("-")[2].replace(" ", "%5C%20")
        options = f"%20-cdefault_transaction_isolation%3D{level}"
        play = PostgresPlay(request.getfixturevalue("postgres_database"), options)
    yield play
    play.close()


def test_votes_and_folds_beside_each_other_all_succeed(play: Play) -> None:
    play.cast(1, 1)
    with play.stopped_fold() as fold:
        assert play.cast(1, 2).changed
        assert not play.cast(1, 2).changed
        assert play.votes.retract(1, 1, timeout=30).changed
        assert play.counts(1) == {2}
    assert not isinstance(fold(), Exception)
    assert play.is_settled()


def test_a_batch_of_repeats_and_new_votes_is_answered(play: Play) -> None:
    play.votes.cast_many([1, 2, 3] * 5, [7] * 15, timeout=30)
    answers = play.votes.cast_many([1, 2, 3, 1], [7, 7, 8, 9], [1, 2, 1, 1], timeout=30)
    assert [answer.changed for answer in answers] == [False, True, True, True]
    assert play.counts(2) == {3}
    assert play.is_settled()


def test_two_votes_of_one_user_at_once_are_both_answered(play: Play) -> None:
    votes = play.other()
    with play.held("UPDATE vote SET prev = prev WHERE item_id = 1 AND user_id = 0"):
        one = play.stopped(lambda: play.votes.retract(1, 0, timeout=30))
        other = in_background(lambda: votes.cast(1, 0, 5, timeout=30))
    assert {type(one()), type(other())} == {hotcount.Cast}
    assert play.is_settled()


def test_reconcile_and_a_switch_there_and_back_keep_every_count(play: Play) -> None:
    play.cast(1, 1)
    drift = play.session()
    drift.run("UPDATE vote_cell SET n = n + 4 WHERE item = 1 AND slot = -1")
    drift.commit()
    assert play.votes.reconcile(timeout=30) == [hotcount.Drift(item=1, counted=6, actual=2)]
    naive = play.other("naive")
    naive.create_tables(timeout=30)
    naive.cast(1, 2, timeout=30)
    play.votes.create_tables(timeout=30)
    play.cast(1, 3)
    assert play.counts(1) == {4}
    assert play.is_settled()
