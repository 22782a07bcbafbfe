"""Limiters over SQL: what their rows look like, and that nobody admits more than the limit."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import hotcount
import pytest

from tests.support.pgbouncer_server import PgBouncer
from tests.support.postgres_votes import session
from tests.support.servers import PostgresDatabase, PostgresServer, free_port
from tests.support.sqlalchemy_side import BothSides

TEN = "10/300 days"

# Hits of four threads, some by ones and some in batches, of keys that all processes share. It
# prints how many were admitted of each, and, if asked, their sum when a thread has been through.
STORM = """
import sys, threading, hotcount
url, algorithm, keys, rounds, says = sys.argv[1:]
database = hotcount.Database(url, timeout=30)
limiter = hotcount.Limiter(database, "40/300 days; 50/360 days", algorithm=algorithm)
names = [f"k{number}" for number in range(int(keys))]
admitted = [0] * len(names)
lock = threading.Lock()
print("begins", flush=True)
def work(thread):
    for turn in range(int(rounds)):
        order = names if (thread + turn) % 2 else names[::-1]
        if thread == 0:
            answers = limiter.hit_many(order).allowed
        else:
            answers = [limiter.hit(name).allowed for name in order]
        with lock:
            for name, allowed in zip(order, answers):
                admitted[int(name[1:])] += bool(allowed)
            if says == "yes":
                print(sum(admitted), flush=True)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(admitted)
"""


def storm(
    url: str, *, keys: int, rounds: int, algorithm: str = "gcra", says: bool = False
) -> subprocess.Popen[str]:
    words = [url, algorithm, str(keys), str(rounds), "yes" if says else "no"]
    return subprocess.Popen(
        [sys.executable, "-c", STORM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def sums_of(storms: list[subprocess.Popen[str]]) -> list[int]:
    said = [one.communicate(timeout=240)[0] for one in storms]
    for text in said:
        assert text.splitlines()[-1:], said
        assert text.splitlines()[-1].startswith("["), text
    lists = [[int(n) for n in text.splitlines()[-1].strip("[]").split(",")] for text in said]
    return [sum(column) for column in zip(*lists)]


def keys_of(sides: BothSides) -> list[str]:
    quote = "`" if sides.dialect == "mariadb" else '"'
    found = sides.run(f"SELECT {quote}key{quote} FROM hotcount_limit")
    return sorted(key.decode() if isinstance(key, bytes) else key for (key,) in found)


def make(sides: BothSides, rate: str = TEN, **options: Any) -> hotcount.Limiter:
    limiter = hotcount.Limiter(sides.database, rate, **options)
    limiter.create_table()
    return limiter


def test_processes_and_threads_admit_exactly_the_limit(sides: BothSides) -> None:
    make(sides)
    assert sums_of([storm(sides.url, keys=6, rounds=6) for _ in range(2)]) == [40] * 6


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["gcra", "fixed_window", "sliding_window", "sliding_log"])
def test_many_rounds_admit_exactly_the_limit(sides: BothSides, algorithm: str) -> None:
    make(sides)
    storms = [storm(sides.url, keys=60, rounds=10, algorithm=algorithm) for _ in range(4)]
    assert sums_of(storms) == [40] * 60


@pytest.mark.long
def test_processes_that_are_killed_leave_no_lock_and_no_room(sides: BothSides) -> None:
    make(sides)
    storms = [storm(sides.url, keys=200, rounds=50, says=True) for _ in range(3)]
    for one in storms:
        assert one.stdout is not None
        for _ in range(4):  # In the middle: it has admitted some.
            one.stdout.readline()
        one.kill()
    said = [one.communicate(timeout=60)[0].split() for one in storms]
    limiter = hotcount.Limiter(sides.database, "40/300 days; 50/360 days")
    left = [limiter.at_most(f"k{number}", 40) for number in range(200)]
    counted = sum(int(lines[-1]) for lines in said if lines and lines[-1].isdigit())
    assert counted + sum(left) <= 40 * 200
    assert not limiter.hit("k0").allowed


@pytest.mark.long
@pytest.mark.server
def test_a_pooler_between_changes_nothing() -> None:
    with (
        PostgresServer().started() as server,
        PgBouncer(server).started() as pooler,
        hotcount.Database(pooler.url(), timeout=20) as database,
    ):
        hotcount.Limiter(database, TEN).create_table()
        assert sums_of([storm(pooler.url(), keys=6, rounds=6) for _ in range(2)]) == [40] * 6


@pytest.mark.long
@pytest.mark.server
def test_a_server_that_is_killed_admits_no_more_when_it_is_back() -> None:
    with (
        PostgresServer(port=free_port()).started() as server,
        hotcount.Database(server.url(), timeout=5) as database,
    ):
        limiter = hotcount.Limiter(database, "1000/300 days")
        limiter.create_table()
        admitted = sum(limiter.hit("k").allowed for _ in range(50))
        server.kill()
        begun = time.monotonic()
        with pytest.raises(hotcount.HotcountError):
            limiter.hit("k", timeout=0.5)
        assert time.monotonic() - begun < 5
        server.start()
        assert limiter.peek("k").remaining == 1000 - admitted
        assert limiter.at_most("k", 1000) == 1000 - admitted


def test_keys_are_compared_byte_by_byte(sides: BothSides) -> None:
    limiter = make(sides)
    keys = ["a", "A", "a ", "á", "ß", "ss", "x" * 1000, "%" * 1000, ("x" * 499, "y" * 498)]
    for key in keys:
        assert limiter.hit(key, 10).allowed, key  # type: ignore[arg-type]
    assert not any(limiter.hit(key).allowed for key in keys)  # type: ignore[arg-type]
    with pytest.raises(hotcount.ConfigError, match="NUL"):
        limiter.hit("a\x00b")
    if sides.dialect == "postgresql":
        with pytest.raises(hotcount.ConfigError, match="UTF-8"):
            limiter.hit(b"\xff")
    else:
        assert limiter.hit(b"\xff", 10).allowed
        assert not limiter.hit(b"\xff").allowed


def test_a_row_that_is_no_state_is_refused_and_hurts_no_other(sides: BothSides) -> None:
    limiter = make(sides)
    limiter.hit("taken")
    sides.run("UPDATE hotcount_limit SET state = 'what'")
    for call in (limiter.hit, limiter.peek, limiter.test):
        with pytest.raises(hotcount.WrongTypeError, match="limit:default:gcra"):
            call("taken")
    answers = limiter.hit_many(["a", "taken", "b"], errors="return")
    assert answers.errors.keys() == {1}
    assert [answers[0].remaining, answers[2].remaining] == [9, 9]
    limiter.reset("taken")
    assert limiter.hit("taken").remaining == 9


def test_looks_and_refusals_leave_no_row(sides: BothSides) -> None:
    limiter = make(sides)
    assert limiter.peek("k").remaining == 10
    assert limiter.hit("k", 11).reason == "cost_above_limit"
    assert limiter.refund("k", 3) == 10
    limiter.reset("k")
    assert not limiter.hit_many(["k"], [11])[0].allowed
    assert keys_of(sides) == []
    limiter.hit("k")
    assert keys_of(sides) == ["limit:default:gcra:10/300_days:k"]
    limiter.reset("k")
    assert keys_of(sides) == []


def test_new_rows_take_expired_ones_with_them_two_for_one(sides: BothSides) -> None:
    limiter = make(sides)
    limiter.hit_many([f"old{number}" for number in range(7)])
    sides.run("UPDATE hotcount_limit SET expires = 1")
    limiter.hit_many(["new1", "new2"])
    assert len(keys_of(sides)) == 7 - 4 + 2
    limiter.hit("new1")  # No new row, nothing to remove.
    assert len(keys_of(sides)) == 5
    limiter.hit("new3")
    limiter.hit("new4")
    assert [key.rsplit(":", 1)[1] for key in keys_of(sides)] == ["new1", "new2", "new3", "new4"]


def test_an_expired_row_that_somebody_holds_delays_no_new_one(server: BothSides) -> None:
    limiter = make(server)
    limiter.hit_many(["held", "free"])
    server.run("UPDATE hotcount_limit SET expires = 1")
    (held,) = [key for key in keys_of(server) if key.endswith(":held")]
    column = "`key`" if server.dialect == "mariadb" else '"key"'
    with server.engine.begin() as other:
        other.exec_driver_sql(
            f"SELECT state FROM hotcount_limit WHERE {column} = '{held}' FOR UPDATE"
        )
        assert limiter.hit("new", timeout=2).allowed
        assert [key.rsplit(":", 1)[1] for key in keys_of(server)] == ["held", "new"]


def test_a_row_is_kept_for_as_long_as_it_counts(sides: BothSides) -> None:
    limiter = make(sides, "5/hour")
    limiter.hit("k", 5)
    ((expires,),) = sides.run("SELECT expires FROM hotcount_limit")
    assert 3600 - 10 <= expires / 1e6 - time.time() <= 3600 + 1100
    limiter.block("k", 86400 * 30)
    ((expires,),) = sides.run("SELECT expires FROM hotcount_limit")
    assert expires / 1e6 - time.time() >= 86400 * 30 - 10


def test_a_missing_table_is_named_with_what_makes_it(sides: BothSides) -> None:
    limiter = hotcount.Limiter(sides.database, TEN)
    for call in (limiter.hit, limiter.peek, limiter.reset):
        with pytest.raises(hotcount.DatabaseError, match=r"hotcount_limit.*create_table\(\)"):
            call("k")
    limiter.create_table()
    limiter.create_table()
    assert limiter.hit("k").allowed


def test_a_table_has_the_name_that_it_is_given(sides: BothSides) -> None:
    other = make(sides, table="my limits")
    make(sides).hit("k", 10)
    assert other.hit("k", 10).allowed
    assert other.table == "my limits"
    if sides.dialect == "postgresql":
        sides.run("CREATE SCHEMA limiter_app")
        in_schema = make(sides, table="limiter_app.limits")
        assert in_schema.hit("k", 10).allowed
        assert sides.run("SELECT count(*) FROM limiter_app.limits") == [(1,)]
        sides.run("DROP SCHEMA limiter_app CASCADE")


def test_what_databases_do_not_take_is_named() -> None:
    database = hotcount.Database("sqlite:///:memory:")
    with pytest.raises(hotcount.ConfigError, match="sliding_log takes limits up to 1000"):
        hotcount.Limiter(database, "5/s; 1001/day", algorithm="sliding_log")
    for table in ("", "x" * 56, "a.b.c", '"a', "a\x00"):
        with pytest.raises(hotcount.ConfigError, match="table"):
            hotcount.Limiter(database, "5/s", table=table)
    with pytest.raises(hotcount.ConfigError, match="table is for databases"):
        hotcount.Limiter("memory://", "5/s", table="limits")
    hotcount.Limiter("memory://", "5/s").create_table()


def test_a_session_whose_statement_was_cancelled_is_not_used_again(
    postgres: PostgresDatabase,
) -> None:
    """The server sends it two signals for one cancel: the second would end the next statement."""
    name = postgres.schema
    pids = (
        f"SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE application_name='{name}'"
    )

    def sessions() -> set[str]:
        return set(postgres.psql(pids).split(",")) - {""}

    with hotcount.Database(f"{postgres.url}&application_name={name}") as database:
        limiter = hotcount.Limiter(database, TEN)
        limiter.create_table()
        limiter.hit("k")
        before = sessions()
        assert before
        with (
            session(postgres, "SELECT * FROM hotcount_limit FOR UPDATE"),
            pytest.raises(hotcount.DeadlineError),
        ):
            limiter.hit("k", timeout=0.1)
        assert limiter.hit("k").remaining == 8
        # One may write, another read.
        assert sessions() - before
