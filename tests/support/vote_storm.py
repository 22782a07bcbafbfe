"""A storm for votes: processes that vote and fold, connections that lock items at random, and kills
of all of them and of the server.

Voters change the votes of their own users again and again, so that what counts is the last value
acknowledged of each, and write down each call before and after it. A voter that takes a killed
one's place has other users: what its predecessor sent last may be carried out late, after which
"the last" would have no meaning. A folder does what every process does behind its votes, and
nothing else: flush(), which brings item.vote_count up to date.

While they run, a reader takes snapshots: in each one, of one instant, the exact count of every item
in the view {vote_table}_count is SUM(val) of its votes.
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]

ITEMS = 12
USERS = 3  # Few: each vote is changed often.
# Threads of each voter: most have one, as workers of web servers.
VOTERS = (1, 1, 4)
FOLDERS = 2
LOCKERS = 2
LONGEST_LOCK_S = 0.3
# Of ten kills.
KILLS_OF = ("voter",) * 6 + ("folder",) * 3 + ("server",)

# "?" is written before the call and "!" after it. The calls of a thread are for users of its own,
# one at a time; what is unknown is asked for again, as anybody would, until it is settled.
VOTER = f"""
import hotcount, logging, os, random, sys, threading, time
logging.getLogger("hotcount").addHandler(logging.NullHandler())  # It warns of each outage.
url, first, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
votes = hotcount.Votes(hotcount.Database(url, timeout=60))
def work(users):
    draw = random.Random(users[0])
    while True:
        item, user = draw.randint(1, {ITEMS}), draw.choice(users)
        value = draw.choice((1, -1, 0))
        os.write(1, b"? %d %d %d\\n" % (item, user, value))
        while True:
            try:
                votes.cast(item, user, value)
                break
            except (hotcount.OutcomeUnknownError, hotcount.UnavailableError):
                os.write(1, b"~ %d %d %d\\n" % (item, user, value))
                time.sleep(0.005)
        os.write(1, b"! %d %d %d\\n" % (item, user, value))
for thread in range(threads):
    begin = first + thread * {USERS}
    threading.Thread(target=work, args=(range(begin, begin + {USERS}),)).start()
"""

FOLDER = """
import hotcount, logging, os, random, sys, time
logging.getLogger("hotcount").addHandler(logging.NullHandler())
votes = hotcount.Votes(hotcount.Database(sys.argv[1], timeout=60))
while True:
    try:
        votes.flush()
        os.write(1, b"f\\n")
    except (hotcount.OutcomeUnknownError, hotcount.UnavailableError):
        pass
    time.sleep(random.uniform(0, 0.02))
"""


@dataclass
class Ledger:
    """What is known of each (item, user): the values that its vote may have now."""

    possible: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    said: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, line: str) -> None:
        sign, *numbers = line.split()
        with self._lock:
            self.said[sign] += 1
            if sign not in "?!":
                return
            item, user, value = map(int, numbers)
            if sign == "!":
                self.possible[item, user] = {value}
            else:
                self.possible.setdefault((item, user), {0}).add(value)

    def differences(self, live: dict[tuple[int, int], int]) -> list[str]:
        """What contradicts the votes that are there; one that is not there has the value 0."""
        return [
            f"item {item}, user {user}: {live.get((item, user), 0)}, not one of "
            f"{sorted(self.possible.get((item, user), {0}))}"
            for item, user in sorted(self.possible.keys() | live.keys())
            if live.get((item, user), 0) not in self.possible.get((item, user), {0})
        ]


class Process:
    """A voter or a folder; what it writes goes to the ledger."""

    def __init__(self, script: str, words: list[str], ledger: Ledger) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._errors: list[bytes] = []
        self.lines = 0

        def listen() -> None:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.endswith(b"\n"):  # Its last words may have been cut.
                    ledger.note(line.decode())
                    self.lines += 1

        def overhear() -> None:
            assert self._process.stderr is not None
            self._errors.append(self._process.stderr.read())

        self._listeners = [threading.Thread(target=listen), threading.Thread(target=overhear)]
        for listener in self._listeners:
            listener.start()

    def failed(self) -> str | None:
        """What it said where it ended by itself or a thread of it did."""
        if self._process.poll() is None:
            return None
        self._end()
        return f"ended with {self._process.returncode}: {b''.join(self._errors).decode()}"

    def kill(self) -> str:
        """Returns what it said on stderr: nothing, where all was well until then."""
        self._process.kill()
        self._end()
        return b"".join(self._errors).decode()

    def _end(self) -> None:
        self._process.wait(30)
        for listener in self._listeners:
            listener.join(30)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def exact_counts(cursor: Any) -> tuple[dict[int, int], dict[int, int]]:
    """Each item's count and the sum of its votes; of one instant where the transaction is."""
    cursor.execute("SELECT item, n FROM vote_count")
    counts = {int(item): int(n) for item, n in cursor.fetchall()}
    cursor.execute("SELECT item_id, SUM(val) FROM vote_live GROUP BY item_id")
    votes = {int(item): int(total) for item, total in cursor.fetchall()}
    return counts, votes


LOST = (psycopg.OperationalError, pymysql.err.OperationalError, pymysql.err.InterfaceError)


class Storm:
    """`connect` opens another client's session in the target's database, which commits when told.
    `restart` kills the server and starts it again.
    """

    def __init__(
        self, url: str, connect: Callable[[], Any], restart: Callable[[], object], seed: int
    ) -> None:
        self.ledger = Ledger()
        self.kills: Counter[str] = Counter()
        self.snapshots = 0
        self.locks = 0
        self._url = url
        self._connect = connect
        self._restart = restart
        self._random = random.Random(seed)
        self._next_user = 1
        self._stop = threading.Event()
        # Held while the server is down: PyMySQL leaves a socket open that cannot connect.
        self._server = threading.Lock()
        self._failures: list[str] = []

    def run(self, kills: int) -> None:
        """Returns when all processes are dead and all sessions of the others closed."""
        voters = [self._voter(threads) for threads in VOTERS]
        folders = [self._folder() for _ in range(FOLDERS)]
        tasks = [self._lock_items] * LOCKERS + [self._take_snapshots]
        threads = [threading.Thread(target=self._guard, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        try:
            # Every ten kills hold each kind as often as it is due, in another order.
            due: list[str] = []
            for _ in range(kills):
                if not due:
                    due = list(KILLS_OF)
                    self._random.shuffle(due)
                self._wait_for_progress(voters + folders)
                time.sleep(self._random.uniform(0, 0.2))  # Anywhere in what they do.
                self._kill(due.pop(), voters, folders)
            self._wait_for_progress(voters + folders)
        finally:
            self._stop.set()
            for process in voters + folders:
                self._note(process.kill())
            for thread in threads:
                thread.join(60)
        assert self._failures == [], self._failures

    def _voter(self, threads: int) -> Process:
        first = self._next_user
        self._next_user += threads * USERS
        return Process(VOTER, [self._url, str(first), str(threads)], self.ledger)

    def _folder(self) -> Process:
        return Process(FOLDER, [self._url], self.ledger)

    def _kill(self, kind: str, voters: list[Process], folders: list[Process]) -> None:
        self.kills[kind] += 1
        if kind == "server":
            with self._server:
                self._restart()
            return
        of = voters if kind == "voter" else folders
        which = self._random.randrange(len(of))
        self._note(of[which].kill())
        of[which] = self._voter(VOTERS[which]) if kind == "voter" else self._folder()

    def _note(self, said: str) -> None:
        if said:
            self._failures.append(said)

    def _wait_for_progress(self, processes: list[Process]) -> None:
        """Until each has done something: what is killed was at work."""
        goals = [(process, process.lines + 2) for process in processes]
        deadline = time.monotonic() + 60
        while any(process.lines < goal for process, goal in goals):
            for process in processes:
                if (failed := process.failed()) is not None:
                    self._failures.append(failed)
            assert self._failures == [], self._failures
            assert time.monotonic() < deadline, "a voter or folder got nowhere"
            time.sleep(0.01)

    def _guard(self, task: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                # The server is killed now and then.
                with suppress(*LOST):
                    task()
                time.sleep(0.02)
        except BaseException as failure:
            self._failures.append(repr(failure))

    @contextmanager
    def _session(self) -> Iterator[Any]:
        with self._server:
            connection = self._connect()
        try:
            yield connection
        finally:
            with suppress(*LOST):
                connection.close()

    def _lock_items(self) -> None:
        draw = random.Random(self._random.random())
        with self._session() as session:
            while not self._stop.is_set():
                cursor = session.cursor()
                cursor.execute(
                    "SELECT id FROM item WHERE id = %s FOR UPDATE", (draw.randint(1, ITEMS),)
                )
                cursor.fetchall()
                self.locks += 1
                self._stop.wait(draw.uniform(0, LONGEST_LOCK_S))
                session.rollback()
                self._stop.wait(draw.uniform(0, LONGEST_LOCK_S))

    def _take_snapshots(self) -> None:
        with self._session() as session:
            cursor = session.cursor()
            # Both databases know this level; the snapshot is the first statement's.
            cursor.execute(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
                if isinstance(session, psycopg.Connection)
                else "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            )
            session.commit()
            while not self._stop.is_set():
                counts, votes = exact_counts(cursor)
                session.rollback()
                for item in counts.keys() | votes.keys():
                    if counts.get(item, 0) != votes.get(item, 0):
                        self._failures.append(
                            f"snapshot {self.snapshots}, item {item}: counted "
                            f"{counts.get(item, 0)}, votes {votes.get(item, 0)}"
                        )
                        return
                self.snapshots += 1
                self._stop.wait(0.02)

    def figures(self) -> str:
        kills = ", ".join(f"{number} {kind}s" for kind, number in sorted(self.kills.items()))
        said = self.ledger.said
        return (
            f"{self.kills.total()} kills ({kills}); {said['!']:,} votes acknowledged, "
            f"{said['~']} retried, {said['f']:,} flushes, {self.locks} items locked, "
            f"{self.snapshots} snapshots, {len(self.ledger.possible):,} votes at the end"
        )
