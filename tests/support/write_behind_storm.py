"""A storm for strategy write_behind: voter processes, worker processes, and kills.

- A voter's values rise, so the higher of two values is the later vote.
- A voter has users of its own; a voter that replaces a killed one has new users.
- A voter prints each batch before and after it casts it, with the time before the cast. It casts
  failed votes again until they are acknowledged.
- The check: each user's vote in SQL was sent, and is no older than the last vote that was
  acknowledged and that Redis has not lost.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import hotcount

from tests.support.eventually import eventually
from tests.support.servers import PostgresServer, RedisServer

Key = tuple[int, int]

VOTER = """
import hotcount, json, os, random, sys, time
db, cache, first, items, rate = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
votes = hotcount.Votes(
    hotcount.Database(db, timeout=60), hotcount.Redis(cache, timeout=5), "write_behind"
)
draw = random.Random(first)
batch = max(1, min(100, rate // 50)) if rate else 20
def say(what, began, done):
    os.write(1, (json.dumps([what, began, done]) + "\\n").encode())
value, began = 0, time.monotonic()
while True:
    value += 1
    # Zipf: item k in proportion to 1/k. A batch has each user once: no vote that is cast again can
    # be older than another one of its user.
    left = [
        (min(int(draw.paretovariate(1.0)), items), first + user, value) for user in range(batch)
    ]
    say("?", time.monotonic(), left)
    while left:
        sent = time.monotonic()
        try:
            casts = votes.cast_many(*map(list, zip(*left)), errors="return")
            bad = casts.errors
        except hotcount.HotcountError:
            bad = dict.fromkeys(range(len(left)))
        say("!", sent, [vote for i, vote in enumerate(left) if i not in bad])
        left = [left[i] for i in sorted(bad)]
        if left:
            time.sleep(0.005)
    if rate:
        time.sleep(max(0, began + value * batch / rate - time.monotonic()))
"""

WORKER = """
import hotcount, sys
votes = hotcount.Votes(
    hotcount.Database(sys.argv[1], timeout=10), hotcount.Redis(sys.argv[2], timeout=5),
    "write_behind", interval=float(sys.argv[3]),
)
votes.sync_worker().run()
"""


@dataclass
class Ledger:
    sent: dict[Key, int] = field(default_factory=dict)
    # The highest acknowledged value that Redis cannot have lost.
    acked: dict[Key, int] = field(default_factory=dict)
    acknowledgements: int = 0
    # The highest acknowledged value that was not in SQL when Redis lost its data.
    waited: dict[Key, int] = field(default_factory=dict)
    lost_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, line: bytes) -> None:
        what, began, done = json.loads(line)
        with self.lock:
            for item, user, value in done:
                known = self.sent if what == "?" else self.acked
                if what == "!":
                    self.acknowledgements += 1
                    if began < self.lost_until:
                        continue
                known[item, user] = max(value, known.get((item, user), 0))


class Storm:
    def __init__(
        self, db: str, redis: RedisServer, *, items: int, rate: int = 0, interval: float = 0.02
    ) -> None:
        self.db, self.redis, self.items = db, redis, items
        self.rate, self.interval = rate, interval
        self.ledger = Ledger()
        self.users = 0
        self.running: dict[str, list[subprocess.Popen[bytes]]] = {"voter": [], "worker": []}
        self.readers: list[threading.Thread] = []
        self.votes = hotcount.Votes(
            hotcount.Database(db, timeout=60), hotcount.Redis(redis.url, timeout=5), "write_behind"
        )
        self.votes.create_tables()
        self.votes.add_items(range(1, items + 1))

    def start(self, kind: str) -> None:
        program = VOTER if kind == "voter" else WORKER
        more = [str(self.interval)]
        if kind == "voter":
            more = [str(self.users), str(self.items), str(self.rate)]
            self.users += 1000
        process = subprocess.Popen(
            [sys.executable, "-c", program, self.db, self.redis.url, *more],
            stdout=subprocess.PIPE if kind == "voter" else subprocess.DEVNULL,
        )
        self.running[kind].append(process)
        if kind == "voter":
            reader = threading.Thread(target=self.read, args=(process,))
            reader.start()
            self.readers.append(reader)

    def read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):
                    self.ledger.note(line)

    def kill(self, kind: str, *, again: bool = True) -> None:
        victim = self.running[kind].pop(random.randrange(len(self.running[kind])))
        victim.kill()
        victim.wait()
        if again:
            self.start(kind)

    def lose(self, how: Callable[[], None]) -> None:
        """Redis loses its data by `how`: votes that are not in SQL by now may be lost."""
        in_sql = self.in_sql()
        how()
        with self.ledger.lock:
            self.ledger.lost_until = time.monotonic()
            self.ledger.waited |= {
                key: value for key, value in self.ledger.acked.items() if in_sql.get(key, 0) < value
            }
            self.ledger.acked = {
                key: min(value, in_sql[key])
                for key, value in self.ledger.acked.items()
                if key in in_sql
            }

    def in_sql(self) -> dict[Key, int]:
        with self.ledger.lock:
            items = sorted({item for item, _ in self.ledger.sent})
        return {
            (item, user): value
            for item in items
            for user, value in self.votes.voters(item, limit=10_000)
        }

    def run_in_redis(self, *command: str) -> None:
        with self.redis.redis() as redis:
            redis.execute(*command)

    def stop(self) -> None:
        while self.running["voter"]:
            self.kill("voter", again=False)
        for reader in self.readers:
            reader.join()

    def age(self) -> None:
        """Lets workers take over the votes of dead workers now instead of after 30 s."""
        with self.redis.redis() as redis:
            eventually(redis.ready)  # A Redis that was killed may still load its data.
            for key in redis.execute("KEYS", "waiting:*"):
                if key.endswith(b":refused"):
                    continue
                for entry, owner, _, _ in redis.execute(
                    "XPENDING", key, "workers", "-", "+", 1_000_000
                ):
                    redis.execute("XCLAIM", key, "workers", owner, 0, entry, "IDLE", 60_000)

    def lost(self) -> int:
        """The number of acknowledged votes that Redis has lost; the contract allows it."""
        in_sql = self.in_sql()
        return sum(in_sql.get(key, 0) < value for key, value in self.ledger.waited.items())

    def check(self, *, aged: bool = True) -> None:
        self.stop()
        while self.running["worker"]:
            self.kill("worker", again=False)
        if aged:
            self.age()
        report = self.votes.flush(timeout=60)
        assert (report.pending, report.at_risk) == (0, 0), report
        in_sql = self.in_sql()
        for key, acked in self.ledger.acked.items():
            now = in_sql.get(key, 0)
            assert acked <= now, f"{key}: {acked} was acknowledged, and {now} is in SQL"
        for key, now in in_sql.items():
            assert now <= self.ledger.sent[key], f"{key}: {now} was never sent"
        assert self.votes.reconcile(dry_run=True) == []
        assert self.votes.stats()["refused_votes"] == 0


ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")
FSYNC = {"always": ALWAYS, "everysec": EVERYSEC, "none": ()}


@dataclass(frozen=True)
class Survived:
    """The figures of a storm that passed its check."""

    votes_per_s: float
    kills: dict[str, int]
    acknowledged: int
    lost: int  # Acknowledged votes that a Redis lost with its data; the contract allows it.
    updates_per_vote: float  # UPDATEs of item rows.


def restart(redis: RedisServer) -> None:
    redis.kill()
    redis.start()


def survive(
    postgres: PostgresServer, redis: RedisServer, fsync: str, seconds: float, seed: int = 18
) -> Survived:
    """Three voters cast 2,000 votes a second each on 10,000 items by Zipf, beside 4 workers.

    Voters, workers and Redis are killed. The three rates are 6,000 votes a second, so that 5,000
    remain although a killed voter casts nothing for half a second.
    """
    database = postgres.create_database()
    storm = Storm(database.url, redis, items=10_000, rate=2000, interval=0.2)
    for kind in ("voter", "voter", "voter", "worker", "worker", "worker", "worker"):
        storm.start(kind)
    began = time.monotonic()
    draw = random.Random(seed)
    kills: dict[str, int] = {}
    chances = {"worker": 6, "voter": 3, "redis": 1, "FLUSHALL": 1}
    if fsync == "always":
        del chances["FLUSHALL"]  # No vote may be lost with this setting.
    once = draw.sample(list(chances), len(chances))  # Each kind of kill comes at least once.
    while time.monotonic() - began < seconds:
        time.sleep(draw.uniform(1, 3))
        what = once.pop() if once else draw.choices([*chances], [*chances.values()])[0]
        kills[what] = kills.get(what, 0) + 1
        if what in ("worker", "voter"):
            storm.kill(what)
        elif fsync == "always":
            restart(redis)
        elif what == "redis":
            storm.lose(lambda: restart(redis))
        else:
            storm.lose(lambda: storm.run_in_redis("FLUSHALL"))
    took = time.monotonic() - began
    storm.check()
    acknowledged = storm.ledger.acknowledgements
    updates = int(
        postgres.psql(
            "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'item'::regclass",
            schema=database.schema,
        )
    )
    return Survived(acknowledged / took, kills, acknowledged, storm.lost(), updates / acknowledged)
