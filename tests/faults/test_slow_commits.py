"""A COMMIT that is answered late: who has the time for it is told how it ended."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import hotcount
import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresDatabase

pytestmark = pytest.mark.server

PATIENT = range(100, 104)


class PostgresSide:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.url = database.url
        self._gate = 4711

    def prepare(self) -> None:
        """Votes of the patient wait at their COMMIT until the gate opens."""
        self._database.psql(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF NEW.user_id >= 100 THEN PERFORM pg_advisory_xact_lock_shared({self._gate}); "
            "END IF; RETURN NULL; END $$"
        )
        self._database.psql(
            "CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON vote DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION wait()"
        )

    @contextmanager
    def row_locked(self, table: str) -> Iterator[None]:
        with psycopg.connect(self.url) as other:
            other.execute(f"SELECT id FROM {table} FOR UPDATE")
            yield
            other.rollback()

    @contextmanager
    def commits_held(self) -> Iterator[None]:
        with psycopg.connect(self.url) as other:
            other.execute(f"SELECT pg_advisory_xact_lock({self._gate})")
            yield

    def someone_waits_for_a_row(self) -> bool:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'"
        return self._database.psql(waiting) == "1"


class MariaDbSide:
    def __init__(self, server: MariaDbServer, name: str) -> None:
        self._server, self._name = server, name
        self.url = server.url(name)

    def prepare(self) -> None:
        pass

    @contextmanager
    def row_locked(self, table: str) -> Iterator[None]:
        with self._server.connect(self._name) as other, other.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {table} FOR UPDATE")
            yield
            other.rollback()

    @contextmanager
    def commits_held(self) -> Iterator[None]:
        with self._server.connect(self._name) as other, other.cursor() as cursor:
            for stage in ("START", "BLOCK_COMMIT"):
                cursor.execute(f"BACKUP STAGE {stage}")
            yield
            cursor.execute("BACKUP STAGE END")

    def someone_waits_for_a_row(self) -> bool:
        return self._server.row_waits() == 1


NO_STAGES = pytest.mark.mariadb_only("MySQL holds commits back only together with statements")


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=NO_STAGES)])
def side(request: pytest.FixtureRequest) -> PostgresSide | MariaDbSide:
    if request.param == "postgresql":
        return PostgresSide(request.getfixturevalue("postgres_database"))
    server: MariaDbServer = request.getfixturevalue("mariadb_server")
    return MariaDbSide(server, request.getfixturevalue("mariadb_database"))


class Caller(threading.Thread):
    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self._call = call
        self.calls = threading.Event()
        self.outcome: Any = None
        self.start()

    def run(self) -> None:
        self.calls.set()
        try:
            self.outcome = self._call()
        except hotcount.HotcountError as error:
            self.outcome = error

    def result(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        return self.outcome


def test_leader_without_time_for_its_commit_is_alone(side: PostgresSide | MariaDbSide) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(hotcount.Database(side.url, timeout=20, max_writers=1))
        votes = hotcount.Votes(database, strategy="batched")
        votes.create_tables()
        votes.add_items([1])
        side.prepare()
        alone = hotcount.Votes(
            database, strategy="naive", item_table="other", vote_table="other_vote"
        )
        alone.create_tables()
        alone.add_items([1])

        # The one connection is taken, so that those who vote meanwhile share a transaction.
        with side.row_locked("item"):
            with side.row_locked("other"):
                first = Caller(lambda: alone.cast(1, 1, 1))
                eventually(side.someone_waits_for_a_row)
                hurried = Caller(lambda: votes.cast(1, 2, 1, timeout=4))
                hurried.calls.wait()
                patient = [Caller(partial(votes.cast, 1, user)) for user in PATIENT]
                for caller in patient:
                    caller.calls.wait()
            assert first.result().counted
            eventually(side.someone_waits_for_a_row)
            commits = stack.enter_context(ExitStack())
            commits.enter_context(side.commits_held())
        assert isinstance(hurried.result(), hotcount.OutcomeUnknownError)
        commits.close()
        for caller in patient:
            assert getattr(caller.result(), "counted", None) is True, caller.outcome
        assert votes.count(1).value == 1 + len(patient)
        assert votes.cast(1, 200, 1).counted
