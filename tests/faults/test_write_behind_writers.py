"""Writers of other strategies, and names of another time, while votes of write_behind wait."""

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import (
    cast_vote,
    get_vote,
    get_votes,
    retract_vote,
    vote_count,
)

from tests.faults.test_erased_stays import Snapshot, open_votes
from tests.support.eventually import eventually
from tests.support.servers import PostgresDatabase, RedisServer
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import in_threads

Make = Callable[..., hotcount.Votes]
_numbers = itertools.count()

OTHERS = ["naive", "slotted", "batched", "cached"]
WRITES: dict[str, Callable[[hotcount.Votes], object]] = {
    "cast": lambda votes: votes.cast(1, 7, 9),
    "cast_many": lambda votes: votes.cast_many([1, 2], [7, 7], [9, 9]),
    "retract": lambda votes: votes.retract(1, 7),
    "toggle": lambda votes: votes.toggle(1, 7),
    "op_id": lambda votes: votes.cast(1, None, op_id="once"),
    "erase_user": lambda votes: votes.erase_user(7),
    "remove_item": lambda votes: votes.remove_item(2),
    "prune": lambda votes: votes.prune(2**62),
}


@pytest.fixture
def cache(redis_server: RedisServer) -> Iterator[hotcount.Redis]:
    prefix = f"writers{next(_numbers)}:"
    with hotcount.Redis(redis_server.url, prefix=prefix, timeout=20) as redis:
        yield redis


@pytest.fixture
def make(sides: BothSides, cache: hotcount.Redis) -> Iterator[Make]:
    """As if each were in a process of its own."""
    made: list[hotcount.Database] = []
    with hotcount.Memory() as memory:

        def make(strategy: str = "write_behind", **options: Any) -> hotcount.Votes:
            store = {"write_behind": cache, "cached": memory}.get(strategy)
            made.append(hotcount.Database(sides.url, timeout=20))
            return hotcount.Votes(made[-1], store, strategy, **options)  # type: ignore[arg-type]

        yield make
        for database in made:
            database.close()


def begin(make: Make, strategy: str = "write_behind", **options: Any) -> hotcount.Votes:
    votes = make(strategy, **options)
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


def wait_for_one(votes: hotcount.Votes) -> None:
    """User 7 has 1 for item 1 in SQL, and 3 waits; the vote for item 2 waits too."""
    votes.cast(1, 7)
    votes.sync_worker().run_once()
    votes.cast_many([1, 2], [7, 7], [3, 2])


def are_as_acknowledged(votes: hotcount.Votes) -> bool:
    report = votes.flush(timeout=20)
    assert (report.pending, report.at_risk) == (0, 0)
    assert votes.reconcile(dry_run=True) == []
    return (votes.get(1, 7), votes.get(2, 7), int(votes.count(2))) == (3, 2, 2)


# -- other strategies ------------------------------------------------------------------------------


def is_refused(write: Callable[[hotcount.Votes], object], votes: hotcount.Votes) -> bool:
    try:
        write(votes)
    except (hotcount.ConfigError, hotcount.BatchError) as error:
        return "create_tables" in str(error)
    return False


def accepted(votes: hotcount.Votes) -> list[str]:
    return [name for name, write in WRITES.items() if not is_refused(write, votes)]


@pytest.mark.parametrize("since", ["before the switch", "the switch"])
@pytest.mark.parametrize("strategy", OTHERS)
def test_a_writer_of_another_strategy_is_refused(make: Make, strategy: str, since: str) -> None:
    other = begin(make, strategy)
    for write in WRITES.values():  # Whatever it remembers of the tables, it knows by now.
        write(other)
    other.erase_user(7)
    if since == "the switch":
        other = make(strategy)
    votes = begin(make)
    wait_for_one(votes)
    assert accepted(other) == []
    assert are_as_acknowledged(votes)
    # Not because votes waited.
    assert accepted(other) == []
    assert (int(votes.erase_user(7)), votes.get(1, 7), votes.get(2, 7)) == (2, 0, 0)


def test_what_reads_or_folds_works_with_another_strategy_that_counts_there(make: Make) -> None:
    votes = begin(make)
    wait_for_one(votes)
    other = make("batched")
    for value, of_two in ((1, 0), (3, 2)):
        assert other.flush().pending == 0
        counts = other.count_many([1, 2], consistency="exact")
        assert (
            [int(count) for count in counts] == list(other.get_many([1, 2], 7)) == [value, of_two]
        )
        assert other.voters(1) == [(7, value)]
        assert other.tally(1) == hotcount.Tally(up=1, down=0, score=value)
        assert [(item, int(count)) for item, count in other.top(1)] == [(1, value)]
        assert other.reconcile() == []
        votes.sync_worker().run_once()
    assert are_as_acknowledged(votes)


def test_votes_during_the_switch_are_counted_or_refused(make: Make) -> None:
    begin(make, "batched")
    stood = dict.fromkeys(range(6), 0)
    switched = threading.Event()
    through: list[int] = []

    def vote(user: int) -> None:
        voter = make("batched")
        left = 20  # As many attempts after the switch.
        for value in itertools.count(1):
            left -= switched.is_set()
            try:
                voter.cast(1, user, value)
            except hotcount.ConfigError:
                return
            stood[user] = value
            if not left:
                return through.append(user)

    ended = in_threads(vote, range(6))
    eventually(lambda: all(stood.values()))
    votes = make()
    votes.create_tables()
    switched.set()
    ended()
    assert through == []
    assert votes.voters(1) == sorted(stood.items())
    votes.cast_many([1] * 6, list(stood), -1)
    assert votes.flush(timeout=20).at_risk == 0
    assert votes.voters(1) == [(user, -1) for user in stood]
    assert votes.reconcile(dry_run=True) == []


# -- in an application's own transaction -----------------------------------------------------------


@pytest.mark.parametrize("isolation", ["default", "SERIALIZABLE"])
@pytest.mark.parametrize("strategy", [*OTHERS, "write_behind"])
def test_the_integration_casts_no_vote_and_the_transaction_goes_on(
    sides: BothSides, make: Make, strategy: str, isolation: str
) -> None:
    votes = begin(make)
    wait_for_one(votes)
    other = votes if strategy == "write_behind" else make(strategy)
    engine = sides.engine
    if isolation != "default":
        engine = engine.execution_options(isolation_level=isolation)
    writes: list[Callable[[sa.Connection], object]] = [
        lambda connection: cast_vote(connection, other, 1, 7, 9),
        lambda connection: cast_vote(connection, other, 1, 7, 9, version=2**62),
        lambda connection: cast_vote(connection, other, 3, 8),
        lambda connection: cast_vote(connection, other, 1, None, op_id="once"),
        lambda connection: retract_vote(connection, other, 1, 7),
    ]
    with engine.begin() as connection:
        for write in writes:
            with pytest.raises(hotcount.ConfigError, match=r"create_tables|write_behind"):
                write(connection)
        connection.execute(sa.text("INSERT INTO item (id, vote_count) VALUES (4, 0)"))
    assert are_as_acknowledged(votes)
    assert [votes.voters(item) for item in (1, 2, 3)] == [[(7, 3)], [(7, 2)], []]
    votes.cast(4, 7)
    assert votes.flush(timeout=20).at_risk == 0
    with engine.begin() as connection:  # What reads goes on.
        assert get_votes(connection, votes, [1, 2, 4], 7) == [3, 2, 1]
        assert vote_count(connection, votes, 1) == 3


def test_a_transaction_from_before_casts_nothing(sides: BothSides, make: Make) -> None:
    batched = begin(make, "batched")
    batched.cast(1, 7)
    engine = sides.engine
    if sides.dialect != "sqlite":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection, connection.begin() as transaction:
        assert get_vote(connection, batched, 1, 7) == 1  # It has its snapshot.
        votes = make()
        votes.create_tables()
        wait_for_one(votes)
        # Or the database has it run again.
        with pytest.raises((hotcount.HotcountError, sa.exc.DBAPIError)):
            cast_vote(connection, batched, 1, 7, 9)
        transaction.rollback()
    assert are_as_acknowledged(votes)


# -- a name of the streams that is remembered across a switch away and back ------------------------


def switch_away_and_back(make: Make) -> tuple[hotcount.Votes, hotcount.SyncWorker, hotcount.Votes]:
    """What remembers the streams of before with its worker, and what knows those of now."""
    remembers = begin(make, max_age=3600)
    worker = remembers.sync_worker()
    remembers.cast(3, 5)
    worker.run_once()
    assert remembers.flush(timeout=20).at_risk == 0
    make("batched").create_tables()
    knows = make()
    knows.create_tables()
    knows.cast_many([1, 1, 1], [7, 8, 9], [3, 2, 0])
    return remembers, worker, knows


# What a call answers, and who has voted for item 1 then, where 3 votes of users 7, 8 and 9 wait.
BOTH = [(7, 3), (8, 2)]
CALLS: dict[str, tuple[Callable[[hotcount.Votes], object], object, list[tuple[int, int]]]] = {
    "flush": (lambda votes: votes.flush(timeout=20), hotcount.FlushReport(3, 0, 0), BOTH),
    "erase_user": (lambda votes: int(votes.erase_user(7)), 1, [(8, 2)]),
    "remove_item": (lambda votes: votes.remove_item(1), 2, []),
    "prune": (lambda votes: votes.prune(2**62), 1, BOTH),
    "toggle": (lambda votes: votes.toggle(1, 7).previous, 3, [(7, 1), (8, 2)]),
    # It asks SQL once a second at most.
    "count": (lambda votes: eventually(lambda: votes.count(1).pending == 3), None, BOTH),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_another_name_heeds_the_votes_that_wait(make: Make, name: str) -> None:
    remembers, _, knows = switch_away_and_back(make)
    call, answer, left = CALLS[name]
    assert call(remembers) == answer
    if name != "flush":
        assert knows.flush(timeout=20).at_risk == 0
    batched = make("batched")
    batched.create_tables()
    assert (batched.voters(1), batched.reconcile(dry_run=True)) == (left, [])


def test_a_worker_that_lives_through_it_raises_floors(make: Make, cache: hotcount.Redis) -> None:
    votes = begin(make, max_age=0.001)
    votes.cast(1, 7, 1)
    worker = votes.sync_worker()
    assert isinstance(cache.prefix, str)
    (stream,) = cache.execute("KEYS", f"{cache.prefix}waiting:*")
    # The clock of Redis was a year ahead: all that comes later has the same milliseconds.
    ((entry, _),) = cache.execute("XRANGE", stream, "-", "+")
    ahead = int(entry.split(b"-")[0]) + 366 * 86_400_000
    cache.execute("XADD", stream, f"{ahead}-5", "i", "1", "u", "7", "v", "2")
    assert worker.run_once().saved == 2
    assert votes.flush().at_risk == 0
    make("batched").create_tables()
    votes = make()
    votes.create_tables()
    votes.cast(1, 7, 3)
    assert worker.run_once().saved == 1
    assert votes.get(1, 7) == 3
    # Redis loses its data; what is acknowledged then is newer than all that it had.
    for key in cache.execute("KEYS", f"{cache.prefix}waiting:*"):
        cache.execute("DEL", key)
    votes.cast(1, 7, 4)
    assert worker.run_once().saved == 1
    assert votes.get(1, 7) == 4


def test_a_vote_that_sql_refuses_keeps_no_others_below_the_fence(
    postgres_database: PostgresDatabase, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    past = Snapshot(tmp_path)
    request.addfinalizer(past.stop)
    votes = open_votes(postgres_database.url, past)
    votes.create_tables()
    votes.add_items([1, 2])
    for item in (1, 2):
        votes.cast(item, 8)
        votes.sync_worker().run_once()
    postgres_database.psql(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.user_id = 66 "
        "THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER no BEFORE INSERT ON vote FOR EACH ROW EXECUTE FUNCTION no()"
    )
    votes.cast(2, 66)
    past.keep()
    # The clock of the old machine was an hour ahead.
    (stream,) = (key for key in past.run("KEYS", "waiting:*") if key.endswith(b":12}"))
    ahead = int(past.run("TIME")[0]) * 1000 + 3_600_000
    past.run("XSETID", stream, f"{ahead}-5")
    votes.remove_item(1)
    past.go_back()
    eventually(past.answers)
    votes = open_votes(postgres_database.url, past)
    worker = votes.sync_worker()
    with pytest.raises(hotcount.DatabaseError, match="no"):
        worker.run_once()
    votes.cast_many([1] * 3, [101, 102, 103])
    worker.run_once()
    assert [user for user, _ in votes.voters(1)] == [101, 102, 103]
