"""PostgreSQL: what cannot be opened, locks and deaths of other sessions, forks, repairs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import hotcount
import pytest

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.postgres_votes import STRATEGIES, in_background, make_votes, session, waiting
from tests.support.servers import PostgresDatabase, PostgresServer
from tests.support.together import in_child, together

pytestmark = pytest.mark.server


# -- what cannot be opened --------------------------------------------------


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(hotcount.UnavailableError, match=r"127.0.0.1:1/app.*refused") as caught:
        hotcount.Database("postgresql://me:canary@127.0.0.1:1/app")
    assert "canary" not in str(caught.value)


def test_a_database_that_is_not_there_is_named(postgres_server: PostgresServer) -> None:
    with pytest.raises(hotcount.DatabaseError, match=r'database "absent" does not') as caught:
        hotcount.Database(postgres_server.url("absent"))
    assert caught.value.code == "3D000"


def test_a_role_that_is_not_there_is_an_auth_error(postgres_server: PostgresServer) -> None:
    with pytest.raises(hotcount.AuthError, match=r'"stranger"') as caught:
        hotcount.Database(postgres_server.url(user="stranger:canary"))
    assert caught.value.code == "28000"
    assert "canary" not in str(caught.value)


def test_an_option_that_nobody_knows_is_named() -> None:
    with pytest.raises(hotcount.ConfigError, match=r"unknown option 'sslmod'.*sslmode"):
        hotcount.Database("postgresql://127.0.0.1/app?sslmod=require")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("sslmode=full", "sslmode is none of disable"),
        ("connect_timeout=soon", "connect_timeout is no number of seconds"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(option: str, said: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=said):
        hotcount.Database(f"postgresql://127.0.0.1/app?{option}")


def test_tls_is_not_given_up_where_it_is_required(own_postgres: PostgresServer) -> None:
    with pytest.raises(hotcount.UnavailableError, match="SSL"):
        hotcount.Database(own_postgres.tcp_url() + "?sslmode=require")


def test_a_server_that_does_not_answer_costs_the_timeout(postgres_server: PostgresServer) -> None:
    proxy = FaultProxy(postgres_server.folder / ".s.PGSQL.5432")
    try:
        proxy.black_hole(SERVER_TO_CLIENT)
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError):
            hotcount.Database(f"postgresql://hotcount@127.0.0.1:{proxy.port}/postgres", timeout=0.3)
        assert time.monotonic() - started < 5
    finally:
        proxy.close()


def test_databases_of_one_url_share_their_connections(postgres_database: PostgresDatabase) -> None:
    with (
        hotcount.Database(postgres_database.url) as one,
        hotcount.Database(postgres_database.url) as other,
    ):
        before = other.stats()["statements"]
        one.ping()
        assert other.stats()["statements"] == before + 1


def test_build_info_names_the_library() -> None:
    assert int(hotcount.build_info()["libpq"].split(".")[0]) >= 14


# -- refusals ---------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_read_only_session_counts_and_refuses_votes(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    make_votes(postgres_database, strategy).cast(1, 7)
    url = postgres_database.url_for("hotcount", "%20-cdefault_transaction_read_only%3Don")
    readers = hotcount.Votes(hotcount.Database(url), None, strategy)  # type: ignore[arg-type]
    assert int(readers.count(1)) == 1
    with pytest.raises(hotcount.PermissionDeniedError, match="read-only") as caught:
        readers.cast(1, 8)
    assert caught.value.code == "25006"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_role_without_the_right_is_denied(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    make_votes(postgres_database, strategy).cast(1, 7)
    reader = f"reader_{postgres_database.schema}"
    postgres_database.psql(
        f"CREATE ROLE {reader} LOGIN; GRANT USAGE ON SCHEMA {postgres_database.schema} TO {reader};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {postgres_database.schema} TO {reader}"
    )
    database = hotcount.Database(postgres_database.url_for(reader))
    readers = hotcount.Votes(database, None, strategy)  # type: ignore[arg-type]
    assert int(readers.count(1)) == 1
    with pytest.raises(hotcount.PermissionDeniedError):
        readers.cast(1, 8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_items_absence_is_told_from_another_foreign_key(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    postgres_database.psql(
        "CREATE TABLE person (id bigint PRIMARY KEY); INSERT INTO person VALUES (7);"
        "ALTER TABLE vote ADD FOREIGN KEY (user_id) REFERENCES person (id)"
    )
    with pytest.raises(hotcount.IntegrityError, match=r"item 99.*not exist"):
        votes.cast(99, 7)
    with pytest.raises(hotcount.IntegrityError, match="user 8 for item 1") as caught:
        votes.cast(1, 8)
    assert "which does not exist" not in str(caught.value)
    assert votes.cast(1, 7).changed
    casts = votes.cast_many([1, 99, 2], [7, 7, 8], errors="return")
    assert sorted(casts.errors) == [1, 2]
    assert votes.reconcile(dry_run=True) == []


def test_a_nul_in_an_id_is_refused(postgres_database: PostgresDatabase) -> None:
    votes = hotcount.Votes(hotcount.Database(postgres_database.url), item_type=str, user_type=str)
    votes.create_tables()
    with pytest.raises(hotcount.HotcountError, match="NUL"):
        votes.add_items(["a\0b"])
    votes.add_items(['a"b\\c,{}', "A", "a"])
    for user in ('u"\\,', "NULL", "é" * 100):
        assert votes.cast('a"b\\c,{}', user).changed
        assert not votes.cast('a"b\\c,{}', user).changed
    votes.cast("A", "u")
    assert [int(votes.count(item)) for item in ('a"b\\c,{}', "A", "a")] == [3, 1, 0]


# -- deadlines and deaths -----------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_lock_held_elsewhere_costs_the_deadline_and_nothing_else(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    votes.cast(1, 7)
    lock = "SELECT FROM vote, item WHERE item_id = id FOR UPDATE"
    with session(postgres_database, lock):
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.cast(1, 7, -1, timeout=1)
        assert 0.9 < time.monotonic() - started < 10
        # The statement was cancelled: nobody is left in the queue for the lock.
        eventually(lambda: waiting(postgres_database) == 0)
    assert votes.cast(1, 7, -1).previous == 1
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_session_that_is_terminated_before_commit_applied_nothing(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    votes.cast(1, 7)
    with session(postgres_database, "SELECT FROM vote, item WHERE item_id = id FOR UPDATE"):
        outcome = in_background(lambda: votes.cast(1, 7, -1))
        eventually(lambda: waiting(postgres_database) > 0)
        postgres_database.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name = 'hotcount'"
        )
        if strategy != "batched":
            error = outcome()
            assert isinstance(error, hotcount.UnavailableError), repr(error)
            assert "nothing was applied" in str(error)
    if strategy == "batched":
        # A group is written once more, on a new connection.
        assert outcome().previous == 1
        assert votes.cast(1, 7, 1).changed
    assert votes.cast(1, 7, 1).previous == 1  # On a new connection.


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_session_that_ends_in_its_commit_leaves_the_outcome_unknown(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    # Runs inside COMMIT, and ends the session there.
    postgres_database.psql(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); RETURN NULL;"
        " END $$;"
        "CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON vote DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION die()"
    )
    with pytest.raises(hotcount.OutcomeUnknownError):
        votes.cast(1, 7)
    postgres_database.psql("DROP TRIGGER dies ON vote")
    votes.cast(1, 7)
    assert int(votes.count(1)) == 1
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", ["naive", "batched"])
def test_wherever_the_answers_end_the_error_says_what_is_known(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    votes.cast(1, 1)
    proxy = FaultProxy(postgres_database.server.folder / ".s.PGSQL.5432")
    url = (
        f"postgresql://hotcount@127.0.0.1:{proxy.port}/postgres"
        f"?sslmode=disable&gssencmode=disable&options=-csearch_path%3D{postgres_database.schema}"
    )
    voters = hotcount.Votes(hotcount.Database(url, timeout=5), None, strategy)  # type: ignore[arg-type]
    try:
        voters.cast(1, 1)
        seen: dict[str, int] = {}
        for user in range(100, 500):
            proxy.cut_after(user - 100, SERVER_TO_CLIENT)
            fired = proxy.fired
            try:
                voters.cast(1, user)
                outcome = "done"
            except hotcount.UnavailableError:
                outcome = "not applied"
            except hotcount.OutcomeUnknownError:
                outcome = "unknown"
            proxy.heal()
            there = postgres_database.psql(
                f"SELECT count(*) FROM vote WHERE item_id = 1 AND user_id = {user}"
            )
            if outcome != "unknown":
                assert there == ("1" if outcome == "done" else "0"), (user, outcome)
            seen[outcome + there] = seen.get(outcome + there, 0) + 1
            voters.cast(1, user)
            if outcome == "done" and proxy.fired == fired:
                break  # The whole conversation is shorter.
        # A group that certainly was not applied is sent once more, on a new connection.
        expected = {"unknown1", "done1"} | ({"not applied0"} if strategy == "naive" else set())
        assert expected <= seen.keys(), seen
    finally:
        proxy.close()
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_server_that_was_away_is_found_again(own_postgres: PostgresServer, strategy: str) -> None:
    votes = make_votes(own_postgres.create_database(), strategy)
    votes.cast(1, 1)
    own_postgres.stop()
    with pytest.raises(hotcount.UnavailableError):
        votes.cast(1, 2)
    own_postgres.start()
    assert votes.cast(1, 2).changed
    # Restarted while the connection was idle: nobody notices.
    own_postgres.stop()
    own_postgres.start()
    assert votes.cast(1, 3).changed
    assert int(votes.count(1)) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_killed_server_loses_no_acknowledged_vote(
    own_postgres: PostgresServer, strategy: str
) -> None:
    place = own_postgres.create_database()
    votes = make_votes(place, strategy, timeout=5)
    acknowledged: list[int] = []
    refused: list[int] = []
    enough = threading.Event()

    def vote(index: int) -> None:
        if index == 0:
            enough.wait(20)
            own_postgres.kill()
            return
        for user in range(index * 10_000, (index + 1) * 10_000):
            try:
                votes.cast(1, user)
            except hotcount.OutcomeUnknownError:
                return
            except (hotcount.UnavailableError, hotcount.DeadlineError):
                refused.append(user)
                return
            acknowledged.append(user)
            if len(acknowledged) > 200:
                enough.set()

    together(vote, 9)
    own_postgres.start()
    there = {int(user) for user in place.psql("SELECT user_id FROM vote_live").split()}
    assert len(acknowledged) > 200
    assert set(acknowledged) <= there
    assert not there & set(refused)
    assert int(votes.count(1)) == len(there)
    assert votes.reconcile(dry_run=True) == []


def test_ctrl_c_ends_a_wait_for_a_lock(postgres_database: PostgresDatabase) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    votes = make_votes(postgres_database)
    votes.cast(1, 7)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with session(postgres_database, "SELECT FROM vote FOR UPDATE"):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            started = time.monotonic()
            with pytest.raises(Interrupted):
                votes.cast(1, 7, -1)
            assert time.monotonic() - started < 10
            eventually(lambda: waiting(postgres_database) == 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert votes.cast(1, 7, -1).previous == 1


# -- TLS --------------------------------------------------------------------


def self_signed(folder: Path, name: str) -> None:
    """NAME.crt and NAME.key, for 127.0.0.1."""
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
        *("-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
    ]
    subprocess.run(command, check=True, capture_output=True)


def test_tls_checks_the_server_where_it_is_told_to(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    own_postgres.stop()
    for name in ("server", "other"):
        self_signed(tmp_path, name)
    for kind in ("crt", "key"):
        own_postgres.add_file(tmp_path / f"server.{kind}")
    own_postgres.start(
        "ssl=on",
        f"ssl_cert_file={own_postgres.folder}/server.crt",
        f"ssl_key_file={own_postgres.folder}/server.key",
    )
    url = own_postgres.tcp_url() + "?sslmode=verify-full&sslrootcert="
    with hotcount.Database(f"{url}{tmp_path}/server.crt") as database:
        votes = hotcount.Votes(database)
        votes.create_tables()
        votes.add_items([1])
        assert votes.cast(1, 7).changed
    with pytest.raises(hotcount.UnavailableError, match="certificate verify failed"):
        hotcount.Database(f"{url}{tmp_path}/other.crt")
    with pytest.raises(hotcount.UnavailableError, match=r"absent\.crt"):
        hotcount.Database(f"{url}{tmp_path}/absent.crt")


# -- fork -------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_forked_child_votes_on_connections_of_its_own(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres_database, strategy)
    votes.cast(1, 1)
    sessions = (
        "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity"
        " WHERE application_name = 'hotcount'"
    )
    before = postgres_database.psql(sessions)

    def child() -> tuple[bool, int]:
        return votes.cast(1, 2).changed, int(votes.count(1))

    assert in_child(child) == (True, 2)
    # Neither ended by the child nor joined by it.
    eventually(lambda: postgres_database.psql(sessions) == before)
    assert votes.cast(1, 3).changed
    assert int(votes.count(1)) == 3


def test_a_fork_waits_for_no_lock_of_the_servers(postgres_database: PostgresDatabase) -> None:
    votes = make_votes(postgres_database)
    votes.cast(1, 7)
    with session(postgres_database, "SELECT FROM vote FOR UPDATE"):
        outcome = in_background(lambda: votes.cast(1, 7, -1))
        eventually(lambda: waiting(postgres_database) > 0)
        started = time.monotonic()
        assert in_child(lambda: votes.cast(2, 8).changed)
        assert time.monotonic() - started < 10
    assert outcome().previous == 1


def test_a_child_does_not_keep_its_parents_sessions_alive(
    postgres_database: PostgresDatabase,
) -> None:
    """Or a parent that dies would leave its locks to a child that knows nothing of them."""
    votes = make_votes(postgres_database)
    votes.cast(1, 1)

    def sockets() -> int:
        links = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        return sum("socket:" in link for link in links)

    with_them = sockets()
    assert in_child(sockets) < with_them
