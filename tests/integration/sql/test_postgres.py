"""PostgreSQL: what cannot be opened, locks and deaths of other sessions, forks, repairs."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import hotcount
import pytest

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.certificates import Certificates
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.postgres_votes import in_background, session, waiting
from tests.support.servers import PostgresDatabase, PostgresServer
from tests.support.sql_votes import make_votes, open_votes
from tests.support.together import in_child

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("url", "error", "said", "code"),
    [
        (
            "postgresql://me:canary@127.0.0.1:1/app",
            hotcount.UnavailableError,
            r"127.0.0.1:1/app.*refused",
            None,
        ),
        (
            "postgresql://hotcount@/absent?host={}",
            hotcount.DatabaseError,
            'database "absent" does not',
            "3D000",
        ),
        (
            "postgresql://stranger:canary@/postgres?host={}",
            hotcount.AuthError,
            '"stranger"',
            "28000",
        ),
        (
            "postgresql://127.0.0.1/app?sslmod=require",
            hotcount.ConfigError,
            "unknown option 'sslmod'.*sslmode",
            None,
        ),
        (
            "postgresql://127.0.0.1/app?sslmode=full",
            hotcount.ConfigError,
            "sslmode is none of disable",
            None,
        ),
        (
            "postgresql://127.0.0.1/app?connect_timeout=soon",
            hotcount.ConfigError,
            "connect_timeout is no number of seconds",
            None,
        ),
    ],
    ids=["server", "database", "role", "option", "sslmode", "connect_timeout"],
)
def test_what_cannot_be_opened_is_named(
    postgres_server: PostgresServer, url: str, error: type[Exception], said: str, code: str | None
) -> None:
    with pytest.raises(error, match=said) as caught:
        hotcount.Database(url.format(postgres_server.folder))
    assert code in (None, getattr(caught.value, "code", None))
    assert "canary" not in str(caught.value)


def test_tls_is_not_given_up_where_it_is_required(own_postgres: PostgresServer) -> None:
    with pytest.raises(hotcount.UnavailableError, match="SSL"):
        hotcount.Database(own_postgres.tcp_url() + "?sslmode=require")


def test_a_server_that_does_not_answer_costs_the_timeout(postgres_server: PostgresServer) -> None:
    with FaultProxy(postgres_server.folder / ".s.PGSQL.5432") as proxy:
        proxy.black_hole(SERVER_TO_CLIENT)
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError):
            hotcount.Database(f"postgresql://hotcount@127.0.0.1:{proxy.port}/postgres", timeout=0.3)
        assert time.monotonic() - started < 5


def test_databases_of_one_url_share_their_connections(postgres: PostgresDatabase) -> None:
    with hotcount.Database(postgres.url) as one, hotcount.Database(postgres.url) as other:
        before = other.stats()["statements"]
        one.ping()
        assert other.stats()["statements"] == before + 1


def test_build_info_names_the_library() -> None:
    assert int(hotcount.build_info()["libpq"].split(".")[0]) >= 14


def test_a_read_only_session_counts_and_refuses_votes(
    postgres: PostgresDatabase, strategy: str
) -> None:
    make_votes(postgres, strategy).cast(1, 7)
    url = postgres.url_for("hotcount", "%20-cdefault_transaction_read_only%3Don")
    readers = open_votes(url, strategy)
    assert int(readers.count(1)) == 1
    with pytest.raises(hotcount.PermissionDeniedError, match="read-only") as caught:
        readers.cast(1, 8)
    assert caught.value.code == "25006"


def test_a_nul_in_an_id_is_refused(postgres: PostgresDatabase) -> None:
    votes = open_votes(postgres, "batched", item_type=str, user_type=str)
    votes.create_tables()
    with pytest.raises(hotcount.HotcountError, match="NUL"):
        votes.add_items(["a\0b"])
    votes.add_items(['a"b\\c,{}', "A", "a"])
    for user in ('u"\\,', "NULL", "é" * 100):
        assert votes.cast('a"b\\c,{}', user).changed
        assert not votes.cast('a"b\\c,{}', user).changed
    votes.cast("A", "u")
    assert [int(votes.count(item)) for item in ('a"b\\c,{}', "A", "a")] == [3, 1, 0]


def test_a_session_that_is_terminated_before_commit_applied_nothing(
    postgres: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres, strategy)
    votes.cast(1, 7)
    with session(postgres, "SELECT FROM vote, item WHERE item_id = id FOR UPDATE"):
        outcome = in_background(lambda: votes.cast(1, 7, -1))
        eventually(lambda: waiting(postgres) > 0)
        postgres.psql(
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


@pytest.mark.parametrize("strategy", ["naive", "batched"])
def test_wherever_the_answers_end_the_error_says_what_is_known(
    postgres: PostgresDatabase, strategy: str
) -> None:
    votes = make_votes(postgres, strategy)
    votes.cast(1, 1)
    with FaultProxy(postgres.server.folder / ".s.PGSQL.5432") as proxy:
        url = (
            f"postgresql://hotcount@127.0.0.1:{proxy.port}/postgres"
            f"?sslmode=disable&gssencmode=disable&options=-csearch_path%3D{postgres.schema}"
        )
        voters = open_votes(url, strategy, timeout=5)
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
            there = postgres.psql(
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
    assert votes.reconcile(dry_run=True) == []


def test_ctrl_c_ends_a_wait_for_a_lock(postgres: PostgresDatabase) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    votes = make_votes(postgres)
    votes.cast(1, 7)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with session(postgres, "SELECT FROM vote FOR UPDATE"):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            started = time.monotonic()
            with pytest.raises(Interrupted):
                votes.cast(1, 7, -1)
            fired("SIGALRM")
            assert time.monotonic() - started < 10
            eventually(lambda: waiting(postgres) == 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert votes.cast(1, 7, -1).previous == 1


def test_tls_checks_the_server_where_it_is_told_to(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    own_postgres.stop()
    Certificates(tmp_path).sign("server", "IP:127.0.0.1")
    Certificates(tmp_path, "other")
    for kind in ("crt", "key"):
        own_postgres.add_file(tmp_path / f"server.{kind}")
    own_postgres.start(
        "ssl=on",
        f"ssl_cert_file={own_postgres.folder}/server.crt",
        f"ssl_key_file={own_postgres.folder}/server.key",
    )
    url = own_postgres.tcp_url() + "?sslmode=verify-full&sslrootcert="
    with hotcount.Database(f"{url}{tmp_path}/ca.crt") as database:
        assert database.ping()
    with pytest.raises(hotcount.UnavailableError, match="certificate verify failed"):
        hotcount.Database(f"{url}{tmp_path}/other.crt")
    with pytest.raises(hotcount.UnavailableError, match=r"absent\.crt"):
        hotcount.Database(f"{url}{tmp_path}/absent.crt")


def test_a_fork_waits_for_no_lock_of_the_servers(postgres: PostgresDatabase) -> None:
    votes = make_votes(postgres)
    votes.cast(1, 7)
    with session(postgres, "SELECT FROM vote FOR UPDATE"):
        outcome = in_background(lambda: votes.cast(1, 7, -1))
        eventually(lambda: waiting(postgres) > 0)
        started = time.monotonic()
        assert in_child(lambda: votes.cast(2, 8).changed)
        assert time.monotonic() - started < 10
    assert outcome().previous == 1
