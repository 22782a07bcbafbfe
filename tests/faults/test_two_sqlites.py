"""A second SQLite library in the process, and files that are removed under an open database.

The second library is loaded in processes of its own only: it would stay in this one.
"""

import logging
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hotcount
import pytest

from tests.support.fired import fired
from tests.support.sqlite_files import STRATEGIES, make_votes, rows

LIBRARIES = ("apsw", "pysqlite3")

# What each opens, reads and closes once.
VISIT = """
def visit(library, path):
    if library == "apsw":
        import apsw
        other = apsw.Connection(path)
    else:
        import pysqlite3
        other = pysqlite3.connect(path)
    other.execute("SELECT count(*) FROM sqlite_master").fetchall()
    other.close()
"""

ONE_PROCESS = (
    VISIT
    + """
import os, signal, sys
import hotcount

library, face, path = sys.argv[1:]
url = f"sqlite:///{path}"
if face == "counter":
    counter = hotcount.SlottedCounter(url)
    counter.create_table()
    write = lambda numbers: [counter.add("k") for _ in numbers]
    count = lambda: counter.get("k")
elif face == "limiter":
    limiter = hotcount.Limiter(url, "1000/day", algorithm="fixed_window")
    limiter.create_table()
    write = lambda numbers: [limiter.hit("k") for _ in numbers]
    count = lambda: 1000 - limiter.peek("k").remaining
else:
    votes = hotcount.Votes(url, strategy=face.partition(" ")[0])
    votes.create_tables()
    votes.add_items([1])
    if face.endswith("many"):
        write = lambda numbers: votes.cast_many([1] * len(numbers), list(numbers))
    else:
        write = lambda numbers: [votes.cast(1, user) for user in numbers]
    count = lambda: int(votes.count(1))
write(range(50))
visit(library, path)
write(range(50, 100))
print(count(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
)


def run(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "face", [*STRATEGIES, *(f"{each} many" for each in STRATEGIES), "counter", "limiter"]
)
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, library: str, face: str) -> None:
    file = tmp_path / "a.db"
    with run(ONE_PROCESS, library, face, file) as process:
        assert process.communicate()[0] == "100\n"
    fired("second library")
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    if face == "counter":
        assert rows(file, "SELECT SUM(count) FROM hotcount_slot") == [(100,)]
    elif face == "limiter":
        with hotcount.Limiter(f"sqlite:///{file}", "1000/day", algorithm="fixed_window") as limiter:
            assert limiter.peek("k").remaining == 900
    else:
        assert rows(file, "SELECT COUNT(*) FROM vote") == [(100,)]


VOTERS = (
    VISIT
    + """
import sys, threading, time
import hotcount

library, number, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
votes = hotcount.Votes(hotcount.Database(f"sqlite:///{path}", timeout=20))
print("ready", flush=True)
sys.stdin.readline()
stop = threading.Event()
acknowledged = [0] * 4

def vote(thread):
    user = (number * 4 + thread) * 10_000_000
    while not stop.is_set():
        acknowledged[thread] += votes.cast(user % 10 + 1, user).changed
        user += 1

threads = [threading.Thread(target=vote, args=(each,)) for each in range(4)]
for each in threads: each.start()
end = time.monotonic() + float(sys.argv[4])
while time.monotonic() < end: visit(library, path)
stop.set()
for each in threads: each.join()
print(sum(acknowledged), flush=True)
sys.stdin.readline()
"""
)


@pytest.mark.parametrize("library", LIBRARIES)
def test_three_processes_with_another_library_lose_no_vote(tmp_path: Path, library: str) -> None:
    file = tmp_path / "a.db"
    with make_votes(file) as votes:
        votes.add_items(range(1, 11))
    voters = [
        subprocess.Popen(
            [sys.executable, "-c", VOTERS, library, str(number), str(file), "2"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    acknowledged = 0
    for each in voters:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in voters:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in voters:
        assert each.stdout is not None
        acknowledged += int(each.stdout.readline())
    for each in voters:
        each.kill()
        each.communicate()
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    assert rows(file, "SELECT COUNT(*), SUM(val) FROM vote") == [(acknowledged, acknowledged)]
    assert rows(file, "SELECT SUM(vote_count) FROM item") == [(acknowledged,)]
    fired("second library")


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("how", [removed, replaced])
def test_a_vote_into_a_gone_file(tmp_path: Path, suffix: str, how: Callable[[Path], None]) -> None:
    file = tmp_path / "a.db"
    gone = tmp_path / f"a.db{suffix}"
    votes = make_votes(file)
    assert votes.cast(1, 7).changed
    if suffix == "-shm" and how is replaced:  # Its bytes would be copied through a locked file.
        gone.rename(tmp_path / "away")
        gone.write_bytes((tmp_path / "away").read_bytes())
    else:
        how(gone)
    with pytest.raises(hotcount.OutcomeUnknownError, match=rf"{gone.name} was removed or replaced"):
        votes.cast(1, 8)
    for call in (lambda: votes.cast(1, 9), lambda: votes.count(1), lambda: votes.get(1, 7)):
        with pytest.raises(hotcount.DatabaseError, match=rf"{gone.name} was removed or replaced"):
            call()


WARNED = (
    VISIT
    + """
import logging, sys, sqlalchemy
import hotcount
from hotcount.integrations.sqlalchemy import cast_vote, increment

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
import pysqlite3
votes = hotcount.Votes(f"sqlite:///{sys.argv[1]}")
votes.create_tables()
votes.add_items([1])
engine = sqlalchemy.create_engine(f"sqlite:///{sys.argv[1]}", module=pysqlite3.dbapi2)
with engine.connect() as connection:
    try:
        cast_vote(connection, votes, 1, 7)
    except hotcount.ConfigError as error:
        print("REFUSED", error)
# Python's sqlite3 has the library of hotcount.
with sqlalchemy.create_engine(f"sqlite:///{sys.argv[1]}").begin() as connection:
    cast_vote(connection, votes, 1, 7)
print(int(votes.count(1)))
"""
)


def test_another_library_is_named_and_refused_in_a_transaction(tmp_path: Path) -> None:
    with run(WARNED, tmp_path / "a.db") as process:
        warned, refused, counted = process.communicate()[0].splitlines()
    assert warned.startswith("WARNING sqlite")
    assert "other SQLite libraries in this process" in warned
    assert "pysqlite3" in warned
    assert refused.startswith("REFUSED")
    assert "pysqlite3" in refused
    assert counted == "1"


def test_alone_nothing_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="hotcount"), make_votes(tmp_path / "a.db"):
        pass
    assert [each for each in caplog.records if each.name == "hotcount"] == []


# Workers of a prefork server whose master has another connection to the file inherit the files that
# the guard could not close. One closes its database again and again.
PREFORK = """
import os, sqlite3, sys, time
import hotcount

url = f"sqlite:///{sys.argv[1]}"
votes = hotcount.Votes(url)
votes.create_tables()
votes.add_items([1, 2, 3])
other = sqlite3.connect(sys.argv[1])
other.execute("SELECT count(*) FROM vote").fetchall()

def work(first, end):
    done = 0
    while time.monotonic() < end:
        users = range(first + done, first + done + 50)
        if first == 0:
            with hotcount.Votes(url) as own:
                own.cast_many([1] * 50, users)
        else:
            votes.cast_many([2] * 50, users)
        done += 50
    return done

readers = []
for worker in range(3):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, str(work(worker * 10_000_000, time.monotonic() + 1.5)).encode())
        os._exit(0)
    os.close(writer)
    readers.append(reader)
print(sum(int(os.read(reader, 99)) for reader in readers))
"""


def test_workers_that_fork_beside_another_connection_do_not_share_locks(tmp_path: Path) -> None:
    path = tmp_path / "votes.db"
    done = subprocess.run(
        [sys.executable, "-c", PREFORK, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        stored = file.execute("SELECT count(*) FROM vote").fetchone()
        shown = file.execute("SELECT SUM(vote_count) FROM item").fetchone()
    file.close()
    assert stored == shown == (int(done.stdout),)


FORKS = """
import os, sys, threading
import hotcount

def votes(name):
    made = hotcount.Votes(f"sqlite:///{sys.argv[1]}/{name}.db", strategy="naive")
    made.create_tables()
    made.add_items([1])
    return made

# A fork closes every connection to a file, so each one locks its files again at its next commit.
databases = [votes(name) for name in "abc"]
ended = threading.Event()
cast = [0] * len(databases)

def vote(at):
    while not ended.is_set():
        cast[at] += 1
        databases[at].cast(1, cast[at])

threads = [threading.Thread(target=vote, args=(at,)) for at in range(len(databases))]
for thread in threads:
    thread.start()
for _ in range(200):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
ended.set()
for thread in threads:
    thread.join()
print([int(each.count(1)) for each in databases] == cast or cast)
"""


def test_a_process_forks_while_its_threads_commit_to_several_files(tmp_path: Path) -> None:
    process = run(FORKS, tmp_path)
    try:
        assert process.communicate(timeout=60)[0] == "True\n"
    finally:
        process.kill()
